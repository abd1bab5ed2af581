#include "axonn/data/grammar/text_form.h"

#include <malloc.h>
#include <nlohmann/json.hpp>

#include "axonn/data/grammar/gbnf.h"
#include "axonn/data/grammar/json_schema.h"
#include "axonn/data/grammar/regex.h"
#include "axonn/foundation/base/check.h"

namespace axonn {

namespace {

using FormJson = nlohmann::ordered_json;

ExpressionPtr expression_of(const FormJson& form, Rules& rules) {
  const auto parts = [&](const FormJson& forms) {
    std::vector<ExpressionPtr> all;
    for (const FormJson& each : forms) all.push_back(expression_of(each, rules));
    return all;
  };
  const std::string key = form.begin().key();
  const FormJson& value = form.begin().value();
  if (key == "text") return literal(value.get<std::string>());
  if (key == "texts") return any_text(value.get<std::vector<std::string>>());
  if (key == "regex") return regex(value.get<std::string>(), rules);
  if (key == "grammar") return gbnf(value.get<std::string>(), rules);
  if (key == "schema") return json_schema(value.dump(), rules);
  if (key == "until") return text_until(value.get<std::string>(), rules);
  if (key == "space")
    return repeated(byte_of({{'\t', '\n'}, {'\r', '\r'}, {' ', ' '}}), 0, value.get<int>());
  if (key == "sequence") return in_order(parts(value));
  if (key == "either") return either(parts(value));
  AXONN_CHECK(key == "repeat", "compile_form: unknown form ", key);
  const ExpressionPtr one = rules.add(expression_of(value, rules));
  return in_order({one, repeated(in_order({literal(form.at("between").get<std::string>()), one}),
                                 form.at("least").get<int>() - 1, form.at("most").get<int>() - 1)});
}

/// Gives the memory of a form back to the system, of which the many small blocks would else stay
/// with the thread that compiled it.
struct TrimAfter {
  TrimAfter() = default;
  TrimAfter(const TrimAfter&) = delete;
  TrimAfter& operator=(const TrimAfter&) = delete;
  ~TrimAfter() { malloc_trim(0); }
};

}  // namespace

Automaton compile_form(const std::string& form) {
  const TrimAfter trim;
  if (form.size() > kLongestForm)
    refuse("it has ", form.size(), " bytes, more than ", kLongestForm);
  Rules rules;
  const std::size_t root = rules.declare();
  rules.set(root, expression_of(FormJson::parse(form), rules));
  Automaton automaton(rules, root);
  if (automaton.start().ended()) refuse("only the empty text fits");
  return automaton;
}

void check_form(const std::string& form) {
  const TrimAfter trim;
  compile_form(form);
}

}  // namespace axonn
