#include "axonn/cli/model_flags.h"

#include <iostream>

#include <CLI/CLI.hpp>

#include "axonn/cli/launch.h"
#include "axonn/train/devices.h"
#include "axonn/train/own_cores.h"

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

StoredModel stored_model_of(const ModelFlags& flags) {
  StoredModel model = open_stored_model(flags.model, flags.adapter);
  if (model.reader && speaks_for_all())
    for (const std::string& warning : model.reader->warnings())
      std::cerr << "warning: " << warning << '\n';
  model.config.parallelism.set_grid(parse_grid(flags.grid));
  if (!flags.dtype.empty())
    model.config.training.dtype = flags.dtype == "f32" ? DType::f32 : DType::bf16;
  return model;
}

std::shared_ptr<const Tokenizer> tokenizer_of(const StoredModel& model, const ModelFlags& flags) {
  if (!flags.tokenizer.empty()) return make_tokenizer(flags.tokenizer);
  const Config& config = model.config;
  const bool learned_bytes = model.reader && config.data.tokens.empty();
  const std::int64_t vocab = config.model.vocab;
  if (config.data.tokenizer == "bytes" && !learned_bytes && vocab != 0 && vocab != 256)
    return nullptr;
  return make_tokenizer(config.data.tokenizer);
}

void with_model(const StoredModel& model, const std::function<void(LoadedModel&)>& body) {
  launch(model.config, [&](Communicator& world) {
    const OwnCores cores(model.config, world);
    LoadedModel loaded(model.config, world, make_backend(model.config, world, cores.threads()),
                       {.trainable = false});
    load_parameters(loaded, model);
    body(loaded);
  });
}

}  // namespace axonn
