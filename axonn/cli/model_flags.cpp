#include "axonn/cli/model_flags.h"

#include <iostream>

#include <CLI/CLI.hpp>

#include "axonn/train/launch.h"

namespace axonn {

void add_model_flags(CLI::App& app, ModelFlags& flags) {
  app.add_option("--model", flags.model,
                 "a checkpoint, the folder of several (the newest), or a Hugging Face folder")
      ->type_name("DIR");
  app.add_option("--adapter", flags.adapter,
                 "adapters of that model: a PEFT folder or a checkpoint of adapters")
      ->type_name("DIR");
  app.add_option("--grid", flags.grid, "x,y,z,data")->capture_default_str();
  app.add_option("--dtype", flags.dtype,
                 "compute type; default: as the model was trained, else f32")
      ->check(CLI::IsMember({"f32", "bf16"}));
  app.add_option("--tokenizer", flags.tokenizer,
                 "bytes, or a tokenizer's folder or file; default: the model's own");
}

Config open_model(const std::string& path, const std::string& adapter) {
  Config config = config_of_model(path, adapter);
  for (const auto& files : {config.model.files, config.model.adapter_files})
    if (files && files->checkpoint() && speaks_for_all())
      for (const std::string& warning : files->checkpoint()->warnings())
        std::cerr << "warning: " << warning << '\n';
  return config;
}

Config open_model(const ModelFlags& flags) {
  Config config = open_model(flags.model, flags.adapter);
  config.parallelism.set_grid(parse_grid(flags.grid));
  if (!flags.dtype.empty()) config.training.dtype = flags.dtype == "f32" ? DType::f32 : DType::bf16;
  return config;
}

std::shared_ptr<const Tokenizer> tokenizer_of(const Config& config, const ModelFlags& flags) {
  if (!flags.tokenizer.empty()) return make_tokenizer(flags.tokenizer);
  const auto& files =
      config.model.path == flags.model ? config.model.files : config.model.adapter_files;
  const bool learned_bytes = files->checkpoint() && config.data.tokens.empty();
  const std::int64_t vocab = config.model.vocab;
  if (config.data.tokenizer == "bytes" && !learned_bytes && vocab != 0 && vocab != 256)
    return nullptr;
  return make_tokenizer(config.data.tokenizer);
}

void with_model(const Config& config, const std::function<void(LoadedModel&)>& body) {
  launch(config, [&](Communicator& world) {
    LoadedModel loaded(config, world, nullptr, {.trainable = false});
    loaded.initialise();
    body(loaded);
  });
}

}  // namespace axonn
