#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "axonn/app/cli/flags.h"
#include "axonn/data/text/model_text.h"
#include "axonn/data/text/tokenizer.h"
#include "axonn/run/config/inputs.h"
#include "axonn/run/load/loaded_model.h"

namespace axonn {

/// Flags of commands that run a model without training it.
struct ModelFlags {
  std::string model, adapter, tokenizer, grid = "1,1,1,1", dtype;
  std::string quantize;              ///< one of kQuantizations; "": as the checkpoint says
  bool quantize_embeddings = false;  ///< the table of tokens and the output layer, too
  std::string machine;               ///< whose links decide about collectives; "": unknown
  DeviceKind device = DeviceKind::automatic;
  int context = 1;  ///< neighbours along z that share sequences; only eval has a flag for it
  int experts = 1;  ///< neighbours along z that share experts
  /// Paths of adapters of which each sequence uses one or none; only serve has a flag for it.
  std::vector<std::string> choices = {};
  bool ema = false;  ///< the averages of the checkpoint's weights in their place
};
void add_model_flags(CLI::App& app, ModelFlags& flags);

/// Flags of commands that answer chats.
struct ChatFlags {
  std::string chat_template = "auto", chat_template_args;
};
void add_chat_flags(CLI::App& app, ChatFlags& flags);

/// The chat template of the flags, for a model with this text; null, with a note, if it has none
/// and none was asked for. Throws as find_chat_format() and ChatTemplate.
std::shared_ptr<const ChatTemplate> chat_of(const ChatFlags& flags,
                                            const std::shared_ptr<const Tokenizer>& tokenizer,
                                            const ModelText& text);

/// The config of the model (config_of_model()), with the grid, the type and the device of the
/// flags. Prints one line for each damaged checkpoint that was skipped. Throws UsageError if there
/// is no such device.
Config open_model(const ModelFlags& flags);

/// The files that a command with these flags and the config of open_model() reads.
NamedPaths inputs_of(const ModelFlags& flags, const Config& config);

/// The tokenizer of the flags or of the model, which sets config's data.tokenizer, and its vocab if
/// that is 0; null if neither is known.
std::shared_ptr<const Tokenizer> tokenizer_of(Config& config, const ModelFlags& flags);

/// tokenizer_of(). Throws UsageError if there is none, or one with more tokens than the vocabulary.
std::shared_ptr<const Tokenizer> need_tokenizer(Config& config, const ModelFlags& flags);

/// Prints the notes of the files of a model and its adapters, once for all ranks.
void warn_about_files(const Config& config);

/// Rank 0 prints the backend's new remarks (Backend::take_remarks()).
void print_remarks(Backend& backend, const Communicator& world);

/// Runs body once per rank of the config's grid, with the parameters loaded. Rank 0 prints the
/// backend's remarks.
void with_model(const Config& config, const std::function<void(LoadedModel&)>& body);

/// Standard error, for the progress of ranks started for config. Not redrawn under a launcher,
/// where a rank may see a terminal even if the output is a file.
ProgressTarget progress_of(const Config& config);

}  // namespace axonn
