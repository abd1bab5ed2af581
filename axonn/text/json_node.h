#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "axonn/base/check.h"

namespace axonn {

/// A JSON value. Fractions and negative numbers, which no tokenizer uses, do not keep their value.
struct JsonValue {
  enum class Kind { null, boolean, number, other_number, string, array, object };
  Kind kind = Kind::null;
  std::uint64_t number = 0;  ///< 0 or 1 for a boolean
  std::string text = {};
  std::vector<JsonValue> elements = {};
  std::map<std::string, JsonValue> members = {};
};

/// A value in a JSON file with its place for messages, "FILE: model.unk_token". A missing member is
/// null. Does not own the value. Throws UsageError with that place.
class JsonNode {
 public:
  JsonNode(const JsonValue& value, std::string file) : value_(&value), file_(std::move(file)) {}

  bool is_null() const { return value_->kind == JsonValue::Kind::null; }
  bool is_object() const { return value_->kind == JsonValue::Kind::object; }

  /// A member of an object. Throws if this is not an object.
  JsonNode operator[](const std::string& key) const;

  /// The elements of an array; empty if it is null.
  std::vector<JsonNode> items() const;

  std::string text() const;
  std::string text_or(const std::string& if_null) const;
  bool flag_or(bool if_null) const;
  std::int64_t number() const;  ///< 0 .. 2^31 - 1

  /// "FILE: model.unk_token".
  std::string place() const { return path_.empty() ? file_ : file_ + ": " + path_; }

  /// Throws UsageError with the place and the parts as its message.
  template <typename... Parts>
  [[noreturn]] void reject(const Parts&... parts) const {
    refuse(place(), ": ", parts...);
  }

 private:
  JsonNode(const JsonValue* value, std::string file, std::string path)
      : value_(value), file_(std::move(file)), path_(std::move(path)) {}
  void want(JsonValue::Kind kind) const;

  const JsonValue* value_;
  std::string file_, path_;
};

}  // namespace axonn
