#include "axonn/app/cli/flags.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <iostream>
#include <system_error>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "axonn/app/start/start_run.h"
#include "axonn/data/text/model_text.h"
#include "axonn/foundation/base/check.h"
#include "axonn/foundation/base/files.h"
#include "axonn/foundation/options/options.h"
#include "axonn/foundation/options/options_text.h"
#include "axonn/network/model/known_models.h"
#include "axonn/network/model/model_files.h"
#include "axonn/run/config/stored_config.h"
#include "axonn/run/config/validate.h"
#include "axonn/run/load/launch.h"
#include "axonn/use/infer/evaluate.h"

namespace axonn {

namespace {

/// A flag of another name in former versions, whose name had several meanings.
struct RenamedFlag {
  std::string_view command;
  std::string_view former, name;
};
constexpr std::array<RenamedFlag, 12> kRenamedFlags = {
    {{"axonn eval", "--context", "--context-ranks"},
     {"axonn eval", "--documents", "--document-mode"},
     {"axonn eval", "--experts", "--expert-ranks"},
     {"axonn generate", "--experts", "--expert-ranks"},
     {"axonn serve", "--experts", "--expert-ranks"},
     {"axonn memorize", "--experts", "--expert-ranks"},
     {"axonn memorize", "--prompts", "--prompt-lengths"},
     {"axonn plan", "--tokens", "--train-tokens"},
     {"axonn probe", "--output", "--out"},
     {"axonn data show", "--documents", "--document-mode"},
     {"axonn data synthetic", "--output", "--out"},
     {"axonn data tokenize", "--output", "--out"}}};

void refuse_renamed(const std::string& command, const Arguments& arguments) {
  for (const std::string& argument : arguments)
    for (const RenamedFlag& flag : kRenamedFlags)
      if (flag.command == command && argument.substr(0, argument.find('=')) == flag.former)
        refuse(command, " has no flag '", flag.former, "'; it is called ", flag.name);
}

/// Throws for an unknown argument. With `list`, also suggests keys of the configuration.
[[noreturn]] void refuse_argument(const CLI::App& app, const std::string& argument,
                                  const OptionList* list) {
  if (!argument.starts_with('-'))
    refuse(app.get_name(), " cannot use the argument '", argument, "'; ", app.get_name(),
           " --help shows its arguments");
  const std::string flag = argument.substr(0, argument.find('='));
  std::vector<std::string> flags;
  for (const CLI::Option* option : app.get_options())
    for (const std::string& name : option->get_lnames()) flags.push_back("--" + name);
  auto guesses = nearest(flag, flags);
  if (guesses.empty() && list) {
    std::string word = flag.substr(std::min(flag.find_first_not_of('-'), flag.size()));
    std::ranges::replace(word, '-', '_');
    if (!list->remedy_for(word).empty()) refuse_key(*list, "", word, flag);
    for (const auto& section : list->sections())
      for (const std::string& guess : guess_key(*list, section.name, word))
        if (!guess.starts_with('[') && guesses.size() < 4)
          guesses.push_back("--" + section.name + '.' + guess);
  }
  refuse(
      app.get_name(), " has no flag '", flag, "'",
      guesses.empty() ? concat("; ", app.get_name(), " --help lists them") : did_you_mean(guesses));
}

/// A source of data that a flag names replaces the file's and its stages, which would contradict
/// it.
void replace_data_source(LoadedConfig& loaded) {
  constexpr std::array kSources = {"text", "tokens", "jsonl", "synthetic"};
  Origins& origins = loaded.origins;
  const auto by_flag = [&](const char* source) {
    return origins.from_flag(concat("data.", source));
  };
  const auto chosen = std::ranges::find_if(kSources, by_flag);
  if (chosen == kSources.end()) return;
  const auto replaces = [&](const std::string& what) {
    if (speaks_for_all()) std::cerr << "note: --data." << *chosen << " replaces " << what << '\n';
  };
  if (!loaded.config.stage.empty()) replaces("the entries of [[stage]]");
  loaded.config.stage.clear();
  OptionList list;
  list_options(loaded.config, list);
  for (const char* source : kSources) {
    const Option& option = *list.find("data", source);
    if (!origins.is_set(option.key()) || by_flag(source)) continue;
    replaces(concat(option.key(), " (", origins.of(option.key()), ')'));
    option.set_text(option.is_list() ? "" : "0", option.key());
    origins.forget(option.key());
  }
}

/// A flag for the grid replaces what the file says of it in the other form: --parallelism.grid the
/// four extents, and a flag for one of these the extents of the file's grid one by one.
void replace_grid(LoadedConfig& loaded) {
  constexpr std::array kExtents = {"x", "y", "z", "data"};
  Origins& origins = loaded.origins;
  OptionList list;
  list_options(loaded.config, list);
  const auto key = [](const char* name) { return concat("parallelism.", name); };
  if (origins.from_flag(key("grid"))) {
    for (const char* extent : kExtents)
      if (origins.is_set(key(extent)) && !origins.from_flag(key(extent))) {
        list.find("parallelism", extent)->set_text("1", key(extent));
        origins.forget(key(extent));
      }
    return;
  }
  const bool by_extent =
      std::ranges::any_of(kExtents, [&](const char* e) { return origins.from_flag(key(e)); });
  ParallelismConfig& parallelism = loaded.config.parallelism;
  if (!by_extent || parallelism.named_grid.empty()) return;
  const GridShape given = parallelism.grid(), named = parallelism.automatic()
                                                          ? GridShape{}
                                                          : parse_grid(parallelism.named_grid);
  parallelism.set_grid(named);
  parallelism.named_grid.clear();
  origins.forget(key("grid"));
  const std::array values = {given.x, given.y, given.z, given.data};
  for (std::size_t i = 0; i < kExtents.size(); ++i)
    if (origins.is_set(key(kExtents[i])))
      list.find("parallelism", kExtents[i])->set_text(std::to_string(values[i]), key(kExtents[i]));
}

/// The file, or if there is none, the one of this name that was installed with the program: an
/// installed program is PREFIX/bin/axonn, and its configurations are PREFIX/share/axonn/configs.
std::string installed_config(const std::string& file) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  if (file.empty() || fs::path(file).is_absolute() || fs::exists(file, ignored)) return file;
  const fs::path program = fs::read_symlink("/proc/self/exe", ignored);
  const fs::path installed = program.parent_path().parent_path() / "share/axonn" / file;
  return fs::is_regular_file(installed, ignored) ? installed.string() : file;
}

}  // namespace

