#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <ranges>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace axonn {

/// Another spelling of a choice, such as that of an earlier version.
struct Spelling {
  std::string_view other, name;  ///< with "true" and "false" a file may also give a boolean
};

/// The inputs of a run that a key's value names: files, folders, patterns of them, or prefixes of
/// token files; or the same for texts, of which a folder holds many (text_files()).
enum class Reads { nothing, files, texts };

/// Help and constraints of an option. Texts are not copied: pass literals.
struct OptionInfo {
  static constexpr double kNone = std::numeric_limits<double>::infinity();

  std::string_view help;  ///< one line, without a full stop
  std::string_view unit = {};
  double min = -kNone, max = kNone;          ///< range with inclusive bounds
  double above = -kNone, below = kNone;      ///< range with exclusive bounds
  bool infinity = false;                     ///< of a number: infinity is accepted beside the range
  bool or_number = false;                    ///< for a string: a file may also give a number
  bool required = false;                     ///< the user must set it; the default is not shown
  std::string_view also = {};                ///< other projects' names for it, separated by spaces
  std::span<const Spelling> spellings = {};  ///< of a choice's values
  Reads reads = Reads::nothing;
};

/// Why a run does not read an option; "" if it does. May look at other values, when it is called.
using UnusedReason = std::function<std::string()>;

/// Access to an enum option by the names of its values; value i is names[i].
struct Choice {
  std::span<const std::string_view> names;
  std::function<int()> get;
  std::function<void(int)> set;
};

/// One key of one section, with a pointer to the variable that holds its value.
class Option {
 public:
  using Target =
      std::variant<int*, std::int64_t*, double*, bool*, std::string*, std::vector<std::string>*,
                   std::vector<std::int64_t>*, std::vector<double>*, Choice>;
  /// A value as read from a TOML file.
  using Value = std::variant<bool, std::int64_t, double, std::string, std::vector<std::string>,
                             std::vector<std::int64_t>, std::vector<double>>;

  /// The target's current value becomes the option's default.
  Option(std::string_view section, std::string_view name, Target target, OptionInfo info,
         UnusedReason unused = {});

  const std::string& section() const { return section_; }
  const std::string& name() const { return name_; }
  std::string key() const { return section_ + '.' + name_; }
  const OptionInfo& info() const { return info_; }
  /// Why the values that the options have now do not need this one; "" if they do.
  std::string unused() const { return unused_ ? unused_() : ""; }
  bool is_list() const {
    return std::holds_alternative<std::vector<std::string>*>(target_) ||
           std::holds_alternative<std::vector<std::int64_t>*>(target_) ||
           std::holds_alternative<std::vector<double>*>(target_);
  }
  bool is_bool() const { return std::holds_alternative<bool*>(target_); }

  /// The value of a string, or the values of a list of strings; else none.
  std::vector<std::string> strings() const;
  /// The current value as TOML, and the default value. Numbers round-trip bit for bit.
  std::string text() const;
  const std::string& default_text() const { return default_; }

  /// Describes the accepted values: "an integer of at least 1", "one of f32, bf16".
  std::string wants() const;

  /// Sets the value. `location` says where the value was found, for the error message.
  /// Throws UsageError for a wrong type, a value out of range or an unknown choice.
  void set(const Value& value, const std::string& location) const;

  /// Sets the value from a flag's text. A list is split at commas. A size in bytes may have a unit
  /// such as KiB or MB (also in a file, as a string). Throws as set() does.
  void set_text(const std::string& text, const std::string& location) const;

  /// Appends the flag's text to a list. Throws as set() does, and Error if the option is no list.
  void append_text(const std::string& text, const std::string& location) const;

  /// Whether another project calls it so (OptionInfo::also).
  bool also_called(std::string_view name) const;

  /// Throws UsageError if the current value is one that set() does not accept, as a program can put
  /// into a variable. A required option may be unset.
  void check() const;

  /// Throws the UsageError for a value that the option does not accept.
  [[noreturn]] void refuse_value(const std::string& got, const std::string& location) const;

 private:
  void set_choice(const Choice& choice, std::string name, const std::string& location) const;
  const Spelling* spelling(std::string_view other) const;
  bool in_range(double value) const;

  std::string section_, name_;
  Target target_;
  OptionInfo info_;
  UnusedReason unused_;
  std::string default_;
};

/// Keys of other projects whose meaning no key here has.
struct OtherNames {
  std::string_view names;   ///< separated by spaces
  std::string_view remedy;  ///< "set training.global_batch to ..."
};

/// All sections with their options, in display order. The options point into the configuration that
/// the list was made from, which must outlive the list.
class OptionList {
 public:
  using Use = std::function<void(const OptionList&)>;

  /// The entries of a repeated section. Each has an option list, whose section has the same name.
  struct Entries {
    std::function<void(const Use&)> add;           ///< adds one
    std::function<void(const Use&)> each, sample;  ///< all in order; one that is not among them
  };

