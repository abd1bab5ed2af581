#include "axonn/data/grammar/gbnf.h"

#include <gmock/gmock.h>

#include "axonn/data/grammar/automaton.h"
#include "axonn/foundation/base/check.h"

using namespace axonn;
using testing::HasSubstr;
using testing::ThrowsMessage;

namespace {

Automaton of_grammar(std::string_view grammar) {
  Rules rules;
  const std::size_t root = rules.declare();
  rules.set(root, gbnf(grammar, rules));
  return {rules, root};
}

void expect_texts(std::string_view grammar, const std::vector<std::string>& texts,
                  const std::vector<std::string>& others) {
  const Automaton automaton = of_grammar(grammar);
  for (const std::string& text : texts) EXPECT_TRUE(automaton.accepts(text)) << grammar << text;
  for (const std::string& text : others) EXPECT_FALSE(automaton.accepts(text)) << grammar << text;
}

void expect_refusal(const std::string& grammar, const std::string& message) {
  EXPECT_THAT([&] { of_grammar(grammar); }, ThrowsMessage<UsageError>(HasSubstr(message)))
      << grammar;
}

}  // namespace

TEST(Gbnf, ReadsArithmetic) {
  expect_texts(R"G(# sums of products
root   ::= expr "=" ws term "\n"
expr   ::= term ([-+*/] term)*
term   ::= ident | num | "(" ws expr ")" ws   # recursive
ident  ::= [a-z] [a-z0-9_]* ws
num    ::= [0-9]+ ws
ws     ::= [ \t\n]*
)G",
               {"1+2=3\n", "a_1 *( 2-b)= (c)\n", "((1))=1\n"},
               {"1+2=3", "1+=3\n", "(1=2\n", "A=1\n"});
}

TEST(Gbnf, ReadsRepetitionsCharactersAndEscapes) {
  expect_texts(R"(root ::= "a"? [^b-d\]]{2} ("x" | "yy"){1,2} .)", {"aeexA", "eeyyx\n", "aaayy€"},
               {"bex1", "ee1", "aeexxx12", "e]x1"});
  expect_texts(R"(root ::= "\x41\u20ac\U0001F600\"\\\n" "a"{2,} "b"{ 0 , 1 } "c"{3})",
               {"A€😀\"\\\naaccc", "A€😀\"\\\naaabccc"}, {"A€😀\"\\\nabccc", "A€😀\"\\\naabbccc"});
  expect_texts("root ::= [a-] [-b] \"\" [.]", {"a-.", "-b."}, {"b-.", "a-x"});
  expect_texts("root ::= (\"a\"?)* (\"b\"* \"c\"*)* \"d\"", {"d", "aabcbcd"}, {"", "bad"});
}

TEST(Gbnf, ARuleEndsWhereTheNextBegins) {
  expect_texts(
      "root ::= a-rule\n  | other_rule \"!\"\n\n"
      "a-rule ::=\n  \"x\"\n  \"y\"\nother_rule::=\"z\" # the end",
      {"xy", "z!"}, {"x", "z", "xyz!"});
}

TEST(Gbnf, RulesAreRecursiveInTheMiddleAndAtTheEnd) {
  expect_texts("root ::= \"(\" root? \")\" | \"[\" list\nlist ::= \"]\" | \"x\" list",
               {"(())", "([xx])"}, {"(()", "[x", "[(]"});
}

TEST(Gbnf, NamesWhatIsWrong) {
  expect_refusal("", "no rule root");
  expect_refusal("start: \"a\"", "at byte 6: wanted a rule, NAME ::= ...");
  expect_refusal("root ::= \"a\"\nroot ::= \"b\"", "line 2: there are two rules root");
  expect_refusal("root ::= b", "uses rule b and does not have it");
  expect_refusal("root ::= root \"a\" | \"a\"", "rule root of the grammar begins with itself");
  expect_refusal("root ::= a\na ::= \"x\"? b\nb ::= (a | \"b\")", "begins with itself");
  expect_refusal("root ::= (\"a\"\nb ::= \"c\"", "line 2: a ( without its )");
  expect_refusal("root ::= \"a\")", "a ) without its (");
  expect_refusal("root ::= \"a", "it ends too early");
  expect_refusal("root ::= []", "no character fits");
  expect_refusal("root ::= [z-a]", "its ends swapped");
  expect_refusal("root ::= \"\\q\"", "\\q is not supported");
  expect_refusal("root ::= \"\\ud800\"", "no such character");
  expect_refusal("root ::= \"a\"**", "a repetition of a repetition");
  expect_refusal("root ::= \"a\"{1001}", "more than 1000 repetitions");
  expect_refusal("root ::= \"a\"{2,1}", "its ends swapped");
  expect_refusal("root ::= <think> \"a\"", "tokens, <...>, are not supported");
  expect_refusal("root ::= \"a\" (=\"b\")", "lookahead is not supported");
  expect_refusal("root ::= *", "wanted \"a text\"");
  expect_refusal("root ::= \"\xff\"", "the grammar is not UTF-8");
  expect_refusal("root ::= " + std::string(200, '('), "nest deeper than 100");
}
