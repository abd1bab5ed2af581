#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "axonn/io/safetensors.h"

namespace axonn {

enum class ModelForm { hugging_face, checkpoint };

/// What to make of which model.
struct ConvertJob {
  std::string model;  ///< a Hugging Face folder, a checkpoint, or the newest of a folder of them
  std::string out;    ///< a folder that is made
  std::optional<ModelForm> to = {};     ///< none: the one that the model has not
  std::optional<StoredType> type = {};  ///< of the tensors of a folder; none: as stored or trained
  std::string adapters = {};   ///< merged into the model: PEFT's folder or a checkpoint of adapters
  bool merge = false;          ///< the model is a checkpoint of adapters: with its base, as a whole
  std::string base = {};       ///< of a checkpoint of adapters; "": the one it was trained on
  std::string tokenizer = {};  ///< folder or file; "": the model's
  std::int64_t most_bytes = 5'000'000'000;  ///< of tensors in a file
  bool overwrite = false;                   ///< a model or checkpoint at `out` is replaced
  int threads = 1;                          ///< that merge
};

struct Converted {
  std::string what;        ///< that was made: "a Hugging Face folder (llama, BF16)"
  std::int64_t bytes = 0;  ///< of its tensors
  double seconds = 0;
};

/// Makes a Hugging Face folder of a checkpoint, a checkpoint of such a folder, a folder in PEFT's
/// form of a checkpoint of adapters, or a folder or checkpoint of a model with adapters merged into
/// it. A tensor's values pass through f32, which changes no value that its type holds.
///
/// Works on files: no rank, no model in memory, at most a few hundred MiB at a time. `out` appears
/// when all of it is on the disk, or not at all.
///
/// Errors: UsageError for what was asked wrongly or cannot be converted, which is listed; Error if
/// `out` cannot be written, or there is too little room for it.
Converted convert(const ConvertJob& job,
                  const std::function<void(std::int64_t done, std::int64_t total)>& progress = {});

}  // namespace axonn
