#include "axonn/app/cli/flags.h"

#include <algorithm>
#include <cctype>
#include <string>
#include <string_view>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "axonn/app/cli/standard_output.h"
#include "axonn/foundation/base/check.h"
#include "axonn/foundation/options/options.h"
#include "axonn/foundation/options/options_text.h"
#include "axonn/run/config/config_options.h"
#include "axonn/use/infer/generator.h"

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
  // "--output" for "--out", "--context" for "--context-ranks".
  constexpr std::size_t kLeast = 5;
  for (const std::string& one : flags)
    if (std::min(one.size(), flag.size()) >= kLeast &&
        (one.starts_with(flag) || flag.starts_with(one)) &&
        std::ranges::find(guesses, one) == guesses.end())
      guesses.push_back(one);
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

}  // namespace

bool parse_flags(CLI::App& app, Arguments arguments, const OptionList* list) {
  app.allow_extras();
  app.get_formatter()->column_width(32);
  std::ranges::reverse(arguments);  // CLI11 reads them from the back
  std::string fault;
  try {
    app.parse(arguments);
  } catch (const CLI::CallForHelp&) {
    std::cout << for_terminal(app.help());
    return false;
  } catch (const CLI::ParseError& error) {
    fault = concat(app.get_name(), ": ", error.what());
  }
  const auto others = app.remaining();
  const auto flag =
      std::ranges::find_if(others, [](const std::string& word) { return word.starts_with('-'); });
  // What is missing may be there under another name.
  if (flag != others.end()) refuse_argument(app, *flag, list);
  if (!fault.empty()) refuse(fault);
  if (others.empty()) return true;
  refuse_argument(app, others.front(), list);
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

void add_draft_flags(CLI::App& app, std::int64_t& drafts, std::string& model) {
  constexpr std::int64_t kUsual = 5;
  app.add_option("--drafts", drafts,
                 "most tokens that a pass guesses from what followed the same tokens earlier in "
                 "the text, faster where texts repeat; or that the model of --draft writes")
      ->capture_default_str()
      ->check(CLI::Range(0, 15));
  app.add_option_function<std::string>(
         "--draft",
         [&drafts, &model](const std::string& path) {
           model = path;
           if (drafts == 0) drafts = kUsual;
         },
         "a smaller model of the same tokens, which writes --drafts tokens (5) that a pass "
         "verifies; texts are those without it")
      ->type_name("DIR");
}

void add_integer_products_flag(CLI::App& app, bool& integer_products) {
  app.add_flag(
      "--integer-products", integer_products,
      "with --quantize file or of GGUF's kinds (but q4_1, q5_1, q2_k, iq4_nl, iq4_xs, "
      "mxfp4): round what codes are multiplied by to 8 bits, as llama.cpp does (ARM: for up to "
      "four texts at a time): faster, and log-probabilities off by about 0.01");
}

void add_kv_cache_flag(CLI::App& app, KeptForm& form) {
  static constexpr std::array<std::string_view, 2> kNames = {"dtype", "q8_0"};
  static constexpr std::array kKinds = {Quantization::none, Quantization::q8_0};
  add_choice_flag(
      app, "--kv-cache", kNames, [&form](int i) { form.kind = kKinds[i]; },
      "how keys and values of tokens are kept: dtype, in the compute type (default); q8_0, as "
      "codes of 8.5 bits, on the CPU")
      ->type_name("TYPE");
}

void add_overwrite_flag(CLI::App& app, bool& overwrite) {
  app.add_flag("--overwrite", overwrite, "replace what exists there");
}

std::string shell_word(const std::string& value) {
  constexpr std::string_view kPlain = "_./,:=+-";
  const bool plain = !value.empty() && std::ranges::all_of(value, [&](unsigned char c) {
    return std::isalnum(c) || kPlain.find(static_cast<char>(c)) != kPlain.npos;
  });
  if (plain) return value;
  std::string quoted;
  for (const char c : value) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return concat('\'', quoted, '\'');
}

std::string flag_value(const Option& option) {
  const std::vector<std::string> strings = option.strings();
  std::string value = strings.empty() ? option.text() : join(strings, ",");
  if (value.starts_with('"')) value = value.substr(1, value.size() - 2);  // a choice's name
  return shell_word(value);
}

}  // namespace axonn
