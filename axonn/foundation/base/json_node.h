#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "axonn/foundation/base/check.h"

namespace axonn {

class AskedKeys;

/// A value in a JSON file with its location for messages, "FILE: model.unk_token". A missing member
/// is null. Cheap to copy; keeps the values of the whole file alive. It remembers which members
/// were looked up, so that none is passed over unnoticed. Throws UsageError with its location.
class JsonNode {
 public:
  /// Parses the text of a file. Memory: a few times the text. Throws UsageError with the file and,
  /// for a fault of syntax, the line; also for a key that occurs twice in an object, and for
  /// nesting deeper than that of any published file.
  static JsonNode parse(std::string_view text, const std::string& file);

  bool is_null() const;
  bool is_object() const;
  bool is_array() const;
  bool is_text() const;

  /// A member of an object. Throws if this is not an object.
  JsonNode operator[](const std::string& key) const;
  /// All members of an object, sorted; they do not count as looked up. Throws if this is not an
  /// object.
  std::vector<std::pair<std::string, JsonNode>> members() const;

  /// Notes that these members of an object are rightly not read.
  void pass_over(std::initializer_list<const char*> keys) const;
  /// The members that nobody has looked up, of this object and of those in it of which others were:
  /// "model.limit, decoder.steps[0].x". Leaves out those that are null, false or empty, and those
  /// among `harmless`. Empty if there are none.
  std::string unread(std::span<const std::string_view> harmless = {}) const;

  /// The elements of an array; empty if it is null.
  std::vector<JsonNode> items() const;

  std::string text() const;
  std::string text_or(const std::string& if_null) const;
  bool flag_or(bool if_null) const;
  std::int64_t number() const;  ///< 0 .. 2^31 - 1
  double real() const;          ///< any number

  /// The value in messages: a number or literal as it is written, "a string", "an array"; "nothing"
  /// for a missing member.
  std::string got() const;

  /// "FILE: model.unk_token".
  std::string location() const;

  /// Throws UsageError with the location and the parts as its message.
  template <typename... Parts>
  [[noreturn]] void reject(const Parts&... parts) const {
    refuse(location(), ": ", parts...);
  }

 private:
  struct Step;
  JsonNode(std::shared_ptr<const void> value, std::shared_ptr<const Step> step,
           std::shared_ptr<AskedKeys> asked)
      : value_(std::move(value)), step_(std::move(step)), asked_(std::move(asked)) {}
  JsonNode child(const void* value, std::string key, std::int64_t index = -1) const;
  void want(bool holds, const char* what) const;

  std::shared_ptr<const void> value_;  // the library's type, in memory that the file's nodes share
  std::shared_ptr<const Step> step_;   // from the node that this one is in
  std::shared_ptr<AskedKeys> asked_;   // of the file
};

}  // namespace axonn