bool parse_flags(CLI::App& app, Arguments arguments, const OptionList* list) {
  app.allow_extras();
  app.get_formatter()->column_width(32);
  refuse_renamed(app.get_name(), arguments);
  std::ranges::reverse(arguments);  // CLI11 reads them from the back
  try {
    app.parse(arguments);
  } catch (const CLI::CallForHelp&) {
    std::cout << app.help();
    return false;
  } catch (const CLI::ParseError& error) {
    refuse(app.get_name(), ": ", error.what());
  }
  const auto others = app.remaining();
  if (others.empty()) return true;
  const auto flag =
      std::ranges::find_if(others, [](const std::string& word) { return word.starts_with('-'); });
  refuse_argument(app, flag == others.end() ? others.front() : *flag, list);
}

CLI::Validator count_from(std::int64_t least) {
  constexpr std::int64_t kMost = (std::int64_t{1} << 31) - 1;
  return CLI::Range(least, kMost).description(least > 0 ? "POSITIVE" : "NONNEGATIVE");
}

CLI::Validator number_from(double least, double most) {
  const auto trouble = [least, most](const std::string& text) -> std::string {
    double value = 0;
    const bool read = CLI::detail::lexical_cast(text, value);
    if (read && value >= least && value <= most) return "";  // which NaN is not
    return fmt::format("wanted a number from {} to {}, got '{}'", least, most, text);
  };
  return CLI::Validator(trouble, fmt::format("{} to {}", least, most));
}

std::optional<LoadedConfig> read_config(CLI::App& app, const Arguments& arguments) {
  LoadedConfig loaded;
  std::string file;
  app.add_option("CONFIG,--config", file, "a TOML file; axonn help lists its sections")
      ->type_name("FILE.toml");
  // Flags override the file, but the file's name is known only after the flags are removed.
  LoadedConfig scratch;
  OptionList scratch_list;
  list_options(scratch.config, scratch_list);
  const Arguments own = read_flags(scratch_list, arguments, scratch.origins);
  if (!parse_flags(app, own, &scratch_list)) return std::nullopt;

  file = installed_config(file);
  const auto read = [&] {
    OptionList list;
    list_options(loaded.config, list);
    if (!file.empty()) read_toml(list, file, loaded.origins);
    read_flags(list, arguments, loaded.origins);
    return list;
  };
  read();
  if (const std::string name = loaded.config.model.name; !name.empty()) {
    // The model's sizes are defaults; explicit values override them.
    loaded.config = {.model = known_model(name), .further = loaded.config.further};
    const OptionList list = read();
    for (const Option& option : list.find("model")->options)
      if (loaded.config.model.path.empty() && !loaded.origins.is_set(option.key()) &&
          option.default_text() != scratch_list.find("model", option.name())->default_text())
        loaded.origins.set(option.key(), "model.name");  // a size that differs from the default
  }
  loaded.config.file = file;
  replace_data_source(loaded);
  replace_grid(loaded);
  set_adapter_defaults(loaded.config, loaded.origins);
  name_output(loaded.config, loaded.origins);
  return loaded;
}

