#include "axonn/cli/flags.h"

#include <algorithm>
#include <iostream>

#include <CLI/CLI.hpp>

#include "axonn/base/check.h"
#include "axonn/model/known_models.h"
#include "axonn/options/options.h"
#include "axonn/options/options_text.h"

namespace axonn {

namespace {

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
    for (const auto& section : list->sections())
      for (const std::string& guess : guess_key(*list, section.name, word))
        if (!guess.starts_with('[') && guesses.size() < 4)
          guesses.push_back("--" + section.name + '.' + guess);
  }
  refuse(
      app.get_name(), " has no flag '", flag, "'",
      guesses.empty() ? concat("; ", app.get_name(), " --help lists them") : did_you_mean(guesses));
}

bool parse(CLI::App& app, Arguments arguments, const OptionList* list) {
  app.allow_extras();
  app.get_formatter()->column_width(32);
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

/// Sets model.name as the origin of the sizes that it changed from the defaults in `usual`.
void note_named(const OptionList& list, const OptionList& usual, Origins& origins) {
  for (const Option& option : list.find("model")->options)
    if (!origins.is_set(option.key()) &&
        option.default_text() != usual.find("model", option.name())->default_text())
      origins.set(option.key(), "model.name");
}

}  // namespace

bool parse_flags(CLI::App& app, const Arguments& arguments) {
  return parse(app, arguments, nullptr);
}

std::optional<LoadedConfig> read_config(CLI::App& app, const Arguments& arguments) {
  LoadedConfig loaded;
  app.add_option("CONFIG,--config", loaded.file, "a TOML file; axonn help lists its sections")
      ->type_name("FILE.toml");
  // Flags override the file, but the file's name is known only after the flags are removed.
  LoadedConfig scratch;
  OptionList scratch_list;
  list_options(scratch.config, scratch_list);
  const Arguments own = read_flags(scratch_list, arguments, scratch.origins);
  if (!parse(app, own, &scratch_list)) return std::nullopt;

  const auto read = [&] {
    OptionList list;
    list_options(loaded.config, list);
    if (!loaded.file.empty()) read_toml(list, loaded.file, loaded.origins);
    read_flags(list, arguments, loaded.origins);
    return list;
  };
  read();
  if (const std::string name = loaded.config.model.name; !name.empty()) {
    // The model's sizes are defaults; explicit values override them.
    loaded.config = {.model = known_model(name), .further = loaded.config.further};
    const OptionList list = read();
    if (loaded.config.model.path.empty()) note_named(list, scratch_list, loaded.origins);
  }
  return loaded;
}

}  // namespace axonn
