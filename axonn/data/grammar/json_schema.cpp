#include "axonn/data/grammar/json_schema.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include "axonn/data/grammar/json_values.h"
#include "axonn/data/grammar/regex.h"
#include "axonn/foundation/base/check.h"
#include "axonn/foundation/base/utf8.h"

namespace axonn {

namespace {

using Schema = nlohmann::ordered_json;

constexpr std::int64_t kMostCount = 8192;
constexpr int kMostReferences = 64;  // within one another
constexpr std::size_t kLongestShown = 80;

constexpr std::string_view kTypes[] = {"object",  "array",   "string", "number",
                                       "integer", "boolean", "null"};

/// The types whose values a keyword is about; "": all; "-": none, it only annotates.
struct Keyword {
  std::string_view name, types;
};
constexpr Keyword kKeywords[] = {
    {"type", ""},
    {"enum", ""},
    {"const", ""},
    {"anyOf", ""},
    {"oneOf", ""},
    {"allOf", ""},
    {"$ref", ""},
    {"properties", "object"},
    {"required", "object"},
    {"additionalProperties", "object"},
    {"items", "array"},
    {"prefixItems", "array"},
    {"minItems", "array"},
    {"maxItems", "array"},
    {"minLength", "string"},
    {"maxLength", "string"},
    {"pattern", "string"},
    {"format", "string"},
    {"minimum", "number integer"},
    {"maximum", "number integer"},
    {"exclusiveMinimum", "number integer"},
    {"exclusiveMaximum", "number integer"},
    {"title", "-"},
    {"description", "-"},
    {"default", "-"},
    {"example", "-"},
    {"examples", "-"},
    {"deprecated", "-"},
    {"readOnly", "-"},
    {"writeOnly", "-"},
    {"$schema", "-"},
    {"$id", "-"},
    {"$comment", "-"},
    {"$defs", "-"},
    {"definitions", "-"},
    {"discriminator", "-"},
};

// Days up to 28 exist in each month.
const std::string kDate = "[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|1[0-9]|2[0-8])",
                  kHours = "([01][0-9]|2[0-3]):[0-5][0-9]",
                  kTime = kHours + ":[0-5][0-9](\\.[0-9]{1,6})?(Z|[+-]" + kHours + ")",
                  kMailWord = "[A-Za-z0-9_+-]{1,32}",
                  kByte = "(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])";

const std::pair<std::string_view, std::string> kFormats[] = {
    {"date", kDate},
    {"time", kTime},
    {"date-time", kDate + "T" + kTime},
    {"uuid", "[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"},
    {"email",
     kMailWord + "(\\." + kMailWord + "){0,3}@[A-Za-z0-9]{1,32}(\\.[A-Za-z0-9]{2,32}){1,3}"},
    {"ipv4", "(" + kByte + "\\.){3}" + kByte},
};

class SchemaCompiler {
 public:
  SchemaCompiler(const Schema& root, Rules& rules) : root_(root), rules_(rules), json_(rules) {}

  ExpressionPtr compile(const Schema& schema, const std::string& location) {
    if (schema == true || (schema.is_object() && schema.empty())) return json_.value;
    if (!schema.is_object()) fault(location, "wanted an object, or true");
    const Keyword* chooser = check_keywords(schema, location);
    if (chooser) {
      const Schema& of = schema[std::string(chooser->name)];
      const std::string there = concat(location, '/', chooser->name);
      if (chooser->name == "$ref") return reference(of, there);
      return choice(of, there, chooser->name == "allOf");
    }
    if (schema.contains("const")) return literals({schema["const"]}, schema, location);
    if (schema.contains("enum")) {
      if (!schema["enum"].is_array()) fault(location, "enum is no list");
      return literals({schema["enum"].begin(), schema["enum"].end()}, schema, location);
    }
    std::vector<ExpressionPtr> parts;
    for (const std::string& type : types_of(schema, location))
      parts.push_back(of_type(type, schema, location));
    return either(std::move(parts));
  }

 private:
  template <typename... Parts>
  [[noreturn]] static void fault(const std::string& location, const Parts&... parts) {
    refuse("the schema at ", printable(location.substr(0, 200)), ": ", parts...);
  }

