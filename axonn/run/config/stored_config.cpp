#include "axonn/run/config/stored_config.h"

#include <initializer_list>
#include <string_view>
#include <utility>

#include "axonn/data/storage/checkpoint/checkpoint_reader.h"
#include "axonn/data/text/tokenizer.h"
#include "axonn/foundation/base/check.h"
#include "axonn/foundation/options/options_text.h"
#include "axonn/network/model/model_files.h"
#include "axonn/run/config/config_options.h"
#include "axonn/run/config/run_text.h"

namespace axonn {

namespace {

/// Sets how the config's model reads and writes text, which its open files tell.
void take_text(Config& config) {
  const auto& [model, adapters, choices] = config.model_files;
  if (!model && !adapters) return;
  config.data.model_text = std::make_shared<const ModelText>(
      model ? text_of_files(*model, adapters.get()) : text_of_files(*adapters));
}

/// Names the model's adapters, which are those in `files`, by its products.
void name_products(ModelConfig& model, const ModelFiles& files) {
  LoraConfig lora = files.adapters_of(model);
  lora.path = std::move(model.lora.path);
  lora.dropout = model.lora.dropout;
  model.lora = std::move(lora);
}

/// Sets the model of a config to the one in `files`. Adapters stay those of the config, and so does
/// a tokenizer that the user chose.
void take_model(Config& config, std::shared_ptr<const ModelFiles> files, const Origins& origins) {
  LoraConfig lora = std::move(config.model.lora);
  const std::int64_t mtp_layers = config.model.mtp_layers;
  const Quantization quantize = config.model.quantize;
  const bool quantize_embeddings = config.model.quantize_embeddings;
  config.model = files->config();
  if (mtp_layers > config.model.mtp_layers)
    refuse("[model] mtp_layers = ", mtp_layers, ": the model at ", files->path(), " has ",
           config.model.mtp_layers, "; take at most as many");
  config.model.mtp_layers = mtp_layers;
  config.model.quantize = quantize;
  config.model.quantize_embeddings = quantize_embeddings;
  config.model.path = files->path();
  files->set_kinds(config.model);
  config.model.lora = std::move(lora);
  if (const auto& adapters = config.model_files.adapters) {
    if (adapters->only_merge() && adapters->untie()) config.model.tied = false;
    if (config.model.lora.rank > 0) name_products(config.model, *adapters);
  }
  config.model_files.model = std::move(files);
  take_text(config);
  const std::string& tokenizer = config.data.model_text->tokenizer;
  if (config.data.tokenizer == "bytes" && (!tokenizer.empty() || !origins.is_set("data.tokenizer")))
    config.data.tokenizer = tokenizer;
}

/// The config of a checkpoint, in which these sections keep their defaults.
Config read_config(const CheckpointReader& reader,
                   std::initializer_list<std::string_view> skipped) {
  Config config;
  OptionList list;
  list_options(config, list);
  for (const std::string_view section : skipped) list.remove(section);
  Origins origins;
  // A checkpoint may hold sections of other owners: of a study, or of a user's program.
  read_toml_text(list, reader.text("config.toml"), reader.folder() + "/config.toml", origins,
                 UnknownSections::skip);
  return config;
}

/// The config to run the model, whose text, which was taken, is its own: what the config of a run
/// says of templates is in there.
Config with_own_text(Config config) {
  config.data.tokenizer = config.data.model_text->tokenizer;
  if (config.data.model_text->forms.empty()) return config;
  config.data.chat_template = "auto";
  config.data.chat_template_args.clear();
  return config;
}

}  // namespace

Config stored_config(const CheckpointReader& reader) { return read_config(reader, {}); }

Config stored_config_to_run(const CheckpointReader& reader) {
  return read_config(reader, {"optimizer"});
}

std::string stored_config_text(Config config, const Origins& origins) {
  config.model.lora.path.clear();   // the checkpoint holds the adapters itself
  config.output.overwrite = false;  // a permission for one start
  if (config.model.path.empty()) return config_toml(config, origins);
  Origins all = origins;
  OptionList list;
  list_options(config, list);
  for (const Option& option : list.find("model")->options)
    if (!all.is_set(option.key())) all.set(option.key(), "model.path");
  return config_toml(config, all);
}

std::string stored_config_text(const ModelConfig& model, const std::string& tokenizer) {
  Config config;
  config.model = model;
  config.data.tokenizer = tokenizer;
  OptionList list;
  list_options(config, list);
  return "# The sizes of a converted model.\n\n" + to_toml(list, [](const Option& option) {
           const bool told = option.section() == "model" || option.key() == "data.tokenizer";
           return TomlNote{.comment = {}, .disabled = !told};
         });
}

Config with_stored_adapters(Config config, const std::string& path) {
  const auto files = std::make_shared<const ModelFiles>(ModelFiles::of_adapters(path));
  config.model.lora = files->config().lora;
  config.model.lora.path = path;
  config.model_files.adapters = files;
  return config;
}

Config with_adapter_choices(Config config, std::span<const std::string> paths) {
  if (paths.empty()) return config;
  if (config.model.lora.rank > 0 || config.model_files.adapters)
    refuse("the model has adapters already, which all sequences use; of several adapters each ",
           "sequence can use one only if the model is their base");
  for (const std::string& path : paths) {
    Config one = with_stored_adapters({}, path);
    const LoraConfig& lora = one.model.lora;
    if (one.model_files.adapters->only_merge() || lora.dora || !lora.modules.empty())
      refuse(path, " has DoRA, biases, whole modules or adapters outside of the blocks, which are ",
             "only merged; merge it into its base with axonn convert --model BASE --adapter ", path,
             " --out MERGED, and use MERGED as a model of its own");
    LoraConfig named = one.model_files.adapters->adapters_of(config.model);
    named.path = path;
    config.model.lora.choices.push_back(std::move(named));
    config.model_files.choices.push_back(std::move(one.model_files.adapters));
  }
  config.model.lora.rank = config.model.lora.choices.front().rank;
  return config;
}

Config with_stored_model(Config config, const Origins& origins) {
  const std::string adapters = config.model.lora.path;
  const double dropout = config.model.lora.dropout;
  if (!adapters.empty()) config = with_stored_adapters(config, adapters);
  config.model.lora.dropout = dropout;
  if (config.model.path.empty()) {
    if (config.model_files.adapters && config.model_files.adapters->only_merge())
      refuse("[lora] path = '", adapters, "' needs its base model: set [model] path");
    return config;
  }
  const auto files = std::make_shared<const ModelFiles>(config.model.path);
  if (config.model_files.adapters && config.model_files.adapters->only_merge())
    config.model_files.adapters =
        std::make_shared<const ModelFiles>(config.model_files.adapters->to_train(*files));
  if (files->adapters())
    refuse("[model] path = '", files->path(), "' holds only adapters of the model at '",
           files->base(), "'; set path to that model and [lora] path to the adapters");
  take_model(config, files, origins);
  return config;
}

PreparedRun model_beside(const Config& run, const std::string& path) {
  Config config = config_of_model(path);
  config.parallelism = run.parallelism;
  config.training = run.training;
  return prepared_model(std::move(config));
}

Config config_of_model(const std::string& path, const std::string& adapter) {
  return config_of_model(path, adapter, StoredWeights::trained);
}

Config config_of_model(const std::string& path, const std::string& adapter, StoredWeights weights) {
  const auto files = std::make_shared<const ModelFiles>(path, weights);
  Config config;
  if (files->checkpoint()) {
    config = stored_config_to_run(*files->checkpoint());
    config.model.mtp_layers = 0;  // of use in training alone
    // Device and transport of the training machine may not exist on this one.
    config.parallelism.device = DeviceKind::automatic;
    config.parallelism.transport = TransportKind::automatic;
  }
  if (!files->adapters()) {
    if (!adapter.empty()) config = with_stored_adapters(config, adapter);
    if (config.model_files.adapters && config.model_files.adapters->only_merge())
      config.model.lora = {};  // they are merged as the weights are read
    take_model(config, files, {});
    return with_own_text(config);
  }
  if (!adapter.empty())
    refuse("--adapter: ", path, " holds adapters itself; give the path of their base model");
  if (!files->checkpoint())
    refuse(path, " holds only adapters of the model at '", files->base(),
           "'; give the path of that model with --model and this one with --adapter");
  config.model.lora.path = path;
  config.model_files.adapters = files;
  if (!config.model.path.empty()) {
    config.model_files.model = std::make_shared<const ModelFiles>(config.model.path);
    config.model_files.model->set_kinds(config.model);
  }
  take_text(config);
  return with_own_text(config);
}

Config with_vocab(Config config) {
  if (config.model.vocab > 0) return config;
  if (config.data.tokenizer.empty())
    refuse("[model] vocab is not set, and token files do not state it; set model.vocab");
  config.model.vocab = make_tokenizer(config.data.tokenizer)->vocab_size();
  return config;
}

}  // namespace axonn
