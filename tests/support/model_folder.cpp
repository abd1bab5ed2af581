#include "tests/support/model_folder.h"

#include <algorithm>
#include <array>
#include <map>

#include "axonn/data/storage/safetensors/safetensors.h"
#include "axonn/foundation/base/check.h"
#include "axonn/foundation/base/random.h"
#include "axonn/foundation/options/options.h"
#include "axonn/network/model/hugging_face.h"
#include "axonn/network/model/model.h"
#include "axonn/ranks/comm/self.h"
#include "axonn/ranks/comm/threads/threads.h"
#include "axonn/run/config/prepared_run.h"
#include "axonn/run/config/resolve.h"
#include "axonn/run/config/stored_config.h"
#include "axonn/run/train/state_blocks.h"
#include "axonn/run/train/training.h"

#include "tests/support/temporary_path.h"
#include "tests/support/write_safetensors.h"

namespace axonn::test {

float value_of(const std::string& name, std::int64_t index) {
  return static_cast<float>(Random(1, name).below(index, 255)) / 64 - 2;
}

std::vector<ParameterSpec> parameters_of(const ModelConfig& config) {
  const auto world = make_self();
  const Grid grid(*world, {});
  const auto model = make_model(config, grid);
  std::vector<ParameterSpec> all;
  for (const ParameterGroup* group : model->groups())
    for (const auto& parameter : group->parameters()) all.push_back(parameter->spec());
  return all;
}

namespace {

/// A tensor that holds several parameters.
struct JoinedTensor {
  std::vector<std::int64_t> shape;
  std::vector<float> values;

  void put(const StoredName::Joined& as, const std::vector<float>& part, std::int64_t cols) {
    const auto& [names, outer, all, first, step, turns, by_columns, usual] = as;
    const std::int64_t run = std::ssize(part) / cols / turns;
    shape = by_columns ? std::vector{cols, all} : std::vector{all, cols};
    if (outer > 0) shape.insert(shape.begin(), outer);
    values.resize(std::max<std::int64_t>(outer, 1) * all * cols);
    for (std::int64_t i = 0; i < std::ssize(part); ++i) {
      const std::int64_t here = i / cols, col = i % cols,
                         row = first + here / run * (turns > 1 ? all / turns : run * step) +
                               here % run * step;
      values[by_columns ? (row / all * cols + col) * all + row % all : row * cols + col] = part[i];
    }
  }
};

}  // namespace

void write_model(const std::string& folder, const ModelConfig& config,
                 const FolderOptions& options) {
  std::vector<std::vector<std::byte>> bytes;
  std::vector<SafetensorsTensor> tensors;
  const auto add = [&](const std::string& name, std::vector<std::int64_t> shape,
                       const std::vector<float>& values) {
    bytes.emplace_back(values.size() * static_cast<std::size_t>(bytes_of(options.type)));
    from_floats(options.type, values, bytes.back());
    tensors.push_back({{.name = name, .type = options.type, .shape = std::move(shape)}, {}});
  };
  std::map<std::string, JoinedTensor> all_joined;
  for (const ParameterSpec& spec : parameters_of(config)) {
    if (spec.name == options.without) continue;
    const std::int64_t rows = spec.layout.rows, cols = spec.layout.cols;
    const StoredName as = base_names(config).of(spec.name);
    const bool transposed = as.transposed;
    std::vector<float> values;
    for (std::int64_t i = 0; i < rows * cols; ++i)
      values.push_back(value_of(spec.name, transposed ? i % rows * cols + i / rows : i));
    if ((options.joined || as.joined.usual) && !as.joined.names.empty()) {
      all_joined[as.joined.names.front()].put(as.joined, values, cols);
      continue;
    }
    std::vector<std::int64_t> shape{transposed ? cols : rows};
    if (cols > 1 || transposed) shape.push_back(transposed ? rows : cols);
    if (as.depthwise) shape.insert(shape.begin() + 1, 1);
    const bool usual = options.prefix.empty() && !options.joined;
    add(usual ? as.names.front() : options.prefix + spec.name, shape, values);
  }
  for (const auto& [name, joined] : all_joined)
    add(options.prefix + name, joined.shape, joined.values);
  for (const auto& [names, value] : base_names(config).numbers)
    if (names.front() != options.without) add(names.front(), {}, {static_cast<float>(value)});
  if (!options.and_also.empty()) add(options.and_also, {3}, {1, 2, 3});
  for (std::size_t i = 0; i < tensors.size(); ++i) tensors[i].data = bytes[i];
  if (!options.shards) return write_safetensors(folder + "/model.safetensors", tensors);
  std::string map;
  std::size_t total = 0;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    total += tensors[i].data.size();
    const std::string file = concat("part-", i % 3, ".safetensors");
    map += concat(map.empty() ? "" : ",", '"', tensors[i].entry.name, "\":\"", file, '"');
  }
  for (std::size_t part = 0; part < 3; ++part) {
    std::vector<SafetensorsTensor> some;
    for (std::size_t i = part; i < tensors.size(); i += 3) some.push_back(tensors[i]);
    write_safetensors(folder + concat("/part-", part, ".safetensors"), some);
  }
  spill(folder + "/model.safetensors.index.json",
        concat("{\"metadata\":{\"total_size\":", total, "},\"weight_map\":{", map, "}}"));
}

