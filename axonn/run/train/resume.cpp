#include "axonn/run/train/resume.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <initializer_list>
#include <iterator>
#include <optional>

#include <fmt/format.h>

#include "axonn/compute/tensor/address.h"
#include "axonn/foundation/base/check.h"
#include "axonn/foundation/options/options.h"
#include "axonn/network/model/model.h"
#include "axonn/network/model/model_files.h"
#include "axonn/ranks/comm/texts.h"
#include "axonn/run/config/config_options.h"
#include "axonn/run/config/optimizer_rules.h"
#include "axonn/run/config/stored_config.h"
#include "axonn/run/config/unused_keys.h"
#include "axonn/run/optim/learning_rate.h"
#include "axonn/run/optim/small_state.h"
#include "axonn/run/records/run_state.h"

namespace axonn {

namespace {

/// Reads the state in few bits, one buffer at a time. Collective. Throws as load() does.
void load_small(const LoadedModel& model, const OptimizerState& optimizer,
                CheckpointSource& source) {
  const Context& ctx = model.context();
  const std::vector<std::string> names = optimizer.state_names();
  std::vector<float> values, absmax;
  const auto read = [&](const std::string& kind, const SmallLayout& layout,
                        std::vector<float>& to) {
    std::vector<SliceRequest> wanted;
    for (const auto& [spec, slice] : layout.slices(true))
      wanted.push_back({.parameter = spec->name, .kind = kind, .slices = {slice}});
    to.assign(layout.count(true), 0.0F);
    source.read(wanted, [&](std::size_t, std::int64_t at, StoredType type, auto bytes) {
      to_floats(type, bytes, std::span(to).subspan(at, bytes.size() / bytes_of(type)));
      ctx.grid.world().note_progress();
    });
  };
  agree(ctx.grid.world(), "loading " + source.path(), fault_of([&] {
          for (std::size_t i = 0; i < model.trained().size(); ++i) {
            const SmallState& state = *optimizer.small(i);
            for (std::size_t k = 0; k < state.size(); ++k) {
              read(names[k], state.layout(), values);
              read(absmax_of(names[k]), state.layout(), absmax);
              if (state.layout().count(true) > 0) state.set(ctx, k, values, absmax);
            }
            for (const Tensor& tensor : optimizer.offloadable(i)) tensor.put_away();
          }
        }));
}

LoadCost load_state(const LoadedModel& model, OptimizerState& optimizer,
                    const CheckpointReader& reader) {
  std::vector<Destination> to;
  for (std::size_t i = 0; i < model.trained().size(); ++i) {
    const std::vector<Tensor> tensors = optimizer.offloadable(i);
    for (const auto& [kind, data] : optimizer.buffers(i))
      to.push_back({model.trained()[i], kind, address<float>(data), nullptr, tensors});
    for (const auto& [kind, piece, slices] : optimizer.factors(i))
      to.push_back({model.trained()[i], kind, address<float>(piece), slices});
    const SmallState* const small = optimizer.small(i);
    for (std::size_t k = 0; small && k < small->size(); ++k)
      to.push_back({model.trained()[i], optimizer.state_names()[k],
                    address<float>((*small)[k].full.view()), &small->layout().slices(false),
                    tensors});
  }
  CheckpointSource source(reader, stored_parameters(model.trained()), optimizer.kinds());
  ProgressLine line(model.progress(), kLoading);
  const LoadCost cost = load(model.context(), to, source, std::ref(line));
  if (optimizer.small(0)) load_small(model, optimizer, source);
  return cost;
}

/// Finds keys whose values differ from those of a checkpoint. There are none if the checkpoint's
/// config cannot be read.
class ChangedKeys {
 public:
  ChangedKeys(const CheckpointReader& reader, const Config& config)
      : now_(config), unused_(unused_keys(config)) {
    readable_ = fault_of([&] { then_ = stored_config(reader); }).empty();
    list_options(now_, of_now_);
    list_options(then_, of_then_);
  }

  bool readable() const { return readable_; }
  const Config& then() const { return then_; }

  /// A line for each key of the section for which is_wanted(name) holds and that the run reads:
  /// "model.ffn was 64 and is 32".
  std::vector<std::string> lines(std::string_view section,
                                 const std::function<bool(std::string_view)>& is_wanted) const {
    std::vector<std::string> lines;
    const OptionList::Section* const of_section = of_now_.find(section);
    if (!readable_ || !of_section) return lines;
    for (const Option& is : of_section->options) {
      const Option* was = of_then_.find(section, is.name());
      const bool read = std::ranges::find(unused_, is.key(), [](auto& one) { return one.first; }) ==
                        unused_.end();
      if (was && was->text() != is.text() && read && is_wanted(is.name()))
        lines.push_back(concat(is.key(), " was ", was->text(), " and is ", is.text()));
    }
    return lines;
  }

