#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "axonn/base/check.h"

namespace axonn {

/// Parses the text of a JSON file. Memory: a few times the text. Throws UsageError with the file
/// and, for a fault of syntax, the line; also for a key that occurs twice in an object, and for
/// nesting deeper than that of any published file.
nlohmann::json parse_json(std::string_view text, const std::string& file);

/// A value in a JSON file with its place for messages, "FILE: model.unk_token". A missing member is
/// null. Does not own the value. Throws UsageError with that place.
class JsonNode {
 public:
  /// `file` may also be another place at which the value stands.
  JsonNode(const nlohmann::json& value, std::string file)
      : value_(&value), file_(std::move(file)) {}

  const nlohmann::json& value() const { return *value_; }
  bool is_null() const;
  bool is_object() const;

  /// A member of an object. Throws if this is not an object.
  JsonNode operator[](const std::string& key) const;

  /// The elements of an array; empty if it is null.
  std::vector<JsonNode> items() const;

  std::string text() const;
  std::string text_or(const std::string& if_null) const;
  bool flag_or(bool if_null) const;
  std::int64_t number() const;  ///< 0 .. 2^31 - 1

  /// The value in messages: a number or literal as it is written, "a string", "an array"; "nothing"
  /// for a missing member.
  std::string got() const;

  /// "FILE: model.unk_token".
  std::string place() const { return path_.empty() ? file_ : file_ + ": " + path_; }

  /// Throws UsageError with the place and the parts as its message.
  template <typename... Parts>
  [[noreturn]] void reject(const Parts&... parts) const {
    refuse(place(), ": ", parts...);
  }

 private:
  JsonNode(const nlohmann::json* value, std::string file, std::string path)
      : value_(value), file_(std::move(file)), path_(std::move(path)) {}
  void want(bool holds, const char* what) const;

  const nlohmann::json* value_;
  std::string file_, path_;
};

}  // namespace axonn