void warn_about_files(const Config& config) {
  if (!speaks_for_all()) return;
  for (const auto& files : {config.model_files.model, config.model_files.adapters}) {
    if (!files) continue;
    std::vector<std::string> lines = files->notes();
    if (std::string note = generation_note(files->path()); !note.empty())
      lines.push_back(std::move(note));
    if (files->checkpoint())
      std::ranges::copy(files->checkpoint()->warnings(), std::back_inserter(lines));
    for (const std::string& line : lines) std::cerr << "warning: " << line << '\n';
  }
}

void warn_about(const LoadedConfig& loaded) {
  if (!speaks_for_all()) return;
  for (const std::string& line : warnings(loaded.config, loaded.origins))
    std::cerr << "warning: " << line << '\n';
}

CLI::Option* add_choice_flag(CLI::App& app, const std::string& flag,
                             std::span<const std::string_view> names, std::function<void(int)> set,
                             const std::string& help) {
  const std::vector<std::string> known(names.begin(), names.end());
  return app
      .add_option_function<std::string>(
          flag,
          [known, set = std::move(set)](const std::string& name) {
            set(static_cast<int>(std::ranges::find(known, name) - known.begin()));
          },
          help)
      ->check(CLI::IsMember(known));
}

CLI::Option* add_device_flag(CLI::App& app, DeviceKind& device) {
  return add_choice_flag(
             app, "--device", device, kDeviceKinds,
             "auto (GPUs if every rank finds one that passes a self-test), cpu, cuda or hip")
      ->type_name("DEVICE");
}

void add_model_flags(CLI::App& app, ModelFlags& flags) {
  app.add_option("--model", flags.model,
                 "a checkpoint, a run's folder (its newest one), the file best in its checkpoints, "
                 "or a Hugging Face folder")
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
      ->check(CLI::IsMember({"f32", "bf16"}));
  add_device_flag(app, flags.device);
  app.add_option(
      "--machine", flags.machine,
      "machine by whose links ranks choose how to exchange data: a name or a file, as in "
      "axonn plan");
  app.add_option("--tokenizer", flags.tokenizer,
                 "bytes, or a tokenizer's folder or file; default: the model's own");
}

Config open_model(const ModelFlags& flags) {
  Config config = config_of_model(flags.model, flags.adapter,
                                  flags.ema ? StoredWeights::averages : StoredWeights::trained);
  warn_about_files(config);
  config.parallelism.set_grid(parse_grid(flags.grid));
  config.parallelism.context = flags.context;
  config.parallelism.experts = flags.experts;
  config.parallelism.device = flags.device;
  config.parallelism.machine = flags.machine;
  validate_device(flags.device);
  if (!flags.dtype.empty()) config.training.dtype = flags.dtype == "f32" ? DType::f32 : DType::bf16;
  return config;
}

NamedPaths inputs_of(const ModelFlags& flags, const Config& config) {
  const std::string& tokenizer = flags.tokenizer.empty() ? config.data.tokenizer : flags.tokenizer;
  return {{"--model", flags.model},
          {"--model", config.model.path},
          {"--adapter", flags.adapter},
          {"--tokenizer", tokenizer}};
}

void add_overwrite_flag(CLI::App& app, bool& overwrite) {
  app.add_flag("--overwrite", overwrite, "replace what exists there");
}

std::shared_ptr<const Tokenizer> tokenizer_of(Config& config, const ModelFlags& flags) {
  if (!flags.tokenizer.empty()) config.data.tokenizer = flags.tokenizer;
  if (config.data.tokenizer.empty()) return nullptr;
  auto tokenizer = make_tokenizer(config.data.tokenizer);
  if (speaks_for_all())
    for (const std::string& line : tokenizer->notes()) std::cerr << "warning: " << line << '\n';
  if (config.model.vocab == 0) config.model.vocab = tokenizer->vocab_size();
  return tokenizer;
}

std::shared_ptr<const Tokenizer> need_tokenizer(Config& config, const ModelFlags& flags) {
  auto tokenizer = tokenizer_of(config, flags);
  if (!tokenizer) refuse("the model's tokenizer is unknown; give it with --tokenizer");
  check_rows(*tokenizer, config.model.vocab);
  return tokenizer;
}

ProgressTarget progress_of(const Config& config) {
  return standard_error_progress(!launches_mpi(config));
}

void print_remarks(Backend& backend, const Communicator& world) {
  for (const std::string& remark : backend.take_remarks())
    if (world.rank() == 0) std::cerr << "note: " << remark << '\n';
}

void with_model(const Config& config, const std::function<void(LoadedModel&)>& body) {
  start_run(prepared_model(config), [&](const PreparedRun& agreed, Communicator& world) {
    LoadedModel loaded(agreed, world, nullptr,
                       {.trainable = false, .progress = progress_of(agreed)});
    loaded.initialise();
    print_remarks(loaded.backend(), world);
    body(loaded);
    print_remarks(loaded.backend(), world);
  });
}

}  // namespace axonn
