#include "axonn/foundation/base/json_node.h"

#include <algorithm>
#include <limits>
#include <unordered_set>

#include <nlohmann/json.hpp>

#include "axonn/foundation/base/asked_keys.h"
#include "axonn/foundation/base/json_extent.h"
#include "axonn/foundation/base/utf8.h"

namespace axonn {

namespace {

using nlohmann::json;

// Published files nest 7 deep. The limit keeps a damaged file from using memory for each bracket.
constexpr int kMostDepth = 32;

const json kNull;

/// Throws UsageError for a key that its object already has. (A callback of the library's own parser
/// could do that, but then each closing bracket takes time that grows with the elements around it.)
class JsonCheck : public nlohmann::json_sax<json> {
 public:
  explicit JsonCheck(const std::string& file) : file_(file) {}

  bool start_object(std::size_t) override { return open(); }
  bool start_array(std::size_t) override { return open(); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool key(std::string& key) override {
    if (!keys_.back().insert(key).second)
      refuse(file_, ": the key '", printable(key.substr(0, 80)), "' occurs twice in one object");
    return true;
  }

  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(std::int64_t) override { return true; }
  bool number_unsigned(std::uint64_t) override { return true; }
  bool number_float(double, const std::string&) override { return true; }
  bool string(std::string&) override { return true; }
  bool binary(json::binary_t&) override { return true; }
  bool parse_error(std::size_t, const std::string&, const json::exception&) override {
    return false;  // json::parse() reports it
  }

 private:
  bool open() {
    keys_.emplace_back();
    return true;
  }
  bool close() {
    keys_.pop_back();
    return true;
  }

  const std::string& file_;
  std::vector<std::unordered_set<std::string>> keys_;  // of each open bracket
};

json parse_strictly(std::string_view text, const std::string& file) {
  if (json_extent(text).depth > kMostDepth)
    refuse(file, ": brackets nest deeper than ", kMostDepth);
  JsonCheck check(file);
  json::sax_parse(text, &check);
  try {
    return json::parse(text.begin(), text.end());
  } catch (const json::exception& error) {
    const auto* syntax = dynamic_cast<const json::parse_error*>(&error);
    const std::size_t byte = syntax ? syntax->byte : 0;
    const auto line = 1 + std::ranges::count(text.substr(0, byte), '\n');
    refuse(file, ", line ", line, ", byte ", byte, ": this is not JSON (", printable(error.what()),
           "); is the file whole?");
  }
}

const json& json_of(const std::shared_ptr<const void>& value) {
  return *static_cast<const json*>(value.get());
}

}  // namespace

/// The file of the root, or the key or index (then not -1) of another node in its parent.
struct JsonNode::Step {
  std::shared_ptr<const Step> parent;
  std::string key;
  std::int64_t index;

  std::string location() const {
    if (!parent) return key;
    const std::string before = parent->parent ? parent->location() : parent->location() + ": ";
    if (index >= 0) return concat(before, '[', index, ']');
    return concat(before, parent->parent ? "." : "", printable(key.substr(0, 80)));
  }
};

JsonNode JsonNode::parse(std::string_view text, const std::string& file) {
  return {std::make_shared<const json>(parse_strictly(text, file)),
          std::make_shared<const Step>(Step{nullptr, file, -1}), std::make_shared<AskedKeys>()};
}

JsonNode JsonNode::child(const void* value, std::string key, std::int64_t index) const {
  return {std::shared_ptr<const void>(value_, value),
          std::make_shared<const Step>(Step{step_, std::move(key), index}), asked_};
}

std::string JsonNode::location() const { return step_->location(); }

bool JsonNode::is_null() const { return json_of(value_).is_null(); }
bool JsonNode::is_object() const { return json_of(value_).is_object(); }
bool JsonNode::is_array() const { return json_of(value_).is_array(); }
bool JsonNode::is_text() const { return json_of(value_).is_string(); }

std::string JsonNode::got() const {
  if (value_.get() == &kNull) return "nothing";
  if (is_text()) return "a string";
  if (is_array()) return "an array";
  return is_object() ? "an object" : json_of(value_).dump();
}

void JsonNode::want(bool holds, const char* what) const {
  if (!holds) reject("wanted ", what, ", got ", got());
}

JsonNode JsonNode::operator[](const std::string& key) const {
  want(is_object(), "an object");
  const json& object = json_of(value_);
  asked_->open(object);
  const auto found = object.find(key);
  if (found == object.end()) return child(&kNull, key);
  asked_->ask(*found);
  return child(&*found, key);
}

std::vector<std::pair<std::string, JsonNode>> JsonNode::members() const {
  want(is_object(), "an object");
  std::vector<std::pair<std::string, JsonNode>> members;
  for (const auto& [key, value] : json_of(value_).get_ref<const json::object_t&>())
    members.emplace_back(key, child(&value, key));
  return members;
}

void JsonNode::pass_over(std::initializer_list<const char*> keys) const {
  for (const char* key : keys) (*this)[key];
}

std::string JsonNode::unread(std::span<const std::string_view> harmless) const {
  std::string keys;
  for (const AskedKeys::Unread& key : asked_->unread(json_of(value_)))
    if (!says_nothing(*key.value) && std::ranges::find(harmless, key.path) == harmless.end())
      keys += concat(keys.empty() ? "" : ", ", printable(key.path));
  return keys;
}

std::vector<JsonNode> JsonNode::items() const {
  want(is_null() || is_array(), "an array");
  std::vector<JsonNode> nodes;
  for (const json& element : json_of(value_))
    nodes.push_back(child(&element, {}, std::ssize(nodes)));
  return nodes;
}

std::string JsonNode::text() const {
  want(is_text(), "a string");
  return json_of(value_).get<std::string>();
}

std::string JsonNode::text_or(const std::string& if_null) const {
  return is_null() ? if_null : text();
}

bool JsonNode::flag_or(bool if_null) const {
  want(is_null() || json_of(value_).is_boolean(), "true or false");
  return is_null() ? if_null : json_of(value_).get<bool>();
}

std::int64_t JsonNode::number() const {
  constexpr std::uint64_t kMost = std::numeric_limits<std::int32_t>::max();
  const json& value = json_of(value_);
  want(value.is_number_unsigned() && value.get<std::uint64_t>() <= kMost,
       "a number from 0 to 2147483647");
  return value.get<std::int64_t>();
}

double JsonNode::real() const {
  want(json_of(value_).is_number(), "a number");
  return json_of(value_).get<double>();
}

}  // namespace axonn
