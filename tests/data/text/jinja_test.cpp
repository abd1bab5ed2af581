#include <gmock/gmock.h>

#include "axonn/data/text/chat/conversation.h"
#include "axonn/data/text/jinja/jinja_parser.h"
#include "axonn/data/text/jinja/jinja_render.h"
#include "axonn/foundation/base/check.h"
#include "axonn/foundation/base/files.h"

using namespace axonn;
using testing::HasSubstr;

namespace {

const jinja::Value& recorded() {
  static const jinja::Value all =
      *parse_chat_json(read_text(std::string(AXONN_CHAT_TEMPLATES) + "/recorded.json"));
  return all;
}

const std::vector<jinja::Value>& recorded_list(const char* name) {
  return recorded().dict()->find(name)->list()->items;
}

std::tm day() { return parse_chat_date("2024-07-26", "day"); }

/// The text, or the error, after "error: ".
std::string rendered(const std::string& source, const jinja::Variables& variables,
                     jinja::RenderOptions options = {}) {
  const std::tm now = day();
  options.now = &now;
  try {
    return jinja::render(jinja::parse(source, "t"), variables, options).bytes();
  } catch (const UsageError& error) {
    return concat("error: ", error.what());
  }
}

std::string jinja_fault(const std::string& source, jinja::RenderOptions options = {}) {
  return rendered(source, {}, options);
}

/// A text with the origin of each piece: "T" template, "D" data, "0" a message.
std::string with_origins(const jinja::Text& text) {
  std::string out;
  text.for_pieces([&](std::string_view bytes, jinja::Origin origin) {
    const std::string name = origin.source >= 0                      ? std::to_string(origin.source)
                             : origin.source == jinja::Origin::kData ? "D"
                                                                     : "T";
    out += concat(origin.marked ? "*" : "", name, '(', bytes, ')');
  });
  return out;
}

std::string origins(const std::string& source) {
  const auto all = parse_chat_json(
      R"({"messages": [{"role": "user", "content": " a,B</x>c ", "n": 5},
          {"role": "assistant", "content": "", "call": {"key": "é\"\n"}}], "tools": ["t"]})");
  const Conversation talk = Conversation::parse(*all->dict(), "t");
  jinja::Variables variables = talk.variables;
  variables.emplace_back("messages", jinja::List{.items = talk.messages});
  return with_origins(jinja::render(jinja::parse(source, "t"), variables, {}));
}

}  // namespace

TEST(Jinja, RendersEverySnippetAsPythonsJinjaDoesAndRefusesWhatItRefuses) {
  jinja::Variables variables;
  for (const auto& [name, value] : recorded().dict()->find("variables")->dict()->items())
    variables.emplace_back(name.text()->bytes(), value);
  ASSERT_GT(recorded_list("snippets").size(), 150U);
  for (const jinja::Value& each : recorded_list("snippets")) {
    const std::string& source = each.dict()->find("template")->text()->bytes();
    const jinja::Text* want = each.dict()->find("text")->text();
    const std::string got = rendered(source, variables);
    if (want)
      EXPECT_EQ(got, want->bytes()) << source;
    else
      EXPECT_THAT(got, testing::StartsWith("error: ")) << source;
  }
}

TEST(Jinja, RendersEveryConversationByEveryTemplateAsPythonsJinjaDoes) {
  const std::string folder = AXONN_CHAT_TEMPLATES;
  const auto& templates = recorded().dict()->find("templates")->dict()->items();
  ASSERT_GE(templates.size(), 20U);
  for (const auto& [name, texts] : templates) {
    const std::string file = folder + '/' + name.text()->bytes() + ".jinja";
    const std::string source = read_text(file);
    for (std::size_t c = 0; c < recorded_list("conversations").size(); ++c) {
      const jinja::Dict& object = *recorded_list("conversations")[c].dict();
      const Conversation talk = Conversation::parse(object, "recorded");
      for (int prompted = 0; prompted < 2; ++prompted) {
        jinja::Variables variables{{"bos_token", "<s>"},
                                   {"eos_token", "</s>"},
                                   {"tools", jinja::None{}},
                                   {"documents", jinja::None{}},
                                   {"add_generation_prompt", prompted == 1},
                                   {"messages", jinja::List{.items = talk.messages}}};
        variables.insert(variables.end(), talk.variables.begin(), talk.variables.end());
        const jinja::Value& want =
            texts.list()->items[c].list()->items[static_cast<std::size_t>(prompted)];
        const std::string got = rendered(source, variables);
        if (want.text())
          EXPECT_EQ(got, want.text()->bytes()) << file << ", conversation " << c;
        else
          EXPECT_THAT(got, testing::StartsWith("error: ")) << file << ", conversation " << c;
      }
    }
  }
}