 private:
  Config now_, then_;
  OptionList of_now_, of_then_;
  KeyReasons unused_;
  bool readable_;
};

void add_lines(std::vector<std::string>& lines, const std::vector<std::string>& more) {
  lines.insert(lines.end(), more.begin(), more.end());
}

auto is_one_of(std::initializer_list<std::string_view> names) {
  return [names = std::vector<std::string_view>(names)](std::string_view name) {
    return std::ranges::find(names, name) != names.end();
  };
}

auto is_none_of(std::initializer_list<std::string_view> names) {
  return [is_one = is_one_of(names)](std::string_view name) { return !is_one(name); };
}

/// A line for each key that makes a model what it is, and for optimizer.kind, that is not as in the
/// checkpoint.
std::vector<std::string> changed_keys(const CheckpointReader& reader, const Config& config) {
  const ChangedKeys changed(reader, config);
  std::vector<std::string> lines = changed.lines("model", is_none_of({"path", "name", "init_std"}));
  add_lines(lines, changed.lines("lora", is_none_of({"path", "dropout"})));
  if (const Architecture* const own = architecture_of(config.model.family))
    add_lines(lines, changed.lines(own->name, is_none_of({})));
  add_lines(lines, changed.lines("optimizer", is_one_of({"kind"})));
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
                         optimizer.kinds());
}

std::vector<std::string> changed_course(const CheckpointReader& reader, const Config& config,
                                        std::int64_t samples) {
  const ChangedKeys changed(reader, config);
  if (!changed.readable()) return {};
  std::vector<std::string> lines = changed.lines("optimizer", is_none_of({"kind"}));
  if (const OptimizerRule* const own = optimizer_rule_of(config.optimizer.kind))
    add_lines(lines, changed.lines(own->name, is_none_of({})));
  add_lines(lines, changed.lines("lr_scheduler", is_none_of({})));
  add_lines(lines, changed.lines("lora", is_one_of({"dropout"})));
  add_lines(lines, changed.lines("data", is_one_of({"validation", "documents"})));
  Config then = changed.then();
  const double epochs = config.training.epochs, epochs_then = then.training.epochs;
  // The steps of epochs are not stored; the data are the same.
  if (epochs > 0 && epochs_then > 0)
    then.training.steps =
        std::llround(static_cast<double>(config.training.steps) * epochs_then / epochs);
  else if (epochs == 0 && epochs_then == 0)
    add_lines(lines, changed.lines("training", is_one_of({"steps"})));
  add_lines(lines, changed.lines("training",
                                 is_one_of({"epochs",         "seq_len",         "global_batch",
                                            "batch_ramp",     "batch_stages",    "dtype",
                                            "max_norm",       "norm_type",       "clip_value",
                                            "skip_outliers",  "skip_deviations", "goldfish.k",
                                            "goldfish.h",     "goldfish.mask",   "balance.scope",
                                            "balance.weight", "balance.z",       "balance.bias",
                                            "z_loss",         "mtp_weight",      "eval_batches"})));
  if (then.training.steps == 0) return lines;
  const std::int64_t step = reader.step();
  const double was = learning_rate(then, step, samples), is = learning_rate(config, step, samples);
  if (std::abs(was - is) > 1e-9 * std::max(was, is))
    lines.push_back(
        fmt::format("the learning rate of step {} was {:.4g} and is {:.4g}", step + 1, was, is));
  return lines;
}

namespace {

/// Loads all of an open checkpoint that check_continues() allows.
LoadCost load_all(const LoadedModel& model, OptimizerState& optimizer,
                  const CheckpointReader& reader) {
  if (optimizer.keeps_numbers())
    optimizer.set_numbers(read_run_state(reader, model.config()).optimizer);
  return load_state(model, optimizer, reader);
}

}  // namespace

Resumed resume(const LoadedModel& model, OptimizerState& optimizer, CheckpointReader local) {
  check_continues(local, model, optimizer);
  optimizer.expect_averages(local.has_kind(kAveragesKind));
  try {
    const LoadCost cost = load_all(model, optimizer, local);
    return {std::move(local), cost, {}};
  } catch (const UsageError& error) {
    throw AgreedError(concat(error.what(), "; it was whole before: start again"));
  }
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
      const LoadCost cost = load_all(model, optimizer, *reader);
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
