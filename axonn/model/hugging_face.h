#pragma once

#include <string>
#include <string_view>

#include "axonn/model/config.h"

namespace axonn {

/// The sizes of a model from the text of a Hugging Face config.json of model_type gpt2, llama,
/// mistral, qwen2 or qwen3, in older and newer spellings. What the file leaves out has the default
/// that transformers has for it. `place` stands for the file in messages.
///
/// Errors: UsageError for what is no such file, for values of a wrong type or out of range, and for
/// what a model here cannot be (other types, other kinds of rope scaling, quantized weights, ...),
/// all of it in one message.
ModelConfig parse_hugging_face_config(std::string_view text, const std::string& place);

/// The same of a file, or of the config.json of a folder. Errors: also where it cannot be read.
ModelConfig read_hugging_face_config(const std::string& path);

}  // namespace axonn