  /// Refuses unknown keywords, and others beside one that chooses between schemas, which is
  /// returned.
  static const Keyword* check_keywords(const Schema& schema, const std::string& location) {
    const Keyword* chooser = nullptr;
    std::string_view other;
    for (const auto& [key, value] : schema.items()) {
      const auto found = std::ranges::find(kKeywords, key, &Keyword::name);
      if (found == std::end(kKeywords)) {
        if (key.starts_with("x-")) continue;
        fault(location, "the keyword '", printable(key.substr(0, kLongestShown)),
              "' is not supported");
      }
      const bool chooses = key == "anyOf" || key == "oneOf" || key == "allOf" || key == "$ref";
      if (chooses && chooser) fault(location, key, " beside ", chooser->name, " is not supported");
      if (chooses) chooser = &*found;
      if (!chooses && found->types != "-") other = found->name;
    }
    if (chooser && !other.empty())
      fault(location, other, " beside ", chooser->name, " is not supported");
    return chooser;
  }

  /// The types that a schema allows: those it states, or that its keywords are about.
  static std::vector<std::string> types_of(const Schema& schema, const std::string& location) {
    std::vector<std::string> types;
    if (schema.contains("type")) {
      const Schema& type = schema["type"];
      for (const Schema& each : type.is_array() ? type : Schema::array({type})) {
        if (!each.is_string() ||
            std::ranges::find(kTypes, each.get<std::string>()) == std::end(kTypes))
          fault(location, "type: wanted object, array, string, number, integer, boolean or null");
        types.push_back(each);
      }
      if (types.empty()) fault(location, "type: no types");
      return types;
    }
    std::string_view about;
    for (const auto& [key, value] : schema.items())
      if (const auto found = std::ranges::find(kKeywords, key, &Keyword::name);
          found != std::end(kKeywords) && found->types != "-")
        about = found->types;
    about = about.substr(0, about.find(' '));
    // What is about other types does not hold for it: the text may be of that type alone.
    if (about.empty()) return {kTypes[0].data(), "array", "string", "number", "boolean", "null"};
    return {std::string(about)};
  }

  ExpressionPtr of_type(const std::string& type, const Schema& schema,
                        const std::string& location) {
    if (type == "object") return object(schema, location);
    if (type == "array") return array(schema, location);
    if (type == "string") return string(schema, location);
    if (type == "number" || type == "integer") return number(schema, location, type == "integer");
    return type == "boolean" ? json_.boolean : json_.null;
  }

  static bool is_of(const Schema& value, const std::string& type) {
    const bool whole = value.is_number_integer() ||
                       (value.is_number_float() && std::trunc(value.get<double>()) == value);
    return (type == "object" && value.is_object()) || (type == "array" && value.is_array()) ||
           (type == "string" && value.is_string()) || (type == "boolean" && value.is_boolean()) ||
           (type == "null" && value.is_null()) || (type == "number" && value.is_number()) ||
           (type == "integer" && whole);
  }

  static ExpressionPtr literals(const std::vector<Schema>& values, const Schema& schema,
                                const std::string& location) {
    for (const auto& [key, value] : schema.items())
      if (key != "enum" && key != "const" && key != "type")
        if (const auto found = std::ranges::find(kKeywords, key, &Keyword::name);
            found != std::end(kKeywords) && found->types != "-")
          fault(location, key, " beside enum or const is not supported");
    if (schema.contains("enum") && schema.contains("const"))
      fault(location, "enum beside const is not supported");
    std::vector<std::string> texts;
    const auto types =
        schema.contains("type") ? types_of(schema, location) : std::vector<std::string>();
    for (const Schema& value : values)
      if (types.empty() ||
          std::ranges::any_of(types, [&](const std::string& type) { return is_of(value, type); }))
        texts.push_back(value.dump());
    if (texts.empty()) fault(location, "no value is allowed");
    return any_text(std::move(texts));
  }

  ExpressionPtr choice(const Schema& of, const std::string& location, bool single) {
    if (!of.is_array() || of.empty()) fault(location, "wanted a list of schemas");
    if (single && of.size() > 1) fault(location, "allOf of several schemas is not supported");
    std::vector<ExpressionPtr> parts;
    for (std::size_t i = 0; i < of.size(); ++i)
      parts.push_back(compile(of[i], concat(location, '/', i)));
    return either(std::move(parts));
  }

