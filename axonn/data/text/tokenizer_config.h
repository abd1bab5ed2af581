#pragma once

#include <optional>
#include <string>
#include <vector>

namespace axonn {

/// The settings of tokenizer_config.json that the other files of a tokenizer do not have.
struct TokenizerConfig {
  std::string tokenizer_class;             ///< empty: not given
  std::optional<bool> adds_begin;          ///< add_bos_token
  std::optional<bool> prefix_space;        ///< add_prefix_space
  std::string begin_of_text, end_of_text;  ///< the characters of bos_token and eos_token, or empty
  std::string unknown, padding;            ///< those of unk_token and pad_token
  std::vector<std::string> notes;  ///< names the keys that are not followed, if there are any
};

/// Reads folder/tokenizer_config.json; returns empty settings if there is none. Throws UsageError
/// if it is not a JSON object, if one of these keys has another type, or if it has a key that
/// changes tokens in a way that is not supported.
TokenizerConfig read_tokenizer_config(const std::string& folder);

}  // namespace axonn
