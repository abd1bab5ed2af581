#include "axonn/foundation/options/own_values.h"

#include <algorithm>
#include <array>
#include <deque>
#include <iterator>

#include "axonn/foundation/base/check.h"
#include "axonn/foundation/options/options.h"

namespace axonn {

namespace {

/// Addresses stay, since options refer to names and help texts.
std::deque<OwnSection>& own_sections() {
  static std::deque<OwnSection> all;
  return all;
}

const OwnSection* own_section(std::string_view name) {
  const auto found = std::ranges::find(own_sections(), name, &OwnSection::name);
  return found == own_sections().end() ? nullptr : &*found;
}

/// Names of the alternatives of OwnValue, in their order.
constexpr std::array<std::string_view, 4> kOwnTypes = {"bool", "std::int64_t", "double",
                                                       "std::string"};

std::string_view type_of(const OwnValue& value) { return kOwnTypes[value.index()]; }

/// The key with its default; null if there is none.
const OwnKey* own_key(std::string_view key) {
  for (const OwnSection& section : own_sections())
    for (const OwnKey& one : section.keys)
      if (section.name + '.' + one.name == key) return &one;
  return nullptr;
}

/// "; did you mean 'signum.beta'?", or "; there are signum.beta, signum.alpha".
std::string near_own_keys(std::string_view key) {
  std::vector<std::string> all;
  for (const OwnSection& section : own_sections())
    std::ranges::copy(own_keys_of(section.name), std::back_inserter(all));
  const std::string near = did_you_mean(nearest(key, all));
  if (!near.empty()) return near;
  return all.empty() ? "; none is registered" : "; there are " + join(all);
}

bool allowed_name(std::string_view name) {
  const auto small = [](char c) { return c >= 'a' && c <= 'z'; };
  return !name.empty() && small(name.front()) && std::ranges::all_of(name, [&](char c) {
    return small(c) || (c >= '0' && c <= '9') || c == '_';
  });
}

void check_own_name(std::string_view what, std::string_view name) {
  AXONN_CHECK(allowed_name(name), "the name '", name, "' of ", what,
              " wants small letters, digits and '_', and begins with a letter");
}

}  // namespace

void add_own_section(OwnSection section) {
  check_own_name("a section", section.name);
  AXONN_CHECK(!own_section(section.name), "there is a section [", section.name,
              "] already; choose another name");
  for (std::size_t i = 0; i < section.keys.size(); ++i) {
    const std::string& name = section.keys[i].name;
    check_own_name(concat("a key of [", section.name, ']'), name);
    const auto before = section.keys.begin() + static_cast<std::ptrdiff_t>(i);
    AXONN_CHECK(std::find_if(section.keys.begin(), before,
                             [&](const OwnKey& other) { return other.name == name; }) == before,
                "the key '", name, "' of [", section.name, "] is listed twice");
  }
  own_sections().push_back(std::move(section));
}

const OwnValue& own_value(const OwnValues& values, const std::string& key) {
  const OwnKey* const known = own_key(key);
  AXONN_CHECK(known, "own: no registered section has a key '", key, '\'', near_own_keys(key));
  const auto set = values.find(key);
  return set == values.end() ? known->value : set->second;
}

void validate_own_values(const OwnValues& values, std::span<const std::string_view> sections) {
  for (const auto& [key, value] : values) {
    const std::string_view section = std::string_view(key).substr(0, key.find('.'));
    const OwnKey* const known = own_key(key);
    if (!known || std::ranges::find(sections, section) == sections.end())
      refuse("own_values has '", key, "', which is no key of ", join(sections),
             known ? "" : near_own_keys(key));
    if (known->value.index() != value.index())
      refuse("own_values has ", key, " as ", type_of(value), "; it is ", type_of(known->value));
  }
}

std::vector<std::string> own_keys_of(std::string_view name) {
  std::vector<std::string> keys;
  if (const OwnSection* section = own_section(name))
    for (const OwnKey& key : section->keys) keys.push_back(section->name + '.' + key.name);
  return keys;
}

void list_own_section(std::string_view name, OwnValues& values, OptionList& list,
                      const std::function<std::string()>& unused) {
  const OwnSection* const section = own_section(name);
  if (!section || section->keys.empty()) return;
  list.section(section->name, section->help);
  list.unused_if(unused);
  for (const OwnKey& key : section->keys) {
    OwnValue& value = values.try_emplace(section->name + '.' + key.name, key.value).first->second;
    std::visit([&](auto& target) { list.add(key.name, &target, {.help = key.help}); }, value);
  }
}

void fail_own_type(const std::string& key, const OwnValue& value) {
  fail(Where::here(), "own: ", key, " is a ", type_of(value), "; call own<", type_of(value), ">(\"",
       key, "\")");
}

}  // namespace axonn
