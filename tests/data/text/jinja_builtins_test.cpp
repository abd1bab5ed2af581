// Filters, tests, methods, functions and statements. The texts are those of Jinja 3.1.6 in the
// environment of transformers.
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>

#include "axonn/data/text/jinja/jinja_parser.h"
#include "axonn/data/text/jinja/jinja_render.h"
#include "axonn/foundation/base/check.h"

using namespace axonn;
using testing::HasSubstr;

namespace {

std::string built_in(const std::string& source) {
  std::tm now{};
  now.tm_year = 126;
  return jinja::render(jinja::parse(source, "T"), {}, {.now = &now}).bytes();
}

const std::vector<std::pair<std::string, std::string>> kBuiltIns{
    {"{% if false %}{{ 1|foo }}{% endif %}a", "a"},
    {"{{ (1|foo) if false else 2 }}", "2"},
    {"{% if false %}{{ 1 is foo }}{% endif %}c", "c"},
    {"{{ ''.foo() if false else 3}}", "3"},
    {"{{ {'_a':3}._a }}", "3"},
    {"{{ 1e400 }}", "inf"},
    {"{% macro m(a,b=2) %}x{% endmacro %}{{ m.name }}{{ m.arguments }}{{ m.catch_kwar"
     "gs }}",
     "m('a', 'b')False"},
    {"{{ '1_0'|int }}{{ '1_0'|float }}{{ '0x1f'|int(0,16) }}{{ ' 12 '|int }}{{ 'z'|in"
     "t(7) }}",
     "1010.031127"},
    {"{{ [3,1]|min }}{{ []|max }}{{ ['b','A']|min }}{{ [1,2.5]|sum }}{{ [{'a':1},{'a'"
     ":4}]|sum('a') }}{{ [{'a':1},{'a':4}]|max(attribute='a') }}",
     "1A3.55{'a': 4}"},
    {"{{ '%s-%5.2f|%d|%%|%x|%r'|format('a',1.234,7,255,'q') }}", "a- 1.23|7|%|ff|'q'"},
    {"{{ '%(a)s' % {'a':5} }}{{ 'x%s'%3 }}{{ '%s %s' % (1,[2]) }}", "5x31 [2]"},
    {"{{ 2**3 }} {{ 2**-1 }} {{ -2**2 }} {{ 2**3**2 }}", "8 0.5 4 64"},
    {"{{ dict(a=1,b=2) }}{{ dict([('a',1)]) }}{{ dict({'x':1},y=2) }}",
     "{'a': 1, 'b': 2}{'a': 1}{'x': 1, 'y': 2}"},
    {"{% raw %}{{ x }}{% if %}{% endraw %}z", "{{ x }}{% if %}z"},
    {"{%- raw -%}  {{ x }} {%- endraw -%}  z", "{{ x }}z"},
    {"{% for i in [1,2,3] %}{{ loop.cycle('a','b') }}{{ loop.changed(i//2) }}{{ loop."
     "depth }}{{loop.depth0}} {% endfor %}",
     "aTrue10 bTrue10 aFalse10 "},
    {"{{ 'ŉa'.capitalize() }}{{ 'ß'.capitalize() }}{{ 'ǆx'.title() }}", "ʼNaSsǅx"},
    {"{% with a=1, b=2 %}{{ a+b }}{% endwith %}{{ a }}", "3"},
    {"{% macro m() %}[{{ caller(3) }}]{% endmacro %}{% call(x) m() %}in{{ x }}{% endc"
     "all %}",
     "[in3]"},
    {"{% macro m(a) %}{{ a }}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1,2,3,k=4) }"
     "}",
     "1(2, 3){'k': 4}"},
    {"{% set c=cycler('a','b') %}{{ c.next() }}{{ c.next() }}{{ c.current }}{{ c.rese"
     "t() }}{{ c.next() }}",
     "abaNonea"},
    {"{% set j=joiner(', ') %}{{ j() }}a{{ j() }}b", "a, b"},
    {"{{ [1,2,3,4,5]|batch(2,'x')|list }}{{ [1,2,3,4,5]|slice(3)|list }}{{ [1,2,3,4,5"
     "]|slice(3,'z')|list }}",
     "[[1, 2], [3, 4], [5, 'x']][[1, 2], [3, 4], [5]][[1, 2], [3, 4], [5, 'z']]"},
    {"{{ [{'a':1,'b':2},{'a':1,'b':3},{'a':0,'b':1}]|groupby('a') }}",
     "[(0, [{'a': 0, 'b': 1}]), (1, [{'a': 1, 'b': 2}, {'a': 1, 'b': 3}])]"},
    {"{% for g, l in [{'a':1},{'a':2},{'a':1}]|groupby('a') %}{{ g }}:{{ l }};{% endf"
     "or %}",
     "1:[{'a': 1}, {'a': 1}];2:[{'a': 2}];"},
    {"{{ 'hello world foo bar'|truncate(11) }}|{{ 'hello world foo bar'|truncate(11,t"
     "rue) }}|{{ 'hello world'|truncate(9) }}|{{ 'hello'|truncate(5,False,'..',0) }}",
     "hello...|hello wo...|hello world|hello"},
    {"{{ 'a b&c/é'|urlencode }}{{ {'a':1,'b c':'d&'}|urlencode }}", "a%20b%26c/%C3%A9a=1&b+c=d%26"},
    {"{{ 'hi there you'|wordcount }}", "3"},
    {"{{ 1000000|filesizeformat }}{{ 1|filesizeformat }}{{ 0|filesizeformat }}{{ 1048"
     "576|filesizeformat(true) }}",
     "1.0 MB1 Byte0 Bytes1.0 MiB"},
    {"{{ 4 is divisibleby 2 }}{{ 'upper' is filter }}{{ 'odd' is test }}{{ 'AB' is up"
     "per }}{{ 'ab' is lower }}{{ range is callable }}{{ none is sameas none }}{{ 'x'"
     " is escaped }}",
     "TrueTrueTrueTrueTrueTrueTrueFalse"},
    {"{{ 'aXbXc'.partition('X') }}{{ 'aXbXc'.rpartition('X') }}{{ 'a'.zfill(3) }}{{ '"
     "-1'.zfill(4) }}{{ 'ab'.center(5,'*') }}{{ 'ab'.ljust(4)}}|{{ 'ab'.rjust(4,'.') "
     "}}{{ 'abab'.count('ab') }}{{ 'abab'.rfind('b') }}{{ 'abab'.index('b') }}{{ 'pre"
     "fix'.removeprefix('pre') }}{{ 'a.b'.removesuffix('.b') }}{{ 'aB'.swapcase() }}{"
     "{ 'a\tb'.expandtabs(4) }}",
     "('a', 'X', 'bXc')('aXb', 'X', 'c')00a-001**ab*ab  |..ab231fixaAba   b"},
    {"{{ '{:>5}|{:.2f}|{:d}|{!r}|{:05d}|{:,}'.format('a',1.5,3,'q',42,1234567) }}",
     "    a|1.50|3|'q'|00042|1,234,567"},
    {"{{ '{0}{1}{0}'.format('a','b') }}", "aba"},
    {"{{ [1,2,1].count(1) }}{{ [1,2].index(2) }}{{ (1,2).index(2) }}{{ [1].copy() }}{"
     "{ {'a':1}.copy() }}",
     "211[1]{'a': 1}"},
    {"{{ 'ab'.isalpha() }}{{ '12'.isdigit() }}{{ '½'.isnumeric() }}{{ ' '.isspace() }"
     "}{{ 'Ab'.istitle() }}{{ 'a_1'.isidentifier() }}{{ 'é'.isascii() }}{{ 'AB'.isupp"
     "er() }}{{''.islower()}}{{ 'a1'.isalnum() }}{{ '٣'.isdecimal() }}",
     "TrueTrueTrueTrueTrueTrueFalseTrueFalseTrueTrue"},
    {"{{ (3).bit_length() }}{{ 2.0.is_integer() }}", "2True"},
    {"{{ 'straße'.casefold() }}", "strasse"},
    {"{% set x %}a{% endset %}{{ x }}", "a"},
    {"{% for x in [1,[2,[3]]] recursive %}{{ loop(x) if x is iterable else x }}{% end"
     "for %}",
     "123"},
    {"{{ [3,[1]] < [3,[2]] }}", "True"},
    {"{{ 'abc'[::-1] }}{{ 'a,b'.rsplit(',',1) }}{{ 'a b c'.rsplit(None,1) }}{{ ''.rep"
     "lace('','x') }}{{ 'ab'.replace('','-') }}{{ 'ab'|replace('','-',2) }}{{ 'abcabc"
     "'.find('c',3) }}{{ 'abc'.startswith('b',1) }}",
     "cba['a', 'b']['a b', 'c']x-a-b--a-b5True"},
    {"{% for a in range(3) if a %}{{ loop.previtem }}{{ loop.nextitem }}{% endfor %}", "21"},
    {"{{ [1,2,3]|first }}{{ [[1,2],[3]]|sum(start=[]) }}", "1[1, 2, 3]"},
    {"{{ 10|string|int + 1 }}{{ 1_000 }}{{ 0x1F }}{{ 0b11 }}{{ 0o17 }}{{ 1_0.5 }}",
     "1110003131510.5"},
    {"{{ x|default('d') }}{{ foo is defined }}", "dFalse"},
    {"{{ [1,2,3][0:2], }}", "([1, 2],)"},
    {"{{ {1:2}[1] }}", "2"},
    {"{{ f(*[1], **{'a':2}) if f is defined else dict(**{'a':2}) }}", "{'a': 2}"},
    {"{{ '%5s|%-5s|%05d|%+d|% d|%.3s|%#x|%e|%g|%i' % ('a','b',42,3,4,'abcdef',255,123"
     "45.678,0.0001,7.9) }}",
     "    a|b    |00042|+3| 4|abc|0xff|1.234568e+04|0.0001|7"},
    {"{{ '%s' % 'é' }}{{ '100%%' % () }}", "é100%"},
    {"{{ \"{:^7}|{:*<5}|{:+}|{:x}|{:#b}|{:e}|{:%}|{:.1%}|{:g}|{:10.3f}|{:,.2f}\".form"
     "at('ab','c',5,255,5,12345.678,0.25,0.123,1e10,3.14159,1234567.891) }}",
     "  ab   |c****|+5|ff|0b101|1.234568e+04|25.000000%|12.3%|1e+10|     3.142|1,234,"
     "567.89"},
    {"{{ \"{{}}{}\".format(1) }}", "{}1"},
    {"{{ [1,2,3]|sum }}{{ ['a','b']|sum(start='') if false else '' }}{{ [0.1,0.2]|sum"
     " }}",
     "60.30000000000000004"},
    {"{{ ['b','A','c']|max }}{{ ['b','A','c']|min(true) }}{{ [{'x':3},{'x':1}]|min(at"
     "tribute='x') }}",
     "cA{'x': 1}"},
    {"{{ [3,1,2]|batch(2)|list }}{{ []|batch(3)|list }}{{ 'abcd'|batch(3,'-')|list }}",
     "[[3, 1], [2]][][['a', 'b', 'c'], ['d', '-', '-']]"},
    {"{{ 'foo bar baz'|truncate(5,true,'') }}|{{ 'foo bar baz qux'|truncate(8,false,'"
     "..',0) }}",
     "foo b|foo.."},
    {"{{ '-42'|int }}{{ '+7'|int }}{{ '12.9'|int }}{{ 'abc'|int(5) }}{{ '0b11'|int(0,"
     "2) }}{{ '1__0'|int }}{{ '_1'|int }}{{ '0x_f'|int(0,16) }}{{ none|int(3) }}{{ '1"
     "e3'|int }}{{ '1e400'|float }}{{ 'nan'|float }}{{ '-inf'|float }}{{ true|int }}{"
     "{ ''|int }}",
     "-4271253001531000infnan-inf10"},
    {"{{ 'ab cd'.title() }}{{ 'ﬁx'.title() }}{{ 'ᾳ'.capitalize() }}{{ 'ΐ'.capitalize("
     ") }}{{ 'ᾲ'.title() }}{{ 'ŉ'.upper() }}{{ 'ǰ'.capitalize() }}{{ 'ЖЗ'.capitalize("
     ") }}",
     "Ab CdFixᾼΪ́Ὰ\u0345ʼNJ̌Жз"},
    {"{{ 'a,b,c'.rsplit(',', 1) }}{{ ' a  b '.rsplit() }}{{ 'a b c d'.rsplit(None, 2)"
     " }}{{ ' a b '.split(None,1) }}{{ 'a'.rsplit(None,0) }}",
     "['a,b', 'c']['a', 'b']['a b', 'c', 'd']['a', 'b ']['a']"},
    {"{{ 'abcabc'.rfind('c', 0, 4) }}{{ 'abc'.find('z') }}{{ 'éabc'.find('c') }}{{ 'a"
     "aa'.count('a', 1) }}{{ 'aaa'.count('') }}{{ ''.count('') }}{{ 'abc'.endswith(('"
     "x','c')) }}{{ 'abc'.startswith('c', -1) }}",
     "2-13241TrueTrue"},
    {"{{ 'abc'.replace('', '-', 2) }}{{ 'abc'.replace('b', '') }}{{ ''.replace('', 'x"
     "') }}{{ 'aXa'.replace('a','b',1) }}",
     "-a-bcacxbXa"},
    {"{{ 'a.b'.partition('|') }}{{ 'a.b'.rpartition('|') }}{{ 'x'.join(['a','b']) }}{"
     "{ 'abc'.center(6,'-') }}{{ 'abcd'.center(7,'-') }}{{ 'ab'.center(1) }}",
     "('a.b', '', '')('', '', 'a.b')axb-abc----abcd-ab"},
    {"{% for a in [1,1,2,2,1] %}{% if loop.changed(a) %}{{ a }}{% endif %}{% endfor %"
     "}",
     "121"},
    {"{% for x in [] recursive %}{% else %}none{% endfor %}", "none"},
    {"{% for i in [{'n':1,'c':[{'n':2,'c':[]}]}] recursive %}{{ loop.depth }}{{ i.n }"
     "}{{ loop(i.c) }}{% endfor %}",
     "1122"},
    {"{% macro a(x) %}<{{ x }}{{ caller() if caller else '' }}>{% endmacro %}{{ a(1) "
     "}}{% call a(2) %}c{% endcall %}",
     "<1><2c>"},
    {"{% macro a() %}{{ kwargs }}{% endmacro %}{{ a(x=1, **{'y':2}) }}", "{'x': 1, 'y': 2}"},
    {"{% set a = [1,2] %}{% with b = a|length %}{{ b }}{% endwith %}{% with %}w{% end"
     "with %}",
     "2w"},
    {"{% if true %}  {% raw %}  {{ x }}  {% endraw %}  {% endif %}|", "    {{ x }}    |"},
    {"{% raw -%}   a {%- endraw %}b", "ab"},
    {"  {% raw %}x{% endraw %}  ", "x  "},
    {"{{ dict([['a',1]], b=2).items()|list }}{{ dict().get('x', 3) }}", "[('a', 1), ('b', 2)]3"},
    {"{% set ns = namespace({'a': 1}, b=2) %}{{ ns.a }}{{ ns.b }}{% set ns.a = 5 %}{{"
     " ns.a }}",
     "125"},
    {"{{ 2 ** 0.5 }}{{ 4 ** -1 }}{{ (-8) % 3 }}{{ 7.5 // 2 }}{{ -7 // 2 }}{{ 10 % 3.5"
     " }}",
     "1.41421356237309510.2513.0-43.0"},
    {"{{ 'abc' is string }}{{ 1 is divisibleby(1) }}{{ 'x' is sameas 'x' }}{{ {} is m"
     "apping }}{{ foo is undefined }}{{ 'nofilter' is filter }}{{ 'A1' is upper }}{{ "
     "'1' is upper }}",
     "TrueTrueTrueTrueTrueFalseTrueFalse"},
    {"{{ [1,2,3]|slice(2)|list }}{{ 'ab'|list }}{{ {'b':1,'a':[1]}|dictsort }}{{ ['a'"
     ",'b']|map('upper')|join }}",
     "[[1, 2], [3]]['a', 'b'][('a', [1]), ('b', 1)]AB"},
    {"{{ [{'g':'b','v':1},{'g':'A','v':2},{'g':'B','v':3}]|groupby('g')|map('first')|"
     "list }}",
     "['A', 'b']"},
    {"{% for g in [{'g':'b','v':1},{'g':'A','v':2}]|groupby('g') %}{{ g[0] }}{{ g[1]|"
     "length }}{% endfor %}",
     "A1b1"},
    {"{{ \"it's\"|e }}{{ 'a b'|urlencode }}{{ '~_-.'|urlencode }}{{ 5|urlencode }}",
     "it&#39;sa%20b~_-.5"},
    {"{{ \"x y_z 1é\"|wordcount }}{{ 'İ'|lower|length }}{{ 999|filesizeformat }}{{ 15"
     "00|filesizeformat }}{{ 123456789|filesizeformat }}",
     "32999 Bytes1.5 kB123.5 MB"},
    {"{% for k, v in {'a':1}.items() %}{{ k }}{{ v }}{% endfor %}{% for a in 'ab' %}{"
     "{ loop.cycle(1,2) }}{{ loop.last }}{% endfor %}",
     "a11False2True"},
    {"{{ true + 1 }}{{ 1.0 }}{{ 1e16 }}{{ 1.5e-7 }}{{ 100000000000000000000.0 }}{{ 1_"
     "000.5 }}{{ 0xff + 0b1 }}",
     "21.01e+161.5e-071e+201000.5256"},
    {"{{ x|default(1)|abs }}{{ -5|abs }}{{ (-5)|abs }}{{ '%s' % none }}{{ '%d' % true"
     " }}",
     "155None1"},
    {"{{ 'a\\tbc'.expandtabs() }}|{{ 'A'.isupper() }}{{ '1'.isupper() }}{{ 'A b'.isti"
     "tle() }}{{ 'AB'.istitle() }}{{ ''.isascii() }}{{ '²'.isdigit() }}{{ '²'.isdecim"
     "al() }}{{ 'ａ'.isalpha() }}{{ '\\n'.isprintable() }}{{ '9a'.isidentifier() }}",
     "a       bc|TrueFalseFalseFalseTrueTrueFalseTrueFalseFalse"},
    {"{{ 'abc'.zfill(5) }}{{ '+1'.zfill(4) }}{{ ''.zfill(2) }}{{ 'Hi'.swapcase() }}{{"
     " 'x'.ljust(3) }}|{{ 'x'.rjust(3,'é') }}",
     "00abc+00100hIx  |ééx"},
    {"{{ [1,[2,3]] == [1,[2,3]] }}{{ [1,2] < [1,3] }}{{ (1,) < (1,2) }}{{ [[2,1],[1,2"
     "]]|sort }}",
     "TrueTrueTrue[[1, 2], [2, 1]]"},
    {"{{ cycler(1,2).next() }}{% set c = cycler('x','y') %}{{ c.next() }}{{ c.current"
     " }}{{ c.next() }}{{ c.next() }}",
     "1xyyx"},
    {"{{ foo.bar if foo else 'no' }}{{ 'a' ~ 1 ~ none }}{{ loop is defined }}", "noa1NoneFalse"},
    {"{{ \"\\101\\60\\7\"|length }}{{ 'a' 'b' \"c\" }}", "3abc"},
};

}  // namespace

