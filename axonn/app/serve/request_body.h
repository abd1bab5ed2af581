#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "axonn/app/serve/http.h"
#include "axonn/foundation/base/check.h"

namespace axonn {

/// Refuses a request because of a key.
template <typename... Parts>
[[noreturn]] void reject_key(const std::string& key, const Parts&... parts) {
  throw RequestError(key, concat(parts...));
}

/// A whole number, which some clients write as 1.0; none for another value.
std::optional<std::int64_t> whole_number(const nlohmann::json& value);

/// The text of JSON. Bytes that are not UTF-8, which a model may write, become U+FFFD.
std::string dumped(const nlohmann::ordered_json& value);

/// The member of an object; null if it is missing or `of` is no object.
nlohmann::ordered_json member_of(const nlohmann::ordered_json& of, const char* name);

/// A value in an error.
std::string shown_value(const nlohmann::json& value);

/// The members of a request, with their names in errors. Its functions throw RequestError.
class RequestBody {
 public:
  static constexpr int kMostDepth = 100;  ///< of brackets, as in chats' data

  explicit RequestBody(const std::string& text);

  /// The member; null if it is missing.
  const nlohmann::json& operator[](const char* key) const;
  bool has(const char* key) const { return !(*this)[key].is_null(); }
  const nlohmann::json& json() const { return json_; }

  bool flag(const char* key, bool otherwise) const;
  double real(const char* key, double otherwise, double least, double most) const;
  std::int64_t whole(const char* key, std::int64_t otherwise, std::int64_t least, std::int64_t most,
                     const char* limit = "") const;
  /// The number of the text among `texts`; 0 if the member is missing.
  std::size_t choice(const char* key, std::initializer_list<const char*> texts) const;
  /// A list of tokens that the model knows.
  std::vector<std::int32_t> tokens(const char* key, const nlohmann::json& list,
                                   std::int64_t vocab) const;
  /// Refuses a value other than the one that changes nothing.
  void only(const char* key, const nlohmann::json& plain) const;

 private:
  nlohmann::json json_;
};

}  // namespace axonn
