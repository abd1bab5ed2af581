#pragma once

#include <optional>
#include <string>

namespace axonn {

/// What tokenizer_config.json says that the other files of a tokenizer do not.
struct TokenizerConfig {
  std::string tokenizer_class;             ///< empty: not said
  std::optional<bool> adds_begin;          ///< add_bos_token
  std::string begin_of_text, end_of_text;  ///< the characters of bos_token and eos_token, or empty
};

/// Reads folder/tokenizer_config.json; all is unsaid if there is none. Errors: UsageError if it is
/// no JSON object, or holds one of these keys with another type.
TokenizerConfig read_tokenizer_config(const std::string& folder);

}  // namespace axonn