namespace {

/// Sets trained parameters to values that depend only on the global element, most of them not 0.
void set_trained(Training& training) {
  const Context ctx = training.model.context();
  for (ParameterGroup* group : trained_groups(training.model.model())) {
    for (const auto& [spec, slice] : group->piece_slices())
      for (std::int64_t e = slice.begin; e < slice.end; ++e) {
        const std::int64_t row = slice.row + e / slice.cols, col = slice.col + e % slice.cols;
        const float value = value_of(spec->name, row * spec->layout.cols + col) / 16;
        group->set_values(ctx, slice.offset + e - slice.begin, {&value, 1});
      }
    group->publish_values(ctx);
  }
}

}  // namespace

void save_checkpoint(const std::string& folder, const ModelConfig& model, const GridShape& grid,
                     DType dtype) {
  Config config{.model = model};
  config.parallelism.set_grid(grid);
  config.training = {.steps = 1, .seq_len = 8, .global_batch = 8, .micro_batch = 1, .dtype = dtype};
  config.optimizer.lr = 1;
  config.data.synthetic = 1;  // not read
  run_ranks(grid.ranks(), [&](Communicator& world) {
    Training training(prepared(config), world, make_cpu_backend(1), {.data = false});
    training.model.initialise();
    if (model.lora.rank > 0) set_trained(training);
    CheckpointSaver saver({.folder = folder, .async = false});
    const StateTexts texts{{"config.toml", stored_config_text(training.model.config(), Origins())}};
    saver.begin(world, 1, state_blocks(training.model, training.optimizer), texts);
    saver.finish(world);
  });
}

std::vector<float> logits(const ModelConfig& model, const GridShape& grid) {
  return logits(Config{.model = model}, grid);
}

std::vector<float> logits(Config config, const GridShape& grid) {
  config.parallelism.set_grid(grid);
  std::vector<float> result;
  run_ranks(grid.ranks(), [&](Communicator& world) {
    LoadedModel loaded(prepared_model(config), world, make_cpu_backend(1), {.trainable = false});
    loaded.initialise();
    const std::vector<std::int32_t> ids{5, 17, 3, 99, 40, 8, 77, 1};
    const Context ctx = loaded.context();
    const std::int64_t count = std::ssize(ids);
    const Tensor mine = loaded.model().next_logits(ctx, make_tokens(ctx, ids, {}, {1, count}),
                                                   std::array{count - 1});
    Communicator& across = loaded.grid().along(Axis::x);
    std::vector<float> here(mine.view().as<float>(), mine.view().as<float>() + mine.cols()),
        all(here.size() * across.size());
    across.all_gather(buffer(std::span(all)), buffer(std::span(here)), "logits").wait();
    all.resize(loaded.model().vocab());
    if (world.rank() == 0) result = all;
  });
  return result;
}

}  // namespace axonn::test
