#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace axonn {

/// What an option says of itself. Text is not copied: pass literals.
struct OptionInfo {
  static constexpr double kNone = std::numeric_limits<double>::infinity();

  std::string_view help;  ///< one line, without a full stop
  std::string_view unit = {};
  double min = -kNone, max = kNone;      ///< the range, ends included
  double above = -kNone, below = kNone;  ///< the range, ends excluded
  bool or_number = false;                ///< a string that a file may give as a number
  bool required = false;                 ///< has no default that means anything
  std::string_view also = {};            ///< other projects' words for it, separated by spaces
};

/// An enum behind its names; value i is names[i].
struct Choice {
  std::span<const std::string_view> names;
  std::function<int()> get;
  std::function<void(int)> set;
};

/// One key of one section, tied to the member that holds its value.
class Option {
 public:
  using Target = std::variant<int*, std::int64_t*, double*, bool*, std::string*,
                              std::vector<std::string>*, std::vector<std::int64_t>*, Choice>;
  /// A value as a TOML file has it.
  using Value = std::variant<bool, std::int64_t, double, std::string, std::vector<std::string>,
                             std::vector<std::int64_t>>;

  /// The target's value becomes the option's default.
  Option(std::string_view section, std::string_view name, Target target, OptionInfo info);

  const std::string& section() const { return section_; }
  const std::string& name() const { return name_; }
  std::string key() const { return section_ + '.' + name_; }
  const OptionInfo& info() const { return info_; }
  const Target& target() const { return target_; }
  bool is_list() const {
    return std::holds_alternative<std::vector<std::string>*>(target_) ||
           std::holds_alternative<std::vector<std::int64_t>*>(target_);
  }
  bool is_bool() const { return std::holds_alternative<bool*>(target_); }

  /// The value now, and the default, as TOML; numbers are read back to the bit.
  std::string text() const;
  const std::string& default_text() const { return default_; }

  /// What it takes: "an integer of at least 1", "one of f32, bf16".
  std::string wants() const;

  /// Sets the value. `place` is where it was found, for the message.
  /// Errors: UsageError on a wrong type, a value out of range or a choice that does not exist.
  void set(const Value& value, const std::string& place) const;

  /// Sets the value from a flag's text. A list is split at commas; sizes in bytes may end in KiB,
  /// MB and the like (in a file too, as a string). Errors: as set().
  void set_text(const std::string& text, const std::string& place) const;

  /// A list grows by the flag's text. Errors: as set().
  void append_text(const std::string& text, const std::string& place) const;

  /// Throws the UsageError for a value that is not what the option wants.
  [[noreturn]] void refuse_value(const std::string& got, const std::string& place) const;

 private:
  void set_choice(const Choice& choice, const std::string& name, const std::string& place) const;
  bool in_range(double value) const;

  std::string section_, name_;
  Target target_;
  OptionInfo info_;
  std::string default_;
};

/// The sections and their options, in the order in which they are shown. It refers to the config
/// that it was made from, which must outlive it.
class OptionList {
 public:
  /// Makes room for one entry and lists its keys, in a section of the entry's name.
  using ListEntry = std::function<void(OptionList&)>;

  struct Section {
    std::string name;
    std::string help;
    std::vector<Option> options;
    ListEntry entry = {};  ///< of a section that is repeated, which has no options of its own
  };

  /// The options added next belong to this section.
  void section(std::string_view name, std::string_view help);

  void add(std::string_view name, Option::Target target, OptionInfo info);

  template <typename Enum>
  requires std::is_enum_v<Enum>
  void add(std::string_view name, Enum& value, std::span<const std::string_view> names,
           OptionInfo info) {
    add(name,
        Choice{names, [&value] { return static_cast<int>(value); },
               [&value](int i) { value = static_cast<Enum>(i); }},
        info);
  }

  /// A section that a file may have any number of times, each written as [[name]]. It has no flags,
  /// and is left out where values are printed.
  void repeated(std::string_view name, std::string_view help, ListEntry entry);

  const std::vector<Section>& sections() const { return sections_; }

  /// Null if there is none.
  const Section* find(std::string_view section) const;
  const Option* find(std::string_view section, std::string_view name) const;

 private:
  std::vector<Section> sections_;
};

/// Where each value came from.
class Origins {
 public:
  /// `place` is "train.toml:7:1" or "--training.steps".
  void set(const std::string& key, std::string place) { places_[key] = std::move(place); }
  bool is_set(const std::string& key) const { return places_.contains(key); }
  bool from_flag(const std::string& key) const { return of(key).starts_with("--"); }
  /// "default" for what nobody set.
  std::string of(const std::string& key) const {
    const auto found = places_.find(key);
    return found == places_.end() ? "default" : found->second;
  }

 private:
  std::map<std::string, std::string> places_;
};

/// Sets what the TOML file says. Relative paths among the values mean the current directory's, as
/// on the command line. Errors: UsageError that names the place ("train.toml:7:1"), for an
/// unreadable file, what is not TOML, an unknown section or key (with the likely meaning), and as
/// Option::set().
void read_toml(const OptionList& list, const std::string& path, Origins& origins);

/// The same from text; `name` stands for the file in messages.
void read_toml_text(const OptionList& list, std::string_view text, const std::string& name,
                    Origins& origins);

/// Sets what flags of the form --section.key value and --section.key=value say and returns the
/// other arguments in their order. '-' and '_' are the same; a boolean alone is true; a list given
/// more than once grows. Errors: as read_toml(), with the flag as the place.
std::vector<std::string> read_flags(const OptionList& list, std::span<const std::string> arguments,
                                    Origins& origins);

/// Throws the UsageError for a section or a key that does not exist.
[[noreturn]] void refuse_section(const OptionList& list, std::string_view section,
                                 const std::string& place);
[[noreturn]] void refuse_key(const OptionList& list, std::string_view section,
                             std::string_view name, const std::string& place);

/// The options that a wrong key may have meant, the likeliest first: "lr", or "[optimizer] lr"
/// where it stands in another section. A single-edit typo of a key is always among them.
std::vector<std::string> guess_key(const OptionList& list, std::string_view section,
                                   std::string_view name);

}  // namespace axonn
