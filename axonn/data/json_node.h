#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "axonn/base/check.h"

namespace axonn {

/// A JSON value, without the values of fractions and negative numbers, which no tokenizer has.
struct JsonValue {
  enum class Kind { null, boolean, number, other_number, string, array, object };
  Kind kind = Kind::null;
  std::uint64_t number = 0;  ///< of a boolean 0 or 1
  std::string text = {};
  std::vector<JsonValue> elements = {};
  std::map<std::string, JsonValue> members = {};
};

/// A value in a JSON file that knows where it stands, for messages: "FILE: model.unk_token". What
/// is not there is null. Does not own the value. Errors: UsageError, with that place.
class JsonNode {
 public:
  JsonNode(const JsonValue& value, std::string file) : value_(&value), file_(std::move(file)) {}

  bool is_null() const { return value_->kind == JsonValue::Kind::null; }
  bool is_object() const { return value_->kind == JsonValue::Kind::object; }

  /// The member of an object. Errors: this is no object.
  JsonNode operator[](const std::string& key) const;

  /// The elements of an array; none if it is null.
  std::vector<JsonNode> items() const;

  std::string text() const;
  std::string text_or(const std::string& if_null) const;
  bool flag_or(bool if_null) const;
  std::int64_t number() const;  ///< 0 .. 2^31 - 1

  /// "FILE: model.unk_token".
  std::string place() const { return path_.empty() ? file_ : file_ + ": " + path_; }

  /// Throws UsageError: the place and the parts.
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
