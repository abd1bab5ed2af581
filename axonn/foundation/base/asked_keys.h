#pragma once

#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include <nlohmann/json_fwd.hpp>

namespace axonn {

/// Whether a value is false or empty, as programs write what they do not use.
bool says_nothing(const nlohmann::json& value);

/// Remembers which members of a JSON file's objects its reader has looked up, so that none is
/// passed over unnoticed. The values must outlive it and keep their addresses.
class AskedKeys {
 public:
  /// Notes that the reader looks up members of this object by their keys.
  void open(const nlohmann::json& object) { opened_.insert(&object); }
  /// Notes that it has looked up this member.
  void ask(const nlohmann::json& member) { asked_.insert(&member); }

  struct Unread {
    std::string path;  ///< "rope_scaling.beta_fast", "pre_tokenizer.pretokenizers[0].limit"
    const nlohmann::json* value;
  };

  /// The members of opened objects that are not null and that nobody has looked up.
  std::vector<Unread> unread(const nlohmann::json& file) const;

 private:
  void add_unread(const nlohmann::json& value, const std::string& path,
                  std::vector<Unread>& found) const;

  std::unordered_set<const nlohmann::json*> opened_, asked_;
};

}  // namespace axonn