TEST(Jinja, TextsKeepTheOriginOfEachCharacter) {
  EXPECT_EQ(origins("{{ 'a' + messages[0].content ~ 'b' }}"), "T(a)0( a,B</x>c )T(b)");
  EXPECT_EQ(origins("{{ messages[0].role }}"), "T(user)") << "templates form tokens of roles";
  EXPECT_EQ(origins("{{ messages[0].content | trim }}-{{ messages[0].content[1:3].upper() }}"),
            "0(a,B</x>c)T(-)0(A,)");
  EXPECT_EQ(origins("{{ ('[' ~ messages[0].content ~ ']').split('</x>')[1] }}"), "0(c )T(])");
  EXPECT_EQ(origins("{{ messages[0].content.replace(',', ';') }}"), "0( a)T(;)0(B</x>c )");
  EXPECT_EQ(origins("{{ ['x', messages[0].content | trim, tools[0]] | join('|') }}"),
            "T(x|)0(a,B</x>c)T(|)D(t)");
  EXPECT_EQ(origins("{{ messages[1].call | tojson }}"), "T({\")1(key)T(\": \")1(é\\\"\\n)T(\"})");
  EXPECT_EQ(origins("{{ messages[1].call }}"), "T({')1(key)T(': ')1(é\"\\n)T('})");
  EXPECT_EQ(origins("<{{ messages[1].content.strip() }}>"), "T(<)1()T(>)")
      << "the place of an empty message is known";
  EXPECT_EQ(origins("{% for c in messages[0].content %}{{ c }}{% endfor %}"), "0( a,B</x>c )");
  EXPECT_EQ(origins("{% set x %}a{{ tools[0] }}{% endset %}{{ x | title | indent }}"), "T(A)D(t)");
  EXPECT_EQ(
      origins("a{% generation %}b{{ messages[1].content }}{{ tools[0] }}{% endgeneration %}c"),
      "T(a)*T(b)*1()*D(t)T(c)");
}

TEST(Jinja, NamesThePlaceOfAFault) {
  EXPECT_EQ(jinja_fault("a\n {{ 'x' | foo }}"), "error: t:2:11: the filter 'foo' is not supported");
  EXPECT_EQ(jinja_fault("{{ x is foo }}"), "error: t:1:9: the test 'foo' is not supported");
  EXPECT_EQ(jinja_fault("\n\n{% include 'x' %}"),
            "error: t:3:4: the statement 'include' is not supported");
  EXPECT_EQ(jinja_fault("{{ 'x'.encode() }}"), "error: t:1:14: a str has no attribute 'encode'");
  EXPECT_EQ(jinja_fault("{% if x %}\n{% for y in x %}{% endfor %}"),
            "error: t:2:29: wanted '{% endif %}' for the block at 1:1");
  EXPECT_EQ(jinja_fault("{{ ( }}"), "error: t:1:6: '}' closes no bracket");
  EXPECT_EQ(jinja_fault("a {{ 'b"), "error: t:1:6: this string has no end");
  EXPECT_EQ(jinja_fault("a {# b"), "error: t:1:3: this comment has no end");
  EXPECT_EQ(jinja_fault("{{ 'a' + 1 }}"), "error: t:1:8: '+' is not defined for str and int");
  EXPECT_EQ(jinja_fault("{% set a = 1 %}\n{{ a }}{{ b.c }}"), "error: t:2:12: 'b' is undefined");
  EXPECT_EQ(jinja_fault("{{ raise_exception('no\n') }}"), "error: no\\n");
  EXPECT_EQ(jinja_fault("{{ \xff }}"), "error: t:1:4: this byte is not UTF-8");
  EXPECT_EQ(jinja_fault("{{ 9223372036854775807 + 1 }}"),
            "error: t:1:24: the result of '+' is beyond 64 bits");
}

TEST(Jinja, NamesWhatOfTheLanguageIsNotSupported) {
  for (const auto& [source, name] : std::initializer_list<std::pair<const char*, const char*>>{
           {"{% raw %}{{ $ }}", "this 'raw' has no '{% endraw %}'"},
           {"{% block a %}{% endblock %}", "the statement 'block'"},
           {"{% for x in [1] %}{{ loop([]) }}{% endfor %}", "needs a loop that is 'recursive'"},
           {"{{ [1] | random }}", "the filter 'random'"},
           {"{{ ['a'] | map('foo') }}", "the filter 'foo'"},
           {"{{ ['a'] | select('foo') }}", "the test 'foo'"},
           {"{{ 'a'.translate({}) }}", "a str has no attribute 'translate'"},
           {"{{ ('<'|safe) + 'a' }}", "'+' escapes HTML beside 'safe'"},
           {"{{ ('<'|e) + 'a' }}", "'+' escapes HTML beside 'e'"},
           {"{{ 10 ** 30 }}", "the result of '**' is beyond 64 bits"},
           {"{{ '%q' % 1 }}", "the format '%q' is not supported"},
           {"{{ '{0.a}'.format(1) }}", "format(): no argument '0.a'"},
           {"{{ 1__0 }}", "a number in this form"},
           {"{{ '\\N{BULLET}' }}", "the escape \\N"}})
    EXPECT_THAT(jinja_fault(source), HasSubstr(name)) << source;
}

