#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>
#include <vector>

namespace axonn {

class OptionList;

/// The value of a key that a program adds to the configuration.
using OwnValue = std::variant<bool, std::int64_t, double, std::string>;

/// A key that a program adds: a hyperparameter of its family of models or of its optimizer.
struct OwnKey {
  std::string name;  ///< of small letters, digits and '_'
  OwnValue value;    ///< the default, which also sets the type
  std::string help;  ///< one line
};

/// The keys that a program adds for one purpose. They are a section [name] of every config, which
/// is validated, printed, and saved in checkpoints as every other section is.
struct OwnSection {
  std::string name;  ///< as that of a key
  std::string help;  ///< one line
  std::vector<OwnKey> keys;
};

/// Values of such keys, by "section.key"; a key that is missing has its default.
using OwnValues = std::map<std::string, OwnValue>;

/// Adds a section, to be called before a config is read. Throws Error if a name is not allowed or
/// taken.
void add_own_section(OwnSection section);

/// The value of a key. Throws Error, with the keys that are near or all of them, if no section that
/// was added has it.
const OwnValue& own_value(const OwnValues& values, const std::string& key);
/// Throws UsageError if a value is not that of a key of one of these sections, or has another type,
/// with the keys that are near.
void validate_own_values(const OwnValues& values, std::span<const std::string_view> sections);

/// "section.key" of each key of a section; none if it was not added.
std::vector<std::string> own_keys_of(std::string_view section);

/// Lists the section's options; they set `values`, where those that are missing get defaults.
/// `unused`: why none of them is read; "" if they are.
void list_own_section(std::string_view section, OwnValues& values, OptionList& list,
                      const std::function<std::string()>& unused);

/// Throws the Error of reading a key as another type.
[[noreturn]] void fail_own_type(const std::string& key, const OwnValue& value);

/// The value of a key as T: bool, std::int64_t, double or std::string. Throws as own_value() does,
/// and Error if the value has another type.
template <typename T>
const T& own_value_as(const OwnValues& values, const std::string& key) {
  static_assert(std::is_same_v<T, bool> || std::is_same_v<T, std::int64_t> ||
                    std::is_same_v<T, double> || std::is_same_v<T, std::string>,
                "own<T>(): T is bool, std::int64_t, double or std::string");
  const OwnValue& value = own_value(values, key);
  if (!std::holds_alternative<T>(value)) fail_own_type(key, value);
  return std::get<T>(value);
}

}  // namespace axonn
