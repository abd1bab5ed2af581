#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "axonn/data/storage/parameter_source.h"
#include "axonn/network/model/model.h"

namespace axonn {

enum class GgufType : std::uint32_t;
enum class ModelForm { hugging_face, checkpoint, gguf };

/// Which model to convert, and to what.
struct ConvertJob {
  std::string model;  ///< a Hugging Face folder, a checkpoint, or a folder of checkpoints (newest)
  std::string out;    ///< the folder to create; for GGUF the file
  std::optional<ModelForm> to = {};     ///< empty: the form that the model does not have
  std::optional<StoredType> type = {};  ///< of a folder's tensors; empty: as stored or trained
  bool ema = false;                     ///< the averages of a checkpoint's weights in their place
  bool nf4 = false;                     ///< of a folder's linear layers but the head
  std::optional<GgufType> blocks = {};  ///< for GGUF, instead of a type: one of blocks of codes
  std::string adapters = {};  ///< to merge into the model: PEFT's folder or a checkpoint of them
  bool merge = false;         ///< model is a checkpoint of adapters: merge it into its base
  std::string base = {};  ///< base model of a checkpoint of adapters; "": the one it was trained on
  std::string tokenizer = {};               ///< folder or file; "": the model's
  std::int64_t most_bytes = 5'000'000'000;  ///< most bytes of tensors per file
  bool overwrite = false;                   ///< replace a model or checkpoint at `out`
  int threads = 1;                          ///< compute threads for merging
};

struct Converted {
  std::string what;        ///< what was made: "a Hugging Face folder (BF16)"
  std::int64_t bytes = 0;  ///< size of its tensors
  double seconds = 0;
  /// What the user should know of the files, and what readers of the new ones do differently.
  std::vector<std::string> warnings = {};
};

/// Converts a checkpoint to a Hugging Face folder, such a folder to a checkpoint, a checkpoint of
/// adapters to a folder in PEFT's format, a model of the llama family to a GGUF file, or a model
/// with adapters to a merged one in any of these forms. Values pass through f32, which changes
/// none.
///
/// Works on files: no ranks, no model in memory, at most a few hundred MiB at a time. `out` appears
/// when all of it is on the disk, or not at all.
///
/// Throws UsageError for a usage error or a model that cannot be converted, with the reasons; Error
/// if `out` cannot be written or the disk has too little room.
Converted convert(const ConvertJob& job, const Progress& progress = {});

}  // namespace axonn
