#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "axonn/data/storage/checkpoint/checkpoint_reader.h"
#include "axonn/data/storage/parameter_source.h"
#include "axonn/network/model/model.h"

namespace axonn {

class GgufFile;
struct StoredAdapterConfig;

/// Which weights of a checkpoint: those that were trained, or their running averages
/// (optimizer.ema_decay).
enum class StoredWeights { trained, averages };

/// A model on disk, or the adapters of one, in any format: a Hugging Face folder, a folder in
/// PEFT's format, a GGUF file, or a checkpoint. Nothing else tells these formats apart. Reads
/// configs and the index of a checkpoint, and values only to see whether a tied model has a head of
/// its own; the ranks of a process share one.
class ModelFiles {
 public:
  /// path: one of these; the config.json of a Hugging Face folder, which gives sizes alone; or a
  /// folder of checkpoints, of which the newest intact one is taken. A folder with both a model and
  /// adapters is a model. Throws UsageError as the readers of the configs and
  /// CheckpointReader do, and if averages are wanted of files that have none.
  explicit ModelFiles(std::string path, StoredWeights weights = StoredWeights::trained);
  /// Opens adapters: a folder with both a model and adapters is one of adapters. Also throws
  /// UsageError if the path holds a model.
  static ModelFiles of_adapters(std::string path);

  const std::string& path() const { return path_; }  ///< as given
  /// Whether these are adapters, not a model.
  bool adapters() const { return config_.lora.rank > 0; }
  /// The checkpoint; null if this is a folder of Hugging Face or PEFT.
  const CheckpointReader* checkpoint() const { return checkpoint_ ? &*checkpoint_ : nullptr; }
  /// The sizes of the model, and of adapters. A folder in PEFT's format has only config().lora,
  /// with the layers that its files hold as targets, unless only_merge().
  const ModelConfig& config() const { return config_; }
  /// These adapters, by the names of the products of `model`, their base (adapters_in_model()).
  LoraConfig adapters_of(const ModelConfig& model) const;
  /// Whether these are adapters that models here cannot compute, only merge into their weights
  /// (peft_merge.h).
  bool only_merge() const { return merge_ != nullptr; }
  /// These adapters, only_merge(), as what training of `base` starts from (adapters_to_train()).
  ModelFiles to_train(const ModelFiles& base) const;
  /// Whether a tied model with these adapters merged into it is not tied any more.
  bool untie() const;
  /// Merges these adapters into the parameters of base, the source of the files of `base_model`.
  std::unique_ptr<ParameterSource> merged_into(const ModelFiles& base_model,
                                               const ModelConfig& model,
                                               std::vector<StoredParameter> parameters) const;
  /// The base model of adapters: a path, a name on the hub, or "".
  const std::string& base() const { return base_; }
  /// As in data.tokenizer: the folder itself, or what a checkpoint's run used; "" if it is not
  /// known. "bytes" is known to be the tokenizer of a model that was trained on text with it or
  /// that has 256 tokens.
  const std::string& tokenizer() const { return tokenizer_; }

  /// With Quantization::file, sets file_kinds to what the matrices of a GGUF file have; to none for
  /// other files, and for types of blocks that are read as values alone.
  void set_kinds(ModelConfig& model) const;

  /// What the user should know of the files: keys that are not read, a head that is not tied.
  const std::vector<std::string>& notes() const { return notes_; }

  /// How the model is, or was once, stored in a Hugging Face folder.
  struct Form {
    StoredType type = StoredType::f32;  ///< the narrowest that holds all tensors
    std::string prefix = {};            ///< of the tensors' names
  };
  /// The form of this Hugging Face folder, or of the one that a checkpoint's model came from; empty
  /// if the model was trained from new weights. Opens all files of a folder.
  std::optional<Form> origin() const;
  /// The same; without it, the type that the checkpoint was trained in.
  Form form() const { return origin().value_or(Form{.type = trained_in_}); }

  /// Returns the source of these parameters of `model`, which are all that the files should hold.
  /// The files must outlive it. Throws UsageError that lists all differences, or if there are no
  /// weights that can be read.
  std::unique_ptr<ParameterSource> source(const ModelConfig& model,
                                          std::vector<StoredParameter> parameters) const;

