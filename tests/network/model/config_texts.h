// Texts of config.json, and what is read from them.
#pragma once

#include <string>
#include <string_view>

#include "axonn/foundation/base/check.h"
#include "axonn/network/model/hugging_face.h"
#include "axonn/network/model/known_models.h"

namespace axonn::testing_support {

inline ModelConfig parse(const std::string& text) {
  return parse_hugging_face_config(text, "config.json");
}

/// The UsageError's message.
inline std::string error_of(const std::string& text) {
  try {
    parse(text);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "no error";
}

/// A known model, resolved and without its name.
inline ModelConfig known(const char* name) {
  ModelConfig model = resolved(known_model(name), 0, 0);
  model.name.clear();
  return model;
}

/// A file of the Llama family with additional keys: `"x": 1, "y": 2`.
inline std::string llama_file(const std::string& more, const std::string& type = "llama") {
  return R"({"model_type": ")" + type + R"(", "hidden_size": 64, "intermediate_size": 128,
    "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 4,
    "vocab_size": 100, "max_position_embeddings": 512)" +
         (more.empty() ? "" : ", ") + more + "}";
}

/// The key layer_types, a letter a layer.
inline std::string layer_types(std::string_view letters) {
  std::string kinds;
  for (const char letter : letters)
    kinds += concat(kinds.empty() ? "" : ", ", '"',
                    letter == 'f'   ? "full"
                    : letter == 's' ? "sliding"
                                    : "chunked",
                    "_attention\"");
  return concat("\"layer_types\": [", kinds, "]");
}

}  // namespace axonn::testing_support
