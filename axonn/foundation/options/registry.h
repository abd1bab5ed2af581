#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <deque>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "axonn/foundation/base/check.h"
#include "axonn/foundation/options/options.h"

namespace axonn {

/// The choices of a key: those of this library, then those that a program registers. Addresses
/// stay, since options refer to names. An Entry has a `name`.
template <typename Entry>
class Registry {
 public:
  /// `key` is the one whose values these are, for messages.
  Registry(std::string_view key, const std::vector<std::string_view>& names)
      : key_(key), own_(names.size()) {
    std::ranges::copy(names, names_.begin());
  }

  /// All names, in the order of their values.
  std::span<const std::string_view> names() const {
    return std::span(names_).first(own_ + entries_.size());
  }
  /// Throws Error if the name is taken.
  void add(Entry entry) {
    AXONN_CHECK(std::ranges::find(names(), entry.name) == names().end(), key_, " '", entry.name,
                "' exists already (", join(names()), "); choose another name");
    AXONN_CHECK(names().size() < names_.size(), key_, " '", entry.name, "' is one too many: there ",
                "can be ", names_.size());
    const std::size_t next = names().size();
    entries_.push_back(std::move(entry));
    names_[next] = entries_.back().name;
  }
  /// The entry of a value; null for one of this library's. Throws Error for a value without a name.
  const Entry* find(std::size_t value) const {
    AXONN_CHECK(value < names().size(), key_, " has no value ", value, "; there are ",
                names().size(), ": ", join(names()));
    return value < own_ ? nullptr : &entries_[value - own_];
  }
  const std::deque<Entry>& entries() const { return entries_; }
  /// The value of a name. Throws UsageError, with the names, if there is none.
  std::size_t value_of(std::string_view name) const {
    const auto found = std::ranges::find(names(), name);
    if (found == names().end())
      refuse(key_, " wants one of ", join(names()), "; got '", name, '\'');
    return static_cast<std::size_t>(found - names().begin());
  }

 private:
  std::string_view key_;
  std::size_t own_;
  std::array<std::string_view, 32> names_;
  std::deque<Entry> entries_;
};

}  // namespace axonn
