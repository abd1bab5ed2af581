#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "axonn/foundation/base/asked_keys.h"

namespace axonn {

// With sizes up to these, every count of parameters fits an int64.
inline constexpr std::int64_t kMostLayers = 10'000, kMostColumns = 1 << 22, kMostRows = 1 << 30;
// Counts of all experts' parameters must fit too.
inline constexpr std::int64_t kMostExperts = 1 << 16;

/// A JSON object that is written; keys are sorted, as transformers writes them.
struct JsonObject : nlohmann::json {
  using nlohmann::json::json;
};

/// Reads keys of a JSON object that describes a model. A null counts as a missing key. Throws
/// UsageError, with the file and the key, for a value of another type or out of range. The object
/// must outlive it. It remembers which keys were looked up, so that none is passed over unnoticed.
class JsonReader {
 public:
  using Keys = std::initializer_list<const char*>;

  /// `location` names the file in messages.
  JsonReader(const nlohmann::json& object, std::string location)
      : JsonReader(object, std::move(location), std::make_shared<AskedKeys>()) {}

  const std::string& location() const { return location_; }
  /// The value of the first of the spellings that the object has, or null.
  const nlohmann::json* find(Keys spellings) const;
  /// Whether the object has the key, even if it is null.
  bool has(const char* key) const;
  bool empty() const { return object_.empty(); }
  /// Whether any value is an object.
  bool has_objects() const;

  /// From 1 to `most`.
  std::optional<std::int64_t> integer(Keys spellings, std::int64_t most) const;
  /// The same; throws UsageError if there is none.
  std::int64_t needed(Keys spellings, std::int64_t most) const;
  /// What counts as the value of a key that an object lacks, and of one that is null.
  struct Absent {
    std::int64_t missing, null;
  };
  /// From 1 to `most`, or else absent's.
  std::int64_t integer_or(const char* key, std::int64_t most, const Absent& absent) const;
  /// From 0 to `most`; `otherwise` if it is missing, 0 if it is null.
  std::int64_t zero_or(const char* key, std::int64_t most, std::int64_t otherwise) const;
  /// A list of integers of at least 0; empty if there is none.
  std::vector<std::int64_t> integers(const char* key) const;
  /// A finite number above 0.
  double real(Keys spellings, double otherwise) const;
  /// The same; throws UsageError if there is none.
  double needed_real(const char* key) const;
  /// A list of finite numbers above 0; throws UsageError if there is none.
  std::vector<double> needed_reals(const char* key) const;
  bool flag(const char* key, bool otherwise) const;
  std::string text(Keys spellings, std::string_view otherwise) const;
  std::optional<JsonReader> object(const char* key) const;

  /// The keys that are not null and that nobody has looked up, nor are they among `harmless`:
  /// "embedding_multiplier", and of objects that were read, "rope_scaling.beta_fast".
  std::vector<std::string> unread(std::span<const std::string_view> harmless) const;

 private:
  JsonReader(const nlohmann::json& object, std::string location, std::shared_ptr<AskedKeys> asked)
      : object_(object), location_(std::move(location)), asked_(std::move(asked)) {
    asked_->open(object_);
  }

  static constexpr std::uint64_t kUnsigned = std::uint64_t{1} << 62;

  template <typename T, typename Fits>
  std::optional<T> get(Keys spellings, const Fits& fits, const std::string& wanted) const {
    const nlohmann::json* value = find(spellings);
    if (!value) return std::nullopt;
    if (!std::invoke(fits, *value)) refuse_value(*value, wanted);
    return value->get<T>();
  }
  [[noreturn]] void refuse_value(const nlohmann::json& value, const std::string& wanted) const;

  const nlohmann::json& object_;
  std::string location_;
  std::shared_ptr<AskedKeys> asked_;  // also of objects in the object
  mutable std::string name_;          // the last key that was looked up, for messages
};

/// The text of a file, up to a little more than parse_json_object() takes. Throws UsageError.
std::string read_json_text(const std::string& file);
/// Reads a file, or throws UsageError unless it is a JSON object that is neither too long nor too
/// deep to describe a model.
nlohmann::json read_json_object(const std::string& file);
/// Parses the text of such a file, which `location` names in messages.
nlohmann::json parse_json_object(std::string_view text, const std::string& location);

}  // namespace axonn
