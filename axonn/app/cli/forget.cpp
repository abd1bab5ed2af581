#include <iostream>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "axonn/app/cli/command.h"
#include "axonn/app/cli/info.h"
#include "axonn/app/cli/train.h"
#include "axonn/app/start/start_run.h"
#include "axonn/compute/ops/cpu/instructions.h"
#include "axonn/data/storage/checkpoint/state_hash.h"
#include "axonn/foundation/base/check.h"
#include "axonn/foundation/base/clock.h"
#include "axonn/foundation/base/files.h"
#include "axonn/foundation/base/log.h"
#include "axonn/run/load/launch.h"
#include "axonn/run/records/run_list.h"
#include "axonn/run/train/forget_plan.h"

namespace axonn {

namespace {

constexpr const char* kForgetExamples =
    R"(Finds the first step that read one of the documents, resumes from the last checkpoint before
it, and trains on without them: the key data.forget blanks them, and all else keeps its place. The
weights are then those of a run that never counted the documents, to the bit. RUN stays as it is.
The folder of the result has forget.json, a record of what was done. docs/forgetting.md says what
this means, and what it does not.

Examples:
  axonn forget out/run --documents withdrawn.jsonl --dry-run
      where the documents are, and how many steps and minutes it takes
  axonn forget out/run --documents withdrawn.jsonl --out out/run-2
      forgets them; the same command goes on after a kill
  axonn forget out/run --documents withdrawn.jsonl --verify
      also repeats the whole run without them, and compares the bits

Exit codes: 0 done, 1 failed or not equal, 2 usage error, 75 stopped by a signal.)";

struct ForgetFlags {
  std::string run, out;
  std::vector<std::string> documents;
  bool dry = false, verify = false;
};

constexpr const char* kManifestName = "forget.json";

/// The config that a run has written to its folder; nothing if there is none.
std::optional<LoadedConfig> config_in(const std::string& folder) {
  CLI::App app("", "axonn forget");
  const std::string file = folder + "/config.toml";
  if (!path_exists(file)) return {};
  return read_config(app, {"--config", file});
}

/// The config of the run with its new documents, in its new folder.
LoadedConfig config_without(const ForgetFlags& flags) {
  std::optional<LoadedConfig> found = config_in(flags.run);
  if (!found)
    refuse("axonn forget: ", flags.run, " holds no config.toml; give output.dir of a run");
  LoadedConfig loaded = *std::move(found);
  Config& config = loaded.config;
  config.data.forget.insert(config.data.forget.end(), flags.documents.begin(),
                            flags.documents.end());
  loaded.origins.set("data.forget", "--documents");
  config.output.dir = flags.out;
  config.output.overwrite = false;
  config.checkpoint.resume = "";
  if (config.parallelism.automatic())
    refuse("[parallelism] grid = \"auto\": the grid of ", flags.run,
           " is not known; set it in its config.toml");
  if (flags.verify && config.training.tune)
    refuse("axonn forget --verify: [training] tune = true chooses products by their speed, so two ",
           "runs may have other bits; leave --verify out");
  return loaded;
}

std::string verify_folder(const ForgetFlags& flags) { return flags.out + "-verify"; }

std::int64_t tokens_of(const ForgottenDocument& document) {
  std::int64_t tokens = 0;
  for (const auto& spans : document.occurrences)
    for (const Span& span : spans) tokens += span.end - span.begin;
  return tokens;
}

std::int64_t occurrences_of(const ForgottenDocument& document) {
  std::int64_t occurrences = 0;
  for (const auto& spans : document.occurrences) occurrences += std::ssize(spans);
  return occurrences;
}

void print(const ForgetPlan& plan, const ForgetFlags& flags, bool examples) {
  std::int64_t occurrences = 0, tokens = 0;
  for (const ForgottenDocument& document : plan.documents) {
    occurrences += occurrences_of(document);
    tokens += tokens_of(document);
  }
  for (const std::string& warning : plan.warnings) std::cerr << "warning: " << warning << '\n';
  std::cout << fmt::format("documents    {}, in {} places of the data{}\n", plan.documents.size(),
                           format_count(occurrences),
                           examples ? "" : ", " + format_count(tokens) + " tokens");
  if (!plan.first) {
    std::cout << "first read   by none of the " << plan.steps
              << " steps, so there is nothing to forget\n";
    return;
  }
  const std::string time =
      plan.step_seconds > 0 ? ", about " + format_duration(plan.seconds()) + " at the run's speed"
                            : "";
  std::cout << fmt::format(
      "first read   by step {} of {}\ncheckpoint   {}\nrepeats      {} steps ({:.0f} %){}\n"
      "writes       {}{}\n",
      plan.first.value(), plan.steps,
      plan.checkpoint.empty() ? "none before it: the run starts anew" : plan.checkpoint,
      plan.repeated(), 100 * static_cast<double>(plan.repeated()) / static_cast<double>(plan.steps),
      time, flags.out,
      flags.verify ? concat("\nverifies     by the whole run anew, in ", verify_folder(flags))
                   : "");
}

/// Where the run goes on if its folder has checkpoints of it, and begins at `from` ("": anew)
/// otherwise; then a folder that holds another run is refused.
RunOutput place_in(const std::string& folder, const std::string& from, const LoadedConfig& loaded) {
  const auto there = config_in(folder);
  const bool same = there && there->config.data.forget == loaded.config.data.forget;
  return {folder, same && has_checkpoint(folder + "/checkpoints") ? "auto" : from};
}

/// Trains from the plan's checkpoint and, to verify, anew. Returns the exit code of train.
int run_without(LoadedConfig loaded, const ForgetPlan& plan, const ForgetFlags& flags) {
  const RunOutput place = place_in(flags.out, plan.checkpoint, loaded);
  loaded.config.output.dir = place.folder;
  loaded.config.checkpoint.resume = place.resume;
  TrainFlags how;
  if (flags.verify) how.again.push_back(place_in(verify_folder(flags), "", loaded));
  return run_training(loaded, how);
}

nlohmann::json to_json(const std::string& checkpoint) {
  const CheckpointReader reader(checkpoint);
  const StateHash hash = hash_of_state(reader);
  return {{"checkpoint", reader.folder()},
          {"step", hash.step},
          {"sha256", hash.kinds},
          {"state", hash.state}};
}

nlohmann::json to_json(const ForgottenDocument& document) {
  auto occurrences = nlohmann::json::array();
  for (std::size_t stream = 0; stream < document.occurrences.size(); ++stream)
    for (const Span& span : document.occurrences[stream])
      occurrences.push_back({stream, span.begin, span.end});
  return {{"name", document.name}, {"xxh3", document.hash}, {"places", std::move(occurrences)}};
}

/// The record of what was done.
nlohmann::json manifest_of(const ForgetPlan& plan, const ForgetFlags& flags,
                           const LoadedConfig& loaded) {
  auto documents = nlohmann::json::array();
  for (const ForgottenDocument& document : plan.documents) documents.push_back(to_json(document));
  const BuildInfo& build = build_info();
  nlohmann::json from;
  if (!plan.checkpoint.empty()) from = to_json(plan.checkpoint);
  return {
      {"format", "axonn forget"},
      {"version", 1},
      {"date", utc_now()},
      {"program",
       {{"version", build.version},
        {"build", build.type},
        {"compiler", build.compiler},
        {"flags", build.flags},
        {"instructions", cpu::kernel_instructions()}}},
      {"run", flags.run},
      {"grid", to_string(loaded.config.parallelism.grid())},
      {"config", print_config(loaded.config, loaded.origins)},
      {"documents", std::move(documents)},
      {"steps", {{"first_read", *plan.first}, {"of", plan.steps}, {"repeated_after", plan.from}}},
      {"warnings", plan.warnings},
      {"resumed_from", std::move(from)},
      {"before", to_json(flags.run)},
      {"after", to_json(flags.out)},
      {"verified", nullptr}};
}

/// Compares the run that forgot with that from scratch. Returns the exit code.
int verify(const ForgetFlags& flags, nlohmann::json& manifest) {
  const std::string twin = verify_folder(flags);
  const nlohmann::json from_scratch = to_json(twin);
  const bool equal = from_scratch["sha256"] == manifest["after"]["sha256"] &&
                     from_scratch["step"] == manifest["after"]["step"];
  manifest["verified"] = {{"equal", equal}, {"from_scratch", from_scratch}};
  if (equal)
    std::cout << "equal to the bit: weights and optimizer of " << flags.out << " and " << twin
              << '\n';
  else
    std::cout << "NOT equal: axonn hash " << flags.out << ' ' << twin << " shows where\n";
  return equal ? 0 : kFailed;
}

/// Prints and writes what was done. Returns the exit code.
int finish(const ForgetPlan& plan, const LoadedConfig& loaded, const ForgetFlags& flags) {
  nlohmann::json manifest = manifest_of(plan, flags, loaded);
  const int code = flags.verify ? verify(flags, manifest) : 0;
  const std::string file = concat(flags.out, '/', kManifestName);
  write_file_atomically(file, manifest.dump(2) + '\n');
  const auto weights = [&](const char* when) {
    return manifest[when]["sha256"]["master"].get<std::string>();
  };
  std::cout << fmt::format("weights      {} before\n             {} after\nrecord       {}\n",
                           weights("before"), weights("after"), file);
  return code;
}

}  // namespace

