#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "axonn/data/text/chat/chat_template.h"
#include "axonn/data/text/tokenizer.h"

namespace axonn {

/// How a model was trained to read and write text. It belongs to the model: checkpoints, exported
/// folders, adapters and GGUF files have it, and commands take it from there.
struct ModelText {
  std::string tokenizer = {};  ///< as in data.tokenizer; "": not known
  /// The chat template; empty: the one in the tokenizer's folder, if there is one.
  std::vector<ChatFormat::Form> forms = {};
  std::string arguments = {};           ///< of the template, as in data.chat_template_args
  std::vector<std::int32_t> ends = {};  ///< the tokens that end an answer; empty: not known
  std::optional<std::int32_t> pad = {};

  /// Adds an end that is not yet there.
  void add_end(std::int32_t token);
};

/// Name of the file of a checkpoint that holds it as JSON.
inline constexpr const char* kModelTextName = "text.json";
std::string to_json(const ModelText& text);
/// Reads it again. Throws UsageError, beginning with `file`, for other values.
ModelText parse_model_text(std::string_view json, const std::string& file);

/// Reads the ends and the padding token of a Hugging Face folder, or of a folder in PEFT's format:
/// eos_token_id and pad_token_id, numbers or lists, of generation_config.json, and where that has
/// none, of config.json. Numbers below 0 stand for no token. Throws UsageError for other values.
ModelText read_model_text(const std::string& folder);
/// What one of these files states.
ModelText read_generation(const std::string& path);
/// Names the keys of generation_config.json in a folder that may change what is generated, and are
/// not followed: a sentence; empty if there are none, or no such file. Sampling is not among them,
/// since flags and requests state it.
std::string generation_note(const std::string& folder);
/// What the folder of a tokenizer (make_tokenizer()) states, with that tokenizer.
ModelText text_beside(const std::string& tokenizer);
/// The chat template in that folder; none if it has no form "default".
std::vector<ChatFormat::Form> forms_beside(const std::string& tokenizer);

/// The text of a model with adapters: what the adapters have, else what their base has.
ModelText with_adapters(ModelText base, const ModelText& adapters);

/// The chat template with this name: "auto" is the model's own; for the others see
/// find_chat_format(). Throws UsageError as that does.
ChatFormat find_chat_format(const std::string& name, const ModelText& text);

/// The arguments of that template: `given`, or if that is empty and the template is the model's
/// own, the model's. Throws UsageError, beginning with `key`.
ChatArguments chat_arguments(const std::string& name, const std::string& given,
                             const ModelText& text, const std::string& key);

/// The text of a model that is given a tokenizer. text may be null.
ModelText with_tokenizer(const ModelText* text, const std::string& tokenizer);

/// The tokens at which generation stops: the ends, and the tokenizer's end of text.
std::vector<std::int32_t> stop_tokens(const ModelText& text, const Tokenizer& tokenizer);

}  // namespace axonn
