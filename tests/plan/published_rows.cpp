#include "tests/plan/published_rows.h"

#include <algorithm>
#include <array>
#include <cmath>

#include <fmt/format.h>

#include "axonn/base/check.h"
#include "axonn/base/log.h"
#include "axonn/plan/estimate.h"

namespace axonn::testing_support {

namespace {

struct RowModel {
  const char* name;
  ModelConfig model;
};

ModelConfig row_gpt(ModelConfig sizes) {
  sizes.bias = false;
  return sizes;
}

ModelConfig row_llama(ModelConfig sizes) {
  sizes.family = ModelFamily::llama;
  return sizes;
}

/// Activations that cost as much stand for others: xielu without a gate for relu².
const std::vector<RowModel>& row_models() {
  static const std::vector<RowModel> all = {
      {"GPT-2 1.5B", row_gpt({.layers = 48, .hidden = 1600, .heads = 25, .vocab = 50304})},
      {"MPT 3B", row_gpt({.layers = 32, .hidden = 2560, .heads = 20, .vocab = 50368})},
      {"MPT 7B", row_gpt({.layers = 32, .hidden = 4096, .heads = 32, .vocab = 50368})},
      {"MPT 30B", row_gpt({.layers = 48, .hidden = 7168, .heads = 56, .vocab = 50368})},
      {"MPT 70B", row_gpt({.layers = 80, .hidden = 8192, .heads = 64, .vocab = 50368})},
      {"GPT 16B",
       row_gpt({.layers = 32, .hidden = 6144, .heads = 48, .vocab = 131072, .tied = false})},
      {"Nemotron-4 15B", row_llama({.layers = 32,
                                    .hidden = 6144,
                                    .heads = 48,
                                    .kv_heads = 8,
                                    .ffn = 24576,
                                    .vocab = 256000,
                                    .tied = false,
                                    .activation = MlpKind::xielu})},
      {"Qwen2.5 3B", row_llama({.layers = 36,
                                .hidden = 2048,
                                .heads = 16,
                                .kv_heads = 2,
                                .ffn = 11008,
                                .vocab = 151936,
                                .qkv_bias = true})},
      {"Llama 2 7B", row_llama({.layers = 32,
                                .hidden = 4096,
                                .heads = 32,
                                .ffn = 11008,
                                .vocab = 32000,
                                .tied = false})},
      {"Llama 3.2 3B", row_llama({.layers = 28,
                                  .hidden = 3072,
                                  .heads = 24,
                                  .kv_heads = 8,
                                  .ffn = 8192,
                                  .vocab = 128256})},
      {"Llama 3 8B", row_llama({.layers = 32,
                                .hidden = 4096,
                                .heads = 32,
                                .kv_heads = 8,
                                .ffn = 14336,
                                .vocab = 128256,
                                .tied = false})},
      {"Llama 13B, KempnerForge", row_llama({.layers = 40,
                                             .hidden = 5120,
                                             .heads = 40,
                                             .kv_heads = 8,
                                             .ffn = 17920,
                                             .vocab = 128256,
                                             .tied = false})},
      {"Llama 3 70B", row_llama({.layers = 80,
                                 .hidden = 8192,
                                 .heads = 64,
                                 .kv_heads = 8,
                                 .ffn = 28672,
                                 .vocab = 128256,
                                 .tied = false})},
      {"Llama 3.1 405B", row_llama({.layers = 126,
                                    .hidden = 16384,
                                    .heads = 128,
                                    .kv_heads = 8,
                                    .ffn = 53248,
                                    .vocab = 128256,
                                    .tied = false})}};
  return all;
}

/// Of torchtitan's selective recomputation, which makes every second product again.
const std::vector<std::string> kSelective = {"norms", "activations", "heads", "up"};
/// Of MaxText, when it keeps the projections to queries, keys and values alone.
const std::vector<std::string> kAllButQkv = {"norms",     "activations", "heads",
                                             "attention", "up",          "residual"};
constexpr RecomputeMode kFull = RecomputeMode::full, kValues = RecomputeMode::values;

Config row_config(const PublishedRow& row) {
  const auto sizes = std::ranges::find(row_models(), std::string_view(row.model), &RowModel::name);
  AXONN_CHECK(sizes != row_models().end(), "no sizes of ", row.model);
  Config config;
  config.model = sizes->model;
  config.training = {.steps = 1, .seq_len = row.seq_len, .global_batch = row.batch};
  config.training.micro_batch = row.micro_batch;
  config.training.dtype = DType::bf16;
  config.parallelism.set_grid(row.grid);
  config.parallelism.chunks = row.chunks;
  config.activation_checkpoint.mode = row.recompute;
  config.activation_checkpoint.values = row.values;
  return resolved(config);
}

}  // namespace

const std::vector<PublishedRow>& published_rows() {
  const char *const dgxc = "NVIDIA, dgxc-benchmarking v25.02", *const titan = "torchtitan, 2024-12",
                    *const compiled = "torchtitan, 2024-12, compiled",
                    *const async_tp = "torchtitan, 2025-06, compiled",
                    *const foundry = "llm-foundry v0.4", *const forge = "KempnerForge, 2026-04",
                    *const swiss = "Megatron-LM of swiss-ai, 2025";
  const char *const h100 = "dgx-h100", *const h200 = "dgx-h200", *const teton = "grand-teton";
  constexpr double kNode800 = 85e9;  // 800 Gbit/s a node, times 0.85
  constexpr double kNode1600 = 170e9;
  // program, model, machine, grid; sequence length, micro-batch, batch, tokens/s
  static const std::vector<PublishedRow> rows = {
      {"LLMQ, 2025-12", "Qwen2.5 3B", h100, {}, 1024, 16, 512, 30917},
      {"LLMQ, 2025-12", "Qwen2.5 3B", h100, {.data = 8}, 1024, 16, 512, 29994},
      {"llm.c, 2024-07", "GPT-2 1.5B", h100, {.data = 8}, 1024, 16, 1024, 46811},
      {dgxc, "Nemotron-4 15B", h100, {.x = 4, .data = 4}, 4096, 4, 64, 5826, {}, {}, 2},
      {dgxc, "Nemotron-4 15B", h100, {.x = 4, .data = 256}, 4096, 4, 4096, 5659, {}, {}, 2},
      {dgxc, "Llama 3 70B", h100, {.z = 128, .data = 16}, 8192, 2, 4096, 1031, kValues, kAllButQkv},
      {"NVIDIA, dgxc-benchmarking v25.05",
       "Nemotron-4 15B",
       h100,
       {.x = 2, .data = 8},
       4096,
       2,
       64,
       5966,
       {},
       {},
       2},
      {"Megatron-Core r0.8.0",
       "GPT 16B",
       h100,
       {.x = 4, .data = 48},
       4096,
       4,
       192,
       4820,
       {},
       {},
       2},
      {foundry, "MPT 3B", h100, {.z = 8}, 8192, 3, 144, 16578},
      {foundry, "MPT 7B", h100, {.z = 8}, 2048, 6, 48, 10643},
      {foundry, "MPT 7B", h100, {.z = 512}, 2048, 6, 3072, 9670},
      {foundry, "MPT 30B", h100, {.z = 32}, 2048, 14, 1344, 2308, kFull},
      {foundry, "MPT 70B", h100, {.z = 64}, 2048, 8, 2048, 1039, kFull},
      {"fms-fsdp, 2024-05",
       "Llama 2 7B",
       h100,
       {.z = 8, .data = 12},
       4096,
       2,
       192,
       9600,
       {},
       {},
       1,
       8,
       kNode800},
      {titan, "Llama 3 8B", teton, {.z = 8}, 8192, 2, 16, 5762, kValues, kSelective},
      {compiled, "Llama 3 8B", teton, {.z = 8}, 8192, 2, 16, 6667, kValues, kSelective},
      {titan, "Llama 3 8B", teton, {.z = 128}, 8192, 2, 256, 5605, kValues, kSelective},
      {async_tp, "Llama 3 8B", teton, {.x = 8, .z = 8}, 8192, 12, 96, 4378, kValues, kSelective},
      {async_tp, "Llama 3 70B", teton, {.x = 8, .z = 32}, 8192, 16, 512, 652.4, kFull},
      {"torchtitan, 2024-08", "Llama 3.1 405B", teton, {.x = 8, .z = 16}, 8192, 2, 32, 109, kFull},
      {forge, "Llama 3 8B", h200, {.z = 2}, 4096, 2, 16, 9364, kFull, {}, 1, 4, kNode1600},
      {forge, "Llama 3 8B", h200, {.x = 2}, 4096, 4, 8, 6582, kFull, {}, 1, 4, kNode1600},
      {forge, "Llama 3 8B", h200, {.z = 4}, 4096, 4, 32, 9746, kFull, {}, 1, 4, kNode1600},
      {forge, "Llama 3 8B", h200, {.z = 32}, 4096, 4, 512, 9293, kFull, {}, 1, 4, kNode1600},
      {forge,
       "Llama 13B, KempnerForge",
       h200,
       {.z = 8},
       4096,
       4,
       128,
       4426,
       kFull,
       {},
       1,
       4,
       kNode1600},
      {forge,
       "Llama 3 70B",
       h200,
       {.x = 4, .z = 8},
       4096,
       2,
       64,
       551.8,
       kFull,
       {},
       1,
       4,
       kNode1600},
      {swiss, "Llama 3.2 3B", "alps", {.data = 4}, 8192, 1, 256, 18211},
      {swiss, "Llama 3.2 3B", "alps", {.data = 32}, 8192, 2, 256, 17778},
      {swiss, "Llama 3 8B", "alps", {.data = 256}, 8192, 1, 512, 8290}};
  return rows;
}

const PublishedRow& published_row(const std::string& program, const std::string& model,
                                  int devices) {
  const auto& rows = published_rows();
  const auto found = std::ranges::find_if(rows, [&](const PublishedRow& row) {
    return row.program == program && row.model == model && row.grid.ranks() == devices;
  });
  AXONN_CHECK(found != rows.end(), "no published row of ", program, " with ", model, " on ",
              devices);
  return *found;
}

PredictedRow predict(const PublishedRow& row, void (*change)(Machine&)) {
  Machine machine = read_machine(row.machine);
  if (row.devices_per_node > 0) machine.devices_per_node = row.devices_per_node;
  if (row.node_bytes_per_s > 0) machine.node_bytes_per_s = row.node_bytes_per_s;
  change(machine);
  const double seconds = estimate(row_config(row), machine).time.step_s;
  return {row, seconds, machine.range_of(seconds)};
}

std::string table_key(const PublishedRow& row) {
  return fmt::format("| {} | {} | {} | {} | ", row.machine, row.program, row.model,
                     to_string(row.grid));
}

std::string table_row(const PredictedRow& p) {
  const auto rate = [&](double seconds) {
    const double tokens = p.row.tokens_per_s * p.row.seconds() / seconds;
    return format_count(std::llround(tokens));
  };
  return table_key(p.row) + fmt::format("{} | {} | {:+.1f} % | {} to {} |", rate(p.row.seconds()),
                                        rate(p.seconds), 100 * p.error(), rate(p.range.second),
                                        rate(p.range.first));
}

}  // namespace axonn::testing_support
