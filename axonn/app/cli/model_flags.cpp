#include "axonn/app/cli/model_flags.h"

#include <algorithm>
#include <iostream>
#include <iterator>
#include <utility>

#include <CLI/CLI.hpp>

#include "axonn/app/cli/standard_output.h"
#include "axonn/app/start/start_run.h"
#include "axonn/foundation/base/check.h"
#include "axonn/network/model/model_files.h"
#include "axonn/run/config/config_options.h"
#include "axonn/run/config/stored_config.h"
#include "axonn/run/config/validate.h"
#include "axonn/run/load/launch.h"
#include "axonn/use/infer/evaluate.h"

namespace axonn {

void add_model_flags(CLI::App& app, ModelFlags& flags) {
  app.add_option("--model", flags.model,
                 "a checkpoint, a run's folder (its newest one), the file best in its checkpoints, "
                 "a Hugging Face folder or a GGUF file")
      ->type_name("DIR");
  app.add_option("--adapter", flags.adapter,
                 "adapters of that model: a PEFT folder or a checkpoint of adapters")
      ->type_name("DIR");
  app.add_flag("--ema", flags.ema,
               "the running averages of the checkpoint's weights (optimizer.ema_decay)");
  app.add_option("--grid", flags.grid, "x,y,z,data")->capture_default_str();
  app.add_option("--expert-ranks", flags.experts,
                 "neighbours along z that share the experts of each layer; divides the grid's z")
      ->check(count_from(1))
      ->capture_default_str();
  app.add_option("--dtype", flags.dtype,
                 "compute type; default: as the model was trained, else f32")
      ->check(CLI::IsMember(compute_type_names()));
  app.add_option(
         "--quantize", flags.quantize,
         "keep the matrices of the blocks as codes: q8_0 or int8 of 8.5 bits a weight, q6_k of "
         "6.6, q5_1 of 6, q5_0 or q5_k of 5.5, q4_1 of 5, nf4, fp4, q4_0 or q4_k of 4.5, mxfp4 of "
         "4.25, q3_k of 3.4; file: each matrix as a GGUF file has it, also of q2_k, iq4_nl and "
         "iq4_xs, or the experts in MXFP4 of a folder; default: as the model was trained, else "
         "none")
      ->check(CLI::IsMember(kQuantizations));
  app.add_flag("--quantize-embeddings", flags.quantize_embeddings,
               "with --quantize: the table of tokens and the output layer, too, as GGUF has them");
  add_device_flag(app, flags.device);
  app.add_option(
      "--machine", flags.machine,
      "machine by whose links ranks choose how to exchange data: a name or a file, as in "
      "axonn plan");
  app.add_option("--tokenizer", flags.tokenizer,
                 "bytes, or a tokenizer's folder or file; default: the model's own");
}

void add_chat_flags(CLI::App& app, ChatFlags& flags) {
  app.add_option("--chat-template", flags.chat_template,
                 concat("auto (the model's own), a .jinja file, ", kChatTemplates))
      ->capture_default_str();
  app.add_option("--chat-template-args", flags.chat_template_args,
                 "variables of the template, such as '{\"enable_thinking\": false}'")
      ->type_name("JSON");
}

std::shared_ptr<const ChatTemplate> chat_of(const ChatFlags& flags,
                                            const std::shared_ptr<const Tokenizer>& tokenizer,
                                            const ModelText& text) {
  ChatArguments arguments =
      chat_arguments(flags.chat_template, flags.chat_template_args, text, "--chat-template-args");
  if (flags.chat_template_args.empty()) arguments.now.reset();  // that of the training
  try {
    return std::make_shared<ChatTemplate>(tokenizer, find_chat_format(flags.chat_template, text),
                                          std::move(arguments));
  } catch (const UsageError& error) {
    if (flags.chat_template != "auto") throw;
    if (speaks_for_all()) std::cerr << "note: no chats: " << error.what() << '\n';
    return nullptr;
  }
}

Config open_model(const ModelFlags& flags) {
  Config config = config_of_model(flags.model, flags.adapter,
                                  flags.ema ? StoredWeights::averages : StoredWeights::trained);
  config = with_adapter_choices(std::move(config), flags.choices);
  warn_about_files(config);
  config.parallelism.set_grid(parse_grid(flags.grid));
  config.parallelism.context = flags.context;
  config.parallelism.experts = flags.experts;
  config.parallelism.device = flags.device;
  config.parallelism.machine = flags.machine;
  validate_device(flags.device);
  if (!flags.dtype.empty()) config.training.dtype = compute_type(flags.dtype);
  if (!flags.quantize.empty()) {
    const auto found = std::ranges::find(kQuantizations, flags.quantize);
    config.model.quantize = static_cast<Quantization>(found - kQuantizations.begin());
    if (config.model_files.model) config.model_files.model->set_kinds(config.model);
  }
  if (flags.quantize_embeddings) config.model.quantize_embeddings = true;
  if (!flags.quantize.empty() || flags.quantize_embeddings) validate(config.model);
  return config;
}

NamedPaths inputs_of(const ModelFlags& flags, const Config& config) {
  const std::string& tokenizer = flags.tokenizer.empty() ? config.data.tokenizer : flags.tokenizer;
  return {{"--model", flags.model},
          {"--model", config.model.path},
          {"--adapter", flags.adapter},
          {"--tokenizer", tokenizer}};
}

std::shared_ptr<const Tokenizer> tokenizer_of(Config& config, const ModelFlags& flags) {
  if (!flags.tokenizer.empty()) config.data.tokenizer = flags.tokenizer;
  if (config.data.tokenizer.empty()) return nullptr;
  auto tokenizer = make_tokenizer(config.data.tokenizer);
  print_warnings(tokenizer->notes());
  if (config.model.vocab == 0) config.model.vocab = tokenizer->vocab_size();
  return tokenizer;
}

std::shared_ptr<const Tokenizer> need_tokenizer(Config& config, const ModelFlags& flags) {
  auto tokenizer = tokenizer_of(config, flags);
  if (!tokenizer) refuse("the model's tokenizer is unknown; give it with --tokenizer");
  check_rows(*tokenizer, config.model.vocab);
  return tokenizer;
}

void warn_about_files(const Config& config) {
  const auto& [model, adapters, choices] = config.model_files;
  std::vector all{model, adapters};
  std::ranges::copy(choices, std::back_inserter(all));
  for (const auto& files : all) {
    if (!files) continue;
    std::vector<std::string> lines = files->notes();
    if (std::string note = generation_note(files->path()); !note.empty())
      lines.push_back(std::move(note));
    if (files->checkpoint())
      std::ranges::copy(files->checkpoint()->warnings(), std::back_inserter(lines));
    print_warnings(lines);
  }
}

ProgressTarget progress_of(const Config& config) {
  return standard_error_progress(!launches_mpi(config.parallelism));
}

void print_remarks(Backend& backend, const Communicator& world) {
  for (const std::string& remark : backend.take_remarks())
    if (world.rank() == 0) std::cerr << "note: " << remark << '\n';
}

void with_model(const Config& config, const std::function<void(LoadedModel&)>& body) {
  start_run(prepared_model(config), [&](const PreparedRun& agreed, Communicator& world) {
    LoadedModel loaded(agreed, world, nullptr,
                       {.trainable = false, .progress = progress_of(agreed.config())});
    loaded.initialise();
    print_remarks(loaded.backend(), world);
    body(loaded);
    print_remarks(loaded.backend(), world);
  });
}

}  // namespace axonn
