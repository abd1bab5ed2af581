#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "axonn/data/text/jinja/jinja_filters.h"
#include "axonn/data/text/jinja/jinja_lexer.h"

namespace axonn::jinja {

struct Expression;
using ExpressionPtr = std::unique_ptr<const Expression>;

/// The arguments of a call as they are written.
struct CallArguments {
  std::vector<ExpressionPtr> positional;
  std::vector<std::pair<std::string, ExpressionPtr>> named;
  ExpressionPtr rest, named_rest;  ///< *rest and **named_rest, or nullptr
};

struct Expression {
  enum class Kind {
    constant,
    name,
    list,
    tuple,
    dict,      ///< parts: key, value, key, value, ...
    member,    ///< parts[0].text
    item,      ///< parts[0][parts[1]]
    slice,     ///< parts[0][parts[1]:parts[2]:parts[3]]; absent ones are nullptr
    call,      ///< parts[0](arguments)
    filter,    ///< parts[0] | text(arguments); parts[0] is nullptr in a filter block
    test,      ///< parts[0] is text(arguments)
    negation,  ///< not parts[0]
    minus,
    plus,
    arithmetic,   ///< parts[0] text parts[1]
    join,         ///< parts[0] ~ parts[1] ~ ...
    comparison,   ///< parts[0] signs[0] parts[1] signs[1] ...
    conjunction,  ///< parts[0] and parts[1]
    disjunction,
    choice,  ///< parts[0] if parts[1] else parts[2]; parts[2] may be nullptr
  };
  Kind kind;
  Location at;
  std::vector<ExpressionPtr> parts = {};
  Value value = {};       ///< of a constant
  std::string text = {};  ///< of a member, filter, test or operator; of a name for messages
  int symbol = -1;        ///< of a name
  std::vector<std::string> signs = {};
  CallArguments arguments = {};
  const Function* filter_function = nullptr;
  const Test* called_test = nullptr;
};

/// The target of a set or a for: a name, the member of a namespace, or several of them.
struct Target {
  Location at = {};
  int symbol = -1;
  std::string member = {};  ///< empty: the name itself
  std::vector<Target> parts = {};
};

struct Statement;
using Body = std::vector<Statement>;

/// Of a macro: its symbol and its name.
using Parameter = std::pair<int, std::string>;

/// The names that a macro uses, and then takes beside its parameters.
struct MacroNames {
  bool varargs = false, kwargs = false, caller = false;
};

struct Statement {
  enum class Kind {
    text,
    print,
    choose,  ///< if values[i]: bodies[i], ...; the last body has no condition if it is `else`
    loop,    ///< for target in values[0] [if values[1]]: bodies[0] else bodies[1]
    set,
    set_body,  ///< {% set x | values[0] %}...{% endset %}
    macro,
    filter,  ///< {% filter values[0] %}
    generation,
    with,        ///< targets target.parts = values: bodies[0]
    call_block,  ///< {% call(parameters) values[0] %}: bodies[0] is the macro `caller`
    break_loop,
    continue_loop,
  };
  Kind kind;
  Location at;
  TextPtr text = {};
  std::vector<ExpressionPtr> values = {};
  Target target = {};  ///< of loop and set
  std::vector<Body> bodies = {};
  bool recursive = false;  ///< of a loop
  // Of a macro:
  int symbol = -1;
  std::string name = {};
  std::vector<Parameter> parameters = {};
  std::vector<ExpressionPtr> defaults = {};  ///< of the last parameters
  MacroNames takes = {};
};

/// A parsed template.
struct Program {
  std::string file;
  Body body;
  std::vector<std::string> symbols;   ///< the names that it uses
  std::vector<std::string> literals;  ///< its string literals, sorted
  bool marks_generation = false;      ///< whether it has {% generation %}

  bool uses(std::string_view name) const;
};

}  // namespace axonn::jinja
