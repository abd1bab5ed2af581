#include "axonn/app/cli/config_flags.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <iostream>
#include <system_error>

#include <CLI/CLI.hpp>

#include "axonn/app/cli/standard_output.h"
#include "axonn/foundation/base/check.h"
#include "axonn/foundation/options/options.h"
#include "axonn/foundation/options/options_text.h"
#include "axonn/network/model/known_models.h"
#include "axonn/run/config/validate.h"
#include "axonn/run/load/launch.h"

namespace axonn {

namespace {

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

void warn_about(const LoadedConfig& loaded) {
  print_warnings(warnings(loaded.config, loaded.origins));
}

}  // namespace axonn
