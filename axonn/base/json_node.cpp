#include "axonn/base/json_node.h"

#include <algorithm>
#include <limits>
#include <unordered_set>

#include <nlohmann/json.hpp>

#include "axonn/base/utf8.h"

namespace axonn {

namespace {

using nlohmann::json;

// Published files nest 7 deep. The limit keeps a damaged file from using memory for each bracket.
constexpr int kMostDepth = 32;

const json kNull;

using Event = json::parse_event_t;

/// Throws UsageError with the first key of the text that its object already has.
void refuse_repeated_key(std::string_view text, const std::string& file) {
  std::vector<std::unordered_set<std::string>> keys;  // of each open object
  const auto check = [&](int, Event event, json& parsed) {
    if (event == Event::object_start) keys.emplace_back();
    if (event == Event::object_end) keys.pop_back();
    if (event != Event::key || keys.back().insert(parsed.get<std::string>()).second) return true;
    refuse(file, ": the key '", printable(parsed.get<std::string>().substr(0, 80)),
           "' occurs twice in one object");
  };
  [[maybe_unused]] const json read = json::parse(text, check, /*allow_exceptions=*/false);
}

}  // namespace

json parse_json(std::string_view text, const std::string& file) {
  // Counting an object's keys takes half the time of comparing them.
  std::vector<std::size_t> keys;  // of each open object
  const auto check = [&](int depth, Event event, json& parsed) {
    const bool opens = event == Event::object_start || event == Event::array_start;
    if (opens && depth == kMostDepth) refuse(file, ": brackets nest deeper than ", kMostDepth);
    if (event == Event::object_start) keys.push_back(0);
    if (event == Event::key) ++keys.back();
    if (event == Event::object_end) {
      if (keys.back() > parsed.size()) refuse_repeated_key(text, file);
      keys.pop_back();
    }
    return true;
  };
  try {
    return json::parse(text.begin(), text.end(), check);
  } catch (const json::exception& error) {
    const auto* syntax = dynamic_cast<const json::parse_error*>(&error);
    const std::size_t byte = syntax ? syntax->byte : 0;
    const auto line = 1 + std::ranges::count(text.substr(0, byte), '\n');
    refuse(file, ", line ", line, ", byte ", byte, ": this is not JSON (", printable(error.what()),
           "); is the file whole?");
  }
}

bool JsonNode::is_null() const { return value_->is_null(); }
bool JsonNode::is_object() const { return value_->is_object(); }

std::string JsonNode::got() const {
  if (value_ == &kNull) return "nothing";
  if (value_->is_string()) return "a string";
  if (value_->is_structured()) return value_->is_array() ? "an array" : "an object";
  return value_->dump();
}

void JsonNode::want(bool holds, const char* what) const {
  if (!holds) reject("wanted ", what, ", got ", got());
}

JsonNode JsonNode::operator[](const std::string& key) const {
  want(is_object(), "an object");
  const auto found = value_->find(key);
  const std::string shown = printable(key);
  return {found == value_->end() ? &kNull : &*found, file_,
          path_.empty() ? shown : path_ + '.' + shown};
}

std::vector<JsonNode> JsonNode::items() const {
  std::vector<JsonNode> nodes;
  if (is_null()) return nodes;
  want(value_->is_array(), "an array");
  for (const json& element : *value_)
    nodes.push_back({&element, file_, concat(path_, '[', nodes.size(), ']')});
  return nodes;
}

std::string JsonNode::text() const {
  want(value_->is_string(), "a string");
  return value_->get<std::string>();
}

std::string JsonNode::text_or(const std::string& if_null) const {
  return is_null() ? if_null : text();
}

bool JsonNode::flag_or(bool if_null) const {
  want(is_null() || value_->is_boolean(), "true or false");
  return is_null() ? if_null : value_->get<bool>();
}

std::int64_t JsonNode::number() const {
  constexpr std::uint64_t kMost = std::numeric_limits<std::int32_t>::max();
  want(value_->is_number_unsigned() && value_->get<std::uint64_t>() <= kMost,
       "a number from 0 to 2147483647");
  return value_->get<std::int64_t>();
}

}  // namespace axonn
