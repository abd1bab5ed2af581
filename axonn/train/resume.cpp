#include "axonn/train/resume.h"

#include <algorithm>
#include <initializer_list>
#include <iterator>
#include <optional>

#include "axonn/base/check.h"
#include "axonn/comm/texts.h"
#include "axonn/config/config_options.h"
#include "axonn/config/stored_config.h"
#include "axonn/config/unused_keys.h"
#include "axonn/model/model.h"
#include "axonn/model/model_files.h"
#include "axonn/options/options.h"
#include "axonn/tensor/address.h"

namespace axonn {

namespace {

std::vector<std::string> kinds_of(const OptimizerState& optimizer) {
  std::vector<std::string> kinds;
  for (const auto& [kind, data] : optimizer.buffers(0)) kinds.push_back(kind);
  return kinds;
}

LoadCost load_state(const LoadedModel& model, OptimizerState& optimizer,
                    const CheckpointReader& reader) {
  std::vector<Destination> to;
  for (std::size_t i = 0; i < model.trained().size(); ++i)
    for (const auto& [kind, data] : optimizer.buffers(i))
      to.push_back({model.trained()[i], kind, address<float>(data)});
  CheckpointSource source(reader, stored_parameters(model.trained()), kinds_of(optimizer));
  ProgressLine line(model.progress(), kLoading);
  return load(model.context(), to, source, std::ref(line));
}

/// A line for each key that makes a model what it is, and for optimizer.kind, that is not as in the
/// checkpoint: "model.ffn was 64 and is 32".
std::vector<std::string> changed_keys(const CheckpointReader& reader, const Config& config) {
  std::vector<std::string> lines;
  Config now = config, then;
  if (!fault_of([&] { then = stored_config(reader); }).empty()) return lines;
  OptionList of_now, of_then;
  list_options(now, of_now);
  list_options(then, of_then);
  const KeyReasons unused = unused_keys(config);
  const auto compare = [&](std::string_view section,
                           std::initializer_list<std::string_view> without) {
    for (const Option& is : of_now.find(section)->options) {
      const Option* was = of_then.find(section, is.name());
      const bool read =
          std::ranges::find(unused, is.key(), [](auto& one) { return one.first; }) == unused.end();
      if (was && was->text() != is.text() && read &&
          std::ranges::find(without, is.name()) == without.end())
        lines.push_back(concat(is.key(), " was ", was->text(), " and is ", is.text()));
    }
  };
  compare("model", {"path", "name", "init_std"});
  compare("lora", {"path", "dropout"});
  const Architecture* const own = architecture_of(config.model.family);
  if (own && !own->keys.empty()) compare(own->name, {});
  if (then.optimizer.kind != now.optimizer.kind) {
    const auto kind = [](const OptionList& list) { return list.find("optimizer", "kind")->text(); };
    lines.push_back(concat("optimizer.kind was ", kind(of_then), " and is ", kind(of_now)));
  }
  return lines;
}

}  // namespace

std::vector<std::string> check_continues(const CheckpointReader& reader, const Config& config,
                                         const std::vector<StoredParameter>& parameters,
                                         std::vector<std::string> kinds) {
  std::erase(kinds, kAveragesKind);
  std::string fault = fault_of([&] { CheckpointSource(reader, parameters, kinds); });
  for (const std::string& kind : reader.index().kinds)
    if (fault.empty() && kind != kAveragesKind && std::ranges::find(kinds, kind) == kinds.end())
      fault = concat(reader.folder(), " has the state ", kind,
                     " of its parameters, which this run's optimizer does not keep");
  const std::vector<std::string> changed = changed_keys(reader, config);
  const bool other_rule = !changed.empty() && changed.back().starts_with("optimizer.kind");
  if (fault.empty() && !other_rule) return changed;
  refuse("cannot continue ", reader.folder(),
         ", a checkpoint of another run: ", changed.empty() ? "" : join(changed, "; ") + "; ",
         changed.empty() ? "resume with the config of its run"
                         : "set it as it was to go on with that run",
         ", or start a new run from its weights: model.path = ", reader.folder(),
         " and another output.dir", fault.empty() ? "" : "\n" + fault);
}

std::vector<std::string> check_continues(const CheckpointReader& reader, const LoadedModel& model,
                                         const OptimizerState& optimizer) {
  return check_continues(reader, model.config(), stored_parameters(model.trained()),
                         kinds_of(optimizer));
}

Resumed resume(const LoadedModel& model, OptimizerState& optimizer, const std::string& path) {
  std::vector<std::string> warnings;
  std::string first_fault;
  for (std::int64_t before = CheckpointReader::kAnyStep;;) {  // a failure is the same on all ranks
    std::optional<CheckpointReader> reader;
    try {
      reader.emplace(model.grid().world(), path, before);
    } catch (const UsageError& error) {
      refuse(first_fault.empty() ? error.what() : first_fault);
    }
    std::ranges::copy(reader->warnings(), std::back_inserter(warnings));
    check_continues(*reader, model, optimizer);
    optimizer.expect_averages(reader->has_kind(kAveragesKind));
    try {
      const LoadCost cost = load_state(model, optimizer, *reader);
      return {*std::move(reader), cost, std::move(warnings)};
    } catch (const UsageError& error) {
      if (first_fault.empty()) first_fault = error.what();
      if (!reader->one_of_several()) throw;
      warnings.push_back(concat("checkpoint ", reader->folder(), " is skipped: ", error.what()));
      before = reader->step();
    }
  }
}

}  // namespace axonn