  struct Section {
    std::string name;
    std::string help;
    std::vector<Option> options;
    std::optional<Entries> entries = {};  ///< of a repeated section, which has no own options
  };

  /// Begins a section; options that are added next belong to it.
  void section(std::string_view name, std::string_view help);

  void add(std::string_view name, Option::Target target, OptionInfo info);

  /// Gives a reason to the options that are added next, up to another reason or section.
  void unused_if(UnusedReason reason) { unused_ = std::move(reason); }

  template <typename Enum>
  requires std::is_enum_v<Enum>
  void add(std::string_view name, Enum& value, std::span<const std::string_view> names,
           OptionInfo info) {
    add(name,
        Choice{names, [&value] { return static_cast<int>(value); },
               [&value](int i) { value = static_cast<Enum>(i); }},
        info);
  }

  /// Adds a section that may occur any number of times in a file, each time as [[name]]. It has no
  /// flags. list adds a section of the same name, with the keys of one entry.
  template <typename Entry>
  void repeated(std::string_view name, std::string_view help, std::vector<Entry>& entries,
                void (*list)(Entry&, OptionList&)) {
    section(name, help);
    const auto use_one = [list](Entry& entry, const Use& use) {
      OptionList keys;
      list(entry, keys);
      use(keys);
    };
    sections_.back().entries = Entries{
        .add = [&entries, use_one](const Use& use) { use_one(entries.emplace_back(), use); },
        .each =
            [&entries, use_one](const Use& use) {
              for (Entry& entry : entries) use_one(entry, use);
            },
        .sample =
            [use_one](const Use& use) {
              Entry one;
              use_one(one, use);
            }};
  }

  /// Takes a section out, if there is one.
  void remove(std::string_view section) {
    std::erase_if(sections_, [&](const Section& one) { return one.name == section; });
  }

  const std::vector<Section>& sections() const { return sections_; }

  /// Returns null if it does not exist.
  const Section* find(std::string_view section) const;
  const Option* find(std::string_view section, std::string_view name) const;

  /// Names that errors and help explain, in place of a guess. The span must outlive the list.
  void explain(std::span<const OtherNames> names) { other_names_ = names; }
  /// The remedy for such a name; "" if it is not explained.
  std::string_view remedy_for(std::string_view name) const;

 private:
  std::vector<Section> sections_;
  UnusedReason unused_;
  std::span<const OtherNames> other_names_;
};

/// Records where each value was set.
class Origins {
 public:
  /// `location` is "train.toml:7:1" or "--training.steps".
  void set(const std::string& key, std::string location) { locations_[key] = std::move(location); }
  /// Makes it a key that was not set.
  void forget(const std::string& key) { locations_.erase(key); }
  bool is_set(const std::string& key) const { return locations_.contains(key); }
  bool from_flag(const std::string& key) const { return of(key).starts_with("--"); }
  /// Returns "default" for a key that was not set.
  std::string of(const std::string& key) const {
    const auto found = locations_.find(key);
    return found == locations_.end() ? "default" : found->second;
  }

 private:
  std::map<std::string, std::string> locations_;
};

/// Writes a real number as TOML: with the fewest digits that read back to the same bits, and always
/// with a decimal point or an exponent.
std::string toml_number(double value);

/// Writes a string as TOML: quoted, with special characters escaped. Throws UsageError if it is not
/// UTF-8.
std::string toml_string(std::string_view text);

/// The least number of insertions, deletions, replacements and swaps of neighbours that turn one
/// word into the other (optimal string alignment). Ignores case and treats '-' and '_' as equal.
int edit_distance(std::string_view a, std::string_view b);

/// All candidates at the smallest edit distance from `word`, in their order. Empty if that distance
/// is above a third of the letters of `word`, or 1 if that is more.
std::vector<std::string> nearest(std::string_view word, std::span<const std::string> candidates);

/// "; did you mean 'a', 'b' or 'c'?", or an empty string if there are no guesses. Words are quoted
/// unless they begin with '['.
std::string did_you_mean(std::span<const std::string> guesses);

/// Joins words: "a, b, c".
template <std::ranges::input_range Words>
std::string join(const Words& words, std::string_view between = ", ") {
  std::string text;
  for (const auto& word : words) {
    if (!text.empty()) text += between;
    text += word;
  }
  return text;
}

/// Throws the UsageError for an unknown section or key, with suggestions.
[[noreturn]] void refuse_section(const OptionList& list, std::string_view section,
                                 const std::string& location);
[[noreturn]] void refuse_key(const OptionList& list, std::string_view section,
                             std::string_view name, const std::string& location);

/// Suggests options for an unknown key, likeliest first: "lr", or "[optimizer] lr" if the option
/// belongs to another section. A key of the section at edit distance 1 is always among them, as
/// long as there are at most four.
std::vector<std::string> guess_key(const OptionList& list, std::string_view section,
                                   std::string_view name);

}  // namespace axonn
