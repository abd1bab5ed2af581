#include "axonn/text/json_node.h"

#include <array>
#include <limits>

#include "axonn/base/utf8.h"

namespace axonn {

namespace {

const JsonValue kNull;

// In the order of JsonValue::Kind.
constexpr std::array kNames{"null",     "true or false", "a number from 0 to 2147483647",
                            "a number", "a string",      "an array",
                            "an object"};

const char* name_of(JsonValue::Kind kind) { return kNames[static_cast<std::size_t>(kind)]; }

}  // namespace

void JsonNode::want(JsonValue::Kind kind) const {
  if (value_->kind != kind) reject("wanted ", name_of(kind), ", got ", name_of(value_->kind));
}

JsonNode JsonNode::operator[](const std::string& key) const {
  want(JsonValue::Kind::object);
  const auto found = value_->members.find(key);
  const std::string shown = printable(key);
  return {found == value_->members.end() ? &kNull : &found->second, file_,
          path_.empty() ? shown : path_ + '.' + shown};
}

std::vector<JsonNode> JsonNode::items() const {
  std::vector<JsonNode> nodes;
  if (is_null()) return nodes;
  want(JsonValue::Kind::array);
  for (std::size_t i = 0; i < value_->elements.size(); ++i)
    nodes.push_back({&value_->elements[i], file_, concat(path_, '[', i, ']')});
  return nodes;
}

std::string JsonNode::text() const {
  want(JsonValue::Kind::string);
  return value_->text;
}

std::string JsonNode::text_or(const std::string& if_null) const {
  return is_null() ? if_null : text();
}

bool JsonNode::flag_or(bool if_null) const {
  if (is_null()) return if_null;
  want(JsonValue::Kind::boolean);
  return value_->number != 0;
}

std::int64_t JsonNode::number() const {
  want(JsonValue::Kind::number);
  if (value_->number > std::numeric_limits<std::int32_t>::max())
    reject("wanted ", name_of(JsonValue::Kind::number), ", got ", value_->number);
  return static_cast<std::int64_t>(value_->number);
}

}  // namespace axonn