  /// A rule for each schema that is referred to, so that schemas may be recursive.
  ExpressionPtr reference(const Schema& to, const std::string& location) {
    if (!to.is_string() || !to.get_ref<const std::string&>().starts_with('#'))
      fault(location, "only references into the schema, which begin with #, are supported");
    const std::string text = to;
    const auto [found, added] = references_.try_emplace(text, 0);
    if (!added) return use_of(found->second);
    const std::size_t rule = found->second = rules_.declare();
    const Schema* schema = nullptr;
    try {
      schema = &root_.at(Schema::json_pointer(text.substr(1)));
    } catch (const nlohmann::json::exception&) {
      fault(location, "there is no ", printable(text.substr(0, kLongestShown)));
    }
    if (++depth_ > kMostReferences)
      fault(location, "references nest deeper than ", kMostReferences);
    rules_.set(rule, compile(*schema, text));
    --depth_;
    return use_of(rule);
  }

  static std::int64_t count(const Schema& schema, const char* key, std::int64_t otherwise,
                            const std::string& location) {
    if (!schema.contains(key)) return otherwise;
    const Schema& value = schema[key];
    if (!value.is_number() || !is_of(value, "integer") || value < 0 || value > kMostCount)
      fault(location, key, ": wanted a whole number from 0 to ", kMostCount);
    return value.get<std::int64_t>();
  }

  static void check_order(const char* least_key, std::int64_t least, std::int64_t most,
                          const std::string& location) {
    if (most != GrammarExpression::kUnbounded && least > most)
      fault(location, least_key, ": it is more than the most");
  }

  ExpressionPtr string(const Schema& schema, const std::string& location) {
    const std::int64_t least = count(schema, "minLength", 0, location),
                       most = count(schema, "maxLength", GrammarExpression::kUnbounded, location);
    const bool bounded = least > 0 || most >= 0;
    const auto quoted = [](ExpressionPtr inner) {
      return in_order({literal("\""), std::move(inner), literal("\"")});
    };
    check_order("minLength", least, most, location);
    if (schema.contains("pattern") + schema.contains("format") + bounded > 1)
      fault(location, "of pattern, format and lengths, one is supported at a time");
    if (bounded) return quoted(repeated(json_.character, least, most));
    if (schema.contains("pattern")) {
      if (!schema["pattern"].is_string()) fault(location, "pattern: wanted a text");
      return quoted(pattern(schema["pattern"].get<std::string>(), true, location));
    }
    if (!schema.contains("format")) return json_.string;
    for (const auto& [name, of] : kFormats)
      if (schema["format"] == name) return quoted(pattern(of, false, location));
    fault(location, "format: supported are date, time, date-time, uuid, email and ipv4");
  }

  ExpressionPtr pattern(std::string_view text, bool searches, const std::string& location) {
    try {
      return regex(text, rules_, {.searches = searches, .write = json_character_of});
    } catch (const UsageError& error) {
      fault(location, "pattern: ", error.what());
    }
  }

  ExpressionPtr number(const Schema& schema, const std::string& location, bool whole) {
    NumberBounds bounds;
    const auto read = [&](const char* key, bool low, bool excluded) {
      if (!schema.contains(key)) return;
      constexpr double kMost = 1e15;
      const Schema& value = schema[key];
      if (!value.is_number() || std::abs(value.get<double>()) > kMost)
        fault(location, key, ": wanted a number from -1e15 to 1e15");
      const double real = value;
      if (!whole && std::trunc(real) != real)
        fault(location, key, ": for numbers with fractions, whole bounds alone are supported");
      auto bound = static_cast<std::int64_t>(low ? std::ceil(real) : std::floor(real));
      if (whole && excluded && static_cast<double>(bound) == real) bound += low ? 1 : -1;
      auto& now = low ? bounds.least : bounds.most;
      bool& open = low ? bounds.above : bounds.below;
      if (now && (low ? *now > bound : *now < bound)) return;
      open = !whole && excluded;
      now = bound;
    };
    read("minimum", true, false);
    read("maximum", false, false);
    read("exclusiveMinimum", true, true);
    read("exclusiveMaximum", false, true);
    if (!bounds.least && !bounds.most) return whole ? json_.whole : json_.number;
    try {
      return whole ? whole_between(bounds) : number_between(bounds);
    } catch (const UsageError& error) {
      fault(location, error.what());
    }
  }