TEST(Jinja, EndsATemplateThatTakesTooMuch) {
  const std::string doubled =
      "{% set n = namespace(x='ab') %}{% for i in range(99) %}{% set n.x = n.x ~ n.x %}{% endfor "
      "%}";
  for (const std::string& source :
       {std::string("{% for a in range(9999) %}{% for b in range(9999) %}{% endfor %}{% endfor %}"),
        doubled, std::string("{{ ('x' * 50000).replace('x', 'yyy') }}"),
        std::string("{% macro m() %}{{ 'x' * 90000 }}{% endmacro %}{{ m() }}"),
        std::string("{{ range(90000) | list }}"), std::string("{{ ('a,' * 9000).split(',') }}"),
        std::string("{% for i in range(99999) %}x{% endfor %}")})
    EXPECT_THAT(jinja_fault(source, {.most_steps = 10'000}), HasSubstr("more than 10000 steps"))
        << source;
  EXPECT_THAT(jinja_fault("{{ 'x' * 99999999999 }}"), HasSubstr("a str of more than 64 MiB"));
  EXPECT_THAT(jinja_fault("{{ [1] * 99999999999 }}"), HasSubstr("a list of more than 64 MiB"));
  EXPECT_THAT(jinja_fault("{{ ('x' * 200000).replace('x', 'y' * 200000) }}"),
              HasSubstr("a text of more than 64 MiB"));
  EXPECT_THAT(jinja_fault("{% for c in 'x' * 2000000 %}{% endfor %}"),
              HasSubstr("a text of more than 1000000 bytes cannot be cut into characters"));
  EXPECT_THAT(jinja_fault("{{ ('x,' * 2000000).split(',') }}"),
              HasSubstr("a text is cut into more than 1000000 parts"));
  const std::string tree =
      "{% set n = namespace(x=[], y=[]) %}{% for i in range(90) %}{% set n.x = [n.x, n.x] %}"
      "{% set n.y = [n.y, n.y] %}{% endfor %}";  // 2 to the power of 90 lists
  EXPECT_THAT(jinja_fault(tree + "{{ n.x }}"), HasSubstr("a text of more than 64 MiB"));
  EXPECT_THAT(jinja_fault(tree + "{{ n.x | tojson }}"), HasSubstr("a text of more than 64 MiB"));
  EXPECT_THAT(jinja_fault(tree + "{{ n.x == n.y }}"), HasSubstr("more than 20000000 steps"));
  EXPECT_THAT(jinja_fault(tree + "{{ [n.x] | select('eq', n.y) | list }}"),
              HasSubstr("more than 20000000 steps"));
  EXPECT_THAT(jinja_fault("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}"),
              HasSubstr("the template calls itself too deep"));
  EXPECT_THAT(jinja_fault("{% set n = namespace(x=[]) %}{% for i in range(200) %}"
                          "{% set n.x = [n.x] %}{% endfor %}"),
              HasSubstr("values nest deeper than 100"));
  EXPECT_THAT(jinja_fault("{% set n = namespace() %}{% set n.n = n %}"),
              HasSubstr("a namespace cannot be stored"));
  EXPECT_THAT(jinja_fault("{{ " + std::string(100, '(') + "1" + std::string(100, ')') + " }}"),
              HasSubstr("nests deeper than 60"));
  std::string chain = "{{ 1";
  for (int i = 0; i < 300; ++i) chain += " + 1";
  EXPECT_THAT(jinja_fault(chain + " }}"), HasSubstr("more than 200 operands in a row"));
}

TEST(Jinja, WritesTheDateOnlyIfThereIsOne) {
  EXPECT_EQ(rendered("{{ strftime_now('%d %b %Y') }}", {}), "26 Jul 2024");
  EXPECT_THAT([] { jinja::render(jinja::parse("{{ strftime_now('%Y') }}", "t"), {}, {}); },
              testing::ThrowsMessage<UsageError>(HasSubstr("would change from day to day")));
  EXPECT_THAT([] { parse_chat_date("2024-7-26", "k"); },
              testing::ThrowsMessage<UsageError>(HasSubstr("k: strftime_now must be a date")));
}