int run_forget(const Arguments& arguments) {
  ForgetFlags flags;
  CLI::App app("Makes a run forget documents, to the bit, by repeating it from before them.",
               "axonn forget");
  app.footer(kForgetExamples);
  app.add_option("RUN", flags.run, "output.dir of the run")->required()->type_name("DIR");
  app.add_option(
         "--documents", flags.documents,
         "files of documents as for data.text, or, if the run has data.jsonl, of its lines: "
         "exactly as they are in the data")
      ->required()
      ->type_name("FILE");
  app.add_option("--out", flags.out, "folder of the new run; default: RUN-forgot")
      ->type_name("DIR");
  app.add_flag("--dry-run", flags.dry, "say where the documents are and what it takes, and stop");
  app.add_flag("--verify", flags.verify,
               "also repeat the whole run without the documents, in OUT-verify, and compare");
  if (!parse_flags(app, arguments)) return 0;
  while (flags.run.size() > 1 && flags.run.back() == '/') flags.run.pop_back();
  if (flags.out.empty()) flags.out = flags.run + "-forgot";
  const LoadedConfig loaded = config_without(flags);
  const Config config = prepare_run(loaded.config, loaded.origins).config();
  const ForgetPlan plan = plan_forgetting(config, flags.run);
  if (speaks_for_all()) print(plan, flags, !config.data.jsonl.empty());
  if (flags.dry || !plan.first) return 0;
  const int code = run_without(loaded, plan, flags);
  return code != 0 || !speaks_for_all() ? code : finish(plan, loaded, flags);
}

}  // namespace axonn