  ExpressionPtr array(const Schema& schema, const std::string& location) {
    const std::int64_t least = count(schema, "minItems", 0, location),
                       most = count(schema, "maxItems", GrammarExpression::kUnbounded, location);
    check_order("minItems", least, most, location);
    const bool closed = schema.contains("items") && schema["items"] == false;
    ExpressionPtr one = json_.value;
    if (schema.contains("items") && !closed)
      one = rules_.add(compile(schema["items"], location + "/items"));
    if (schema.contains("prefixItems")) return tuple(schema, location);
    if (closed && least > 0) fault(location, "minItems: items are false");
    return json_.list('[', one, ']', least, closed ? 0 : most);
  }

  /// A list of exactly the items of prefixItems.
  ExpressionPtr tuple(const Schema& schema, const std::string& location) {
    const Schema& items = schema["prefixItems"];
    if (!items.is_array() || items.empty())
      fault(location, "prefixItems: wanted a list of schemas");
    const auto size = static_cast<std::int64_t>(items.size());
    const std::int64_t least = count(schema, "minItems", size, location),
                       most = count(schema, "maxItems", size, location);
    if (least > size || most < size)
      fault(location, "minItems and maxItems beside prefixItems: its number of items is supported");
    std::vector<ExpressionPtr> parts{literal("[")};
    for (std::size_t i = 0; i < items.size(); ++i) {
      if (i > 0) parts.push_back(literal(","));
      parts.push_back(json_.space);
      parts.push_back(compile(items[i], concat(location, "/prefixItems/", i)));
    }
    parts.push_back(json_.space);
    parts.push_back(literal("]"));
    return in_order(std::move(parts));
  }

  ExpressionPtr object(const Schema& schema, const std::string& location) {
    const Schema none = Schema::object();
    const Schema& properties = schema.contains("properties") ? schema["properties"] : none;
    if (!properties.is_object()) fault(location, "properties: wanted an object");
    std::set<std::string> required;
    if (schema.contains("required")) {
      if (!schema["required"].is_array()) fault(location, "required: wanted a list of names");
      for (const Schema& name : schema["required"]) {
        if (!name.is_string() || !properties.contains(name.get<std::string>()))
          fault(location, "required: ", printable(name.dump().substr(0, kLongestShown)),
                " is not in properties");
        required.insert(name);
      }
    }
    if (!properties.empty()) return members(properties, required, location);
    const bool given = schema.contains("additionalProperties");
    if (given && schema["additionalProperties"] == false)
      return json_.list('{', json_.null, '}', 0, 0);
    if (!given || schema["additionalProperties"] == true) return json_.object;
    return json_.list(
        '{',
        rules_.add(json_.member(json_.string, compile(schema["additionalProperties"],
                                                      location + "/additionalProperties"))),
        '}');
  }

  /// Members in order. A rule for each position says what may follow there.
  ExpressionPtr members(const Schema& properties, const std::set<std::string>& required,
                        const std::string& location) {
    std::vector<ExpressionPtr> ones;
    std::vector<bool> needed;
    for (const auto& [key, schema] : properties.items()) {
      if (schema == false) {
        if (required.contains(key)) fault(location, "a required property is false");
        continue;
      }
      ones.push_back(rules_.add(json_.member(
          literal(Schema(key).dump()), compile(schema, concat(location, "/properties/", key)))));
      needed.push_back(required.contains(key));
    }
    ExpressionPtr rest = literal("");  // after a member
    std::vector<ExpressionPtr> first{
        literal("")};  // choices of the first member and all that follow
    for (std::size_t i = ones.size(); i-- > 0;) {
      const ExpressionPtr with = in_order({ones[i], rest});
      if (needed[i]) first.clear();
      first.push_back(in_order({json_.space, with}));
      const ExpressionPtr next = in_order({literal(","), json_.space, with});
      rest = rules_.add(needed[i] ? next : either({next, rest}));
    }
    return in_order({literal("{"), either(std::move(first)), json_.space, literal("}")});
  }

  const Schema& root_;
  Rules& rules_;
  JsonValues json_;
  std::map<std::string, std::size_t> references_;
  int depth_ = 0;  // of references
};

}  // namespace

ExpressionPtr json_schema(const std::string& schema, Rules& rules) {
  const Schema root = Schema::parse(schema);
  return SchemaCompiler(root, rules).compile(root, "#");
}

}  // namespace axonn