 private:
  KeptKinds kinds() const;
  enum class Format { hugging_face, peft, gguf, checkpoint };
  ModelFiles(std::string path, Format format, StoredWeights weights = StoredWeights::trained);
  void look_at_weights();
  std::unique_ptr<ParameterSource> untied_source(const ModelConfig& model,
                                                 std::vector<StoredParameter> parameters) const;

  std::string path_;
  Format format_;
  StoredWeights weights_;
  std::optional<CheckpointReader> checkpoint_;
  std::shared_ptr<const GgufFile> gguf_;
  ModelConfig config_;
  std::shared_ptr<const StoredAdapterConfig> merge_;  // of adapters that are only merged
  std::string base_, tokenizer_;
  std::vector<std::string> notes_;
  StoredType trained_in_ = StoredType::f32;
};

/// Files that programs expect beside the model in a Hugging Face folder. The end of an answer may
/// be one of several tokens, which only generation_config.json lists.
inline constexpr const char* kGenerationConfig = "generation_config.json";
inline constexpr std::array<std::string_view, 10> kTokenizerFiles = {
    "tokenizer.json",     "tokenizer_config.json", "tokenizer.model",         "vocab.json",
    "merges.txt",         "added_tokens.json",     "special_tokens_map.json", "chat_template.jinja",
    "chat_template.json", kGenerationConfig};
/// Whether a file of this name in a Hugging Face folder belongs to its model, adapters or
/// tokenizer.
bool is_model_file(std::string_view name);

/// Name and contents of a text file in a checkpoint whose model came from a Hugging Face folder. It
/// records the folder's form, so that converting back restores it.
inline constexpr const char* kOriginName = "hugging_face.json";
std::string to_text(const ModelFiles::Form& form);

/// Where load() puts one kind of values of a group's parameters.
struct Destination {
  ParameterGroup* group = nullptr;  ///< allocated
  std::string kind = kWeightsKind;  ///< as checkpoints call it
  float* buffer = nullptr;          ///< (P) on the device, for an optimizer; null: the parameters
  /// Where the values lie in the buffer; null: as the group's do in its piece.
  const std::vector<NamedSlice>* slices = nullptr;
  std::vector<Tensor> tensors = {};  ///< of the buffer: what may be in a file (InMemory)
};

/// The parameters of groups as files know them.
std::vector<StoredParameter> stored_parameters(std::span<ParameterGroup* const> groups);

/// Reads this rank's slices from files of any format, a few MiB at a time, and makes the new
/// parameters known to the other ranks. They go into master copies, or into the compute copies of
/// frozen groups; bf16 goes into bf16 unchanged. Collective over the grid. Throws UsageError, the
/// same on all ranks, as the source does; values are then partly set. `progress` is called with
/// the bytes of this rank.
LoadCost load(const Context& ctx, std::span<const Destination> destinations,
              ParameterSource& source, const Progress& progress = {});

/// Sets all parameters of a model with this config to those at config.path, or to initial values
/// from ctx.seed. Adapters are read from config.lora.path, or get initial values. `files` that are
/// null, or at other paths, are opened here. `trained`: the groups that are trained, or were before
/// they were frozen. Collective. Throws as load() does, and UsageError if the files are not of this
/// model.
LoadCost initialise(const Context& ctx, Model& model, std::span<ParameterGroup* const> trained,
                    const ModelConfig& config, const OpenFiles& files,
                    const Progress& progress = {});
/// Does the same for the other groups only: those of the base model of adapters, which a checkpoint
/// of a run does not hold. Does nothing without adapters. Collective.
LoadCost initialise_frozen(const Context& ctx, Model& model,
                           std::span<ParameterGroup* const> trained, const ModelConfig& config,
                           const OpenFiles& files, const Progress& progress = {});

/// Throws UsageError, as initialise() does, or as initialise_frozen() if `resumes`, unless the
/// files that it would read hold the model's parameters. Reads only their headers. Not collective.
void check_files(Model& model, std::span<ParameterGroup* const> trained, const ModelConfig& config,
                 const OpenFiles& files, bool resumes);

}  // namespace axonn
