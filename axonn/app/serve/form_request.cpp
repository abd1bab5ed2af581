#include "axonn/app/serve/form_request.h"

#include <algorithm>

#include "axonn/data/grammar/text_form.h"
#include "axonn/foundation/base/json_extent.h"
#include "axonn/foundation/base/utf8.h"

namespace axonn {

namespace {

using OrderedJson = nlohmann::ordered_json;

constexpr int kMostCalls = 16;

OrderedJson form_of_schema(const OrderedJson& schema) { return {{"schema", schema}}; }
OrderedJson any_object() { return form_of_schema({{"type", "object"}}); }
OrderedJson form_of_text(const std::string& text) { return {{"text", text}}; }

/// A schema, or the text of one.
OrderedJson schema_in(const std::string& key, const OrderedJson& value) {
  OrderedJson schema = value;
  if (value.is_string()) {
    const std::string text = value;
    if (text.size() > kLongestForm || json_extent(text).depth > RequestBody::kMostDepth)
      reject_key(key, "a schema as a text may have ", kLongestForm, " bytes and nest ",
                 RequestBody::kMostDepth, " deep");
    schema = OrderedJson::parse(text, nullptr, false);
  }
  if (!schema.is_object() && !schema.is_boolean()) reject_key(key, "wanted a schema, an object");
  return form_of_schema(schema);
}

OrderedJson choices_in(const std::string& key, const OrderedJson& value) {
  const auto wanted = [](const OrderedJson& each) {
    return each.is_string() && !each.get_ref<const std::string&>().empty();
  };
  if (!value.is_array() || value.empty() || !std::ranges::all_of(value, wanted))
    reject_key(key, "wanted a list of texts, none empty");
  return {{"texts", value}};
}

OrderedJson regex_in(const std::string& key, const OrderedJson& value) {
  if (!value.is_string()) reject_key(key, "wanted a regular expression, a text");
  return {{"regex", value}};
}

/// Null for an empty grammar, as llama-server's clients send it.
OrderedJson grammar_in(const std::string& key, const OrderedJson& value) {
  if (!value.is_string()) reject_key(key, "wanted a grammar in GBNF, a text");
  return value == "" ? OrderedJson() : OrderedJson{{"grammar", value}};
}

/// OpenAI's response_format, and llama-server's, which may have the schema beside the type. Null
/// for any text.
OrderedJson response_format(const OrderedJson& value) {
  constexpr const char* kKey = "response_format";
  const auto member = [&](const OrderedJson& of, const char* name) {
    return of.is_object() && of.contains(name) ? of[name] : OrderedJson();
  };
  const OrderedJson type = member(value, "type"), schema = member(value, "schema");
  if (type == "text") return nullptr;
  if (type == "json_object") return schema.is_null() ? any_object() : schema_in(kKey, schema);
  if (type != "json_schema")
    reject_key(kKey, "only the types text, json_object and json_schema are supported");
  const OrderedJson given = member(member(value, "json_schema"), "schema");
  if (given.is_null()) reject_key(kKey, "wanted a schema in json_schema");
  return schema_in(kKey, given);
}

/// vLLM's structured_outputs. Null for any text.
OrderedJson structured_outputs(const OrderedJson& value) {
  constexpr const char* kKey = "structured_outputs";
  if (!value.is_object()) reject_key(kKey, "wanted an object such as {\"json\": {...}}");
  OrderedJson form;
  for (const auto& [name, of] : value.items()) {
    if (of.is_null() || of == false) continue;
    if (!form.is_null())
      reject_key(kKey, "wanted one of json, regex, choice, grammar and json_object");
    if (name == "json")
      form = schema_in(kKey, of);
    else if (name == "regex")
      form = regex_in(kKey, of);
    else if (name == "choice")
      form = choices_in(kKey, of);
    else if (name == "grammar")
      form = grammar_in(kKey, of);
    else if (name == "json_object" && of == true)
      form = any_object();
    else
      reject_key(kKey, "only json, regex, choice, grammar and json_object are supported");
  }
  return form;
}

OrderedJson form_in(const std::string& key, const OrderedJson& value) {
  if (key == "response_format") return response_format(value);
  if (key == "structured_outputs") return structured_outputs(value);
  if (key == "guided_choice") return choices_in(key, value);
  if (key == "guided_regex") return regex_in(key, value);
  if (key == "guided_grammar" || key == "grammar" || key == "ebnf") return grammar_in(key, value);
  return schema_in(key, value);
}

/// A call of a tool, as models write it.
OrderedJson call_form(const std::string& name, const OrderedJson& parameters,
                      AnswerForm::Calls calls, bool arguments_marker) {
  const std::string quoted = OrderedJson(name).dump();
  std::string before = concat("{\"name\": ", quoted, ", \"arguments\": "), after = "}";
  if (calls == AnswerForm::Calls::hermes) {
    before = "<tool_call>\n" + before;
    after += "\n</tool_call>";
  } else if (calls == AnswerForm::Calls::llama) {
    before = concat("{\"name\": ", quoted, ", \"parameters\": ");
  } else if (arguments_marker) {
    before = concat("[TOOL_CALLS]", name, "[ARGS]");
    after = "";
  } else {
    before = "[TOOL_CALLS][" + before;
    after += "]";
  }
  return {{"sequence", OrderedJson::array({form_of_text(before), form_of_schema(parameters),
                                           form_of_text(after)})}};
}

/// The name of the tool that must be called; "" for any.
std::string wanted_name(const OrderedJson& choice) {
  constexpr const char* kKey = "tool_choice";
  if (choice == "required") return "";
  if (!choice.is_object() || choice.value("type", OrderedJson()) != "function")
    reject_key(kKey, "only auto, none, required and a function's name are supported");
  const OrderedJson name =
      choice.value("function", OrderedJson::object()).value("name", OrderedJson());
  if (!name.is_string() || name == "") reject_key(kKey, "wanted the function's name");
  return name;
}

}  // namespace

RequestedForm requested_form(const RequestBody& body, const std::string& text) {
  RequestedForm found;
  OrderedJson request;
  for (const char* key :
       {"response_format", "guided_json", "guided_choice", "guided_regex", "guided_grammar",
        "grammar", "ebnf", "structured_outputs", "json_schema"}) {
    if (!body.has(key)) continue;
    if (request.is_null()) request = OrderedJson::parse(text);
    const OrderedJson form = form_in(key, request[key]);
    if (form.is_null()) continue;
    if (!found.key.empty()) reject_key(key, "not supported beside ", found.key);
    found = {key, form.dump()};
  }
  return found;
}

RequestedForm wanted_calls(const RequestBody& body, const std::string& text,
                           AnswerForm::Calls calls, bool arguments_marker) {
  constexpr const char* kKey = "tool_choice";
  const nlohmann::json& choice = body[kKey];
  if (choice.is_null() || choice == "auto" || choice == "none") return {};
  const OrderedJson request = OrderedJson::parse(text);
  const std::string name = wanted_name(request[kKey]);
  if (!body["tools"].is_array() || body["tools"].empty()) reject_key(kKey, "there are no tools");
  if (calls == AnswerForm::Calls::none)
    reject_key(kKey, "the model's chat template has no calls of tools that are known");
  OrderedJson forms = OrderedJson::array();
  for (const OrderedJson& tool : request["tools"]) {
    const OrderedJson function =
        tool.is_object() ? tool.value("function", OrderedJson::object()) : OrderedJson();
    const OrderedJson its_name =
        function.is_object() ? function.value("name", OrderedJson()) : OrderedJson();
    if (!its_name.is_string()) reject_key("tools", "wanted functions with names");
    if (!name.empty() && its_name != name) continue;
    OrderedJson parameters = function.value("parameters", OrderedJson());
    if (parameters.is_null() || parameters.empty()) parameters = {{"type", "object"}};
    forms.push_back(call_form(its_name, parameters, calls, arguments_marker));
  }
  if (forms.empty()) reject_key(kKey, "there is no tool '", printable(name.substr(0, 80)), '\'');
  const OrderedJson one{{"either", forms}};
  // Llama's format has one call, Mistral's with names one marker for each.
  const bool several =
      name.empty() && body.flag("parallel_tool_calls", true) && calls == AnswerForm::Calls::hermes;
  if (!several) return {kKey, one.dump()};
  return {
      kKey,
      OrderedJson{{"repeat", one}, {"least", 1}, {"most", kMostCalls}, {"between", "\n"}}.dump()};
}

std::string checked_form(const RequestedForm& requested, bool in_thought) {
  constexpr int kMostSpace = 4;
  if (requested.key.empty()) return "";
  std::string form = requested.form;
  if (in_thought)
    form = concat(R"({"sequence":[{"until":"</think>"},{"space":)", kMostSpace, "},", form, "]}");
  try {
    check_form(form);
  } catch (const UsageError& error) {
    throw RequestError(requested.key, error.what());
  }
  return form;
}

}  // namespace axonn