TEST(JinjaBuiltIns, GiveWhatJinjaGives) {
  for (const auto& [source, want] : kBuiltIns) {
    std::string got;
    ASSERT_NO_THROW(got = built_in(source)) << source;
    EXPECT_EQ(got, want) << source;
  }
}

TEST(JinjaBuiltIns, AnUnknownFilterOrTestInABranchFailsWhenItIsReached) {
  const auto refuses = [](const std::string& source, const std::string& says) {
    EXPECT_THAT([&] { built_in(source); }, testing::ThrowsMessage<UsageError>(HasSubstr(says)))
        << source;
  };
  EXPECT_EQ(built_in("{% if false %}{{ 1|foo }}{% endif %}a"), "a");
  EXPECT_EQ(built_in("{% if false %}{{ 1 is foo }}{% endif %}a"), "a");
  EXPECT_EQ(built_in("{{ (1|foo) if false else 2 }}"), "2");
  EXPECT_EQ(built_in("{{ ''.foo() if false else 3 }}"), "3");
  refuses("{% if true %}{{ 1|foo }}{% endif %}", "T:1:19: the filter 'foo' is not supported");
  refuses("{% if true %}{{ 1 is foo }}{% endif %}", "the test 'foo' is not supported");
  refuses("{{ ''.foo() }}", "a str has no attribute 'foo'");
  EXPECT_THAT([&] { jinja::parse("{% for x in [] %}{{ x|foo }}{% endfor %}", "T"); },
              testing::ThrowsMessage<UsageError>(HasSubstr("T:1:23: the filter 'foo'")))
      << "Jinja refuses the template, too";
  for (const char* filter : {"pprint", "random", "urlize", "wordwrap", "xmlattr"})
    refuses(std::string("{{ 'a'|") + filter + " }}", "is not supported");
}

TEST(JinjaBuiltIns, TheTimeHasNoZoneAndANamespaceNoHiddenMembers) {
  EXPECT_EQ(built_in("{{ strftime_now('[%Z%z] %Y') }}"), "[] 2026");
  for (const char* source :
       {"{{ namespace(_a=1) }}", "{% set n = namespace() %}{% set n._a = 1 %}"})
    EXPECT_THAT([&] { built_in(source); },
                testing::ThrowsMessage<UsageError>(HasSubstr("begins with _; rename it")));
}
