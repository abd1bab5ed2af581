#include "tests/plan/planner/published_rows.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "axonn/foundation/base/check.h"
#include "axonn/foundation/base/log.h"
#include "axonn/plan/planner/estimate.h"
#include "axonn/run/config/resolve.h"

namespace axonn::testing_support {

namespace {

struct RowModel {
  const char* name;
  ModelFamily family;
  std::int64_t layers, hidden, heads, kv_heads, ffn, vocab;  ///< kv_heads, ffn 0: the default
  bool tied = false;
  MlpKind activation = MlpKind::swiglu;
  bool qkv_bias = false;
};

constexpr ModelFamily kGpt = ModelFamily::gpt, kLlama = ModelFamily::llama;

/// Activations that cost as much stand for others: xielu without a gate for relu².
constexpr RowModel kModels[] = {
    {"GPT-2 1.5B", kGpt, 48, 1600, 25, 0, 0, 50304, true},
    {"MPT 3B", kGpt, 32, 2560, 20, 0, 0, 50368, true},
    {"MPT 7B", kGpt, 32, 4096, 32, 0, 0, 50368, true},
    {"MPT 30B", kGpt, 48, 7168, 56, 0, 0, 50368, true},
    {"MPT 70B", kGpt, 80, 8192, 64, 0, 0, 50368, true},
    {"GPT 16B", kGpt, 32, 6144, 48, 0, 0, 131072},
    {"Nemotron-4 15B", kLlama, 32, 6144, 48, 8, 24576, 256000, false, MlpKind::xielu},
    {"Qwen2.5 3B", kLlama, 36, 2048, 16, 2, 11008, 151936, true, MlpKind::swiglu, true},
    {"Llama 2 7B", kLlama, 32, 4096, 32, 0, 11008, 32000},
    {"Llama 3.2 3B", kLlama, 28, 3072, 24, 8, 8192, 128256, true},
    {"Llama 3 8B", kLlama, 32, 4096, 32, 8, 14336, 128256},
    {"Llama 13B, KempnerForge", kLlama, 40, 5120, 40, 8, 17920, 128256},
    {"Llama 3 70B", kLlama, 80, 8192, 64, 8, 28672, 128256},
    {"Llama 3.1 405B", kLlama, 126, 16384, 128, 8, 53248, 128256}};

ModelConfig model_of(const PublishedRow& row) {
  const auto* const found =
      std::ranges::find(kModels, std::string_view(row.model), &RowModel::name);
  AXONN_CHECK(found != std::end(kModels), "no sizes of ", row.model);
  ModelConfig model{.family = found->family,
                    .layers = found->layers,
                    .hidden = found->hidden,
                    .heads = found->heads,
                    .kv_heads = found->kv_heads,
                    .ffn = found->ffn,
                    .vocab = found->vocab,
                    .tied = found->tied,
                    .activation = found->activation,
                    .qkv_bias = found->qkv_bias};
  model.bias = found->family != kGpt;
  return model;
}

const RowSettings kFull{.recompute = RecomputeMode::full}, kOverlapped{.chunks = 2},
    /// torchtitan's selective recomputation makes every second product again.
    kSelective{.recompute = RecomputeMode::values,
               .values = {"norms", "activations", "heads", "up"}},
    /// MaxText's, when it keeps the projections to queries, keys and values alone.
    kAllButQkv{.recompute = RecomputeMode::values,
               .values = {"norms", "activations", "heads", "attention", "up", "residual"}};

Config row_config(const PublishedRow& row) {
  Config config;
  config.model = model_of(row);
  config.training = {.steps = 1, .seq_len = row.seq_len, .global_batch = row.batch};
  config.training.micro_batch = row.micro_batch;
  config.training.dtype = DType::bf16;
  config.parallelism.set_grid(row.grid);
  config.parallelism.chunks = row.settings.chunks;
  config.activation_checkpoint.mode = row.settings.recompute;
  config.activation_checkpoint.values = row.settings.values;
  return resolved(config);
}

}  // namespace

const std::vector<PublishedRow>& published_rows() {
  const char *const dgxc = "NVIDIA, dgxc-benchmarking v25.02",
                    *const dgxc_later = "NVIDIA, dgxc-benchmarking v25.05",
                    *const megatron = "Megatron-Core r0.8.0", *const foundry = "llm-foundry v0.4",
                    *const fms = "fms-fsdp, 2024-05", *const titan = "torchtitan, 2024-12",
                    *const compiled = "torchtitan, 2024-12, compiled",
                    *const async_tp = "torchtitan, 2025-06, compiled",
                    *const forge = "KempnerForge, 2026-04",
                    *const swiss = "Megatron-LM of swiss-ai, 2025";
  const char *const h100 = "dgx-h100", *const h200 = "dgx-h200", *const teton = "grand-teton";
  constexpr RowNodes kFms{8, 85e9}, kForge{4, 170e9};  // 800 and 1,600 Gbit/s, times 0.85
  // program, model, machine, grid; sequence length, micro-batch, batch, tokens/s
  static const std::vector<PublishedRow> rows = {
      {"LLMQ, 2025-12", "Qwen2.5 3B", h100, {}, 1024, 16, 512, 30917},
      {"LLMQ, 2025-12", "Qwen2.5 3B", h100, {.data = 8}, 1024, 16, 512, 29994},
      {"llm.c, 2024-07", "GPT-2 1.5B", h100, {.data = 8}, 1024, 16, 1024, 46811},
      {dgxc, "Nemotron-4 15B", h100, {.x = 4, .data = 4}, 4096, 4, 64, 5826, kOverlapped},
      {dgxc, "Nemotron-4 15B", h100, {.x = 4, .data = 256}, 4096, 4, 4096, 5659, kOverlapped},
      {dgxc, "Llama 3 70B", h100, {.z = 128, .data = 16}, 8192, 2, 4096, 1031, kAllButQkv},
      {dgxc_later, "Nemotron-4 15B", h100, {.x = 2, .data = 8}, 4096, 2, 64, 5966, kOverlapped},
      {megatron, "GPT 16B", h100, {.x = 4, .data = 48}, 4096, 4, 192, 4820, kOverlapped},
      {foundry, "MPT 3B", h100, {.z = 8}, 8192, 3, 144, 16578},
      {foundry, "MPT 7B", h100, {.z = 8}, 2048, 6, 48, 10643},
      {foundry, "MPT 7B", h100, {.z = 512}, 2048, 6, 3072, 9670},
      {foundry, "MPT 30B", h100, {.z = 32}, 2048, 14, 1344, 2308, kFull},
      {foundry, "MPT 70B", h100, {.z = 64}, 2048, 8, 2048, 1039, kFull},
      {fms, "Llama 2 7B", h100, {.z = 8, .data = 12}, 4096, 2, 192, 9600, {}, kFms},
      {titan, "Llama 3 8B", teton, {.z = 8}, 8192, 2, 16, 5762, kSelective},
      {compiled, "Llama 3 8B", teton, {.z = 8}, 8192, 2, 16, 6667, kSelective},
      {titan, "Llama 3 8B", teton, {.z = 128}, 8192, 2, 256, 5605, kSelective},
      {async_tp, "Llama 3 8B", teton, {.x = 8, .z = 8}, 8192, 12, 96, 4378, kSelective},
      {async_tp, "Llama 3 70B", teton, {.x = 8, .z = 32}, 8192, 16, 512, 652.4, kFull},
      {"torchtitan, 2024-08", "Llama 3.1 405B", teton, {.x = 8, .z = 16}, 8192, 2, 32, 109, kFull},
      {forge, "Llama 3 8B", h200, {.z = 2}, 4096, 2, 16, 9364, kFull, kForge},
      {forge, "Llama 3 8B", h200, {.x = 2}, 4096, 4, 8, 6582, kFull, kForge},
      {forge, "Llama 3 8B", h200, {.z = 4}, 4096, 4, 32, 9746, kFull, kForge},
      {forge, "Llama 3 8B", h200, {.z = 32}, 4096, 4, 512, 9293, kFull, kForge},
      {forge, "Llama 13B, KempnerForge", h200, {.z = 8}, 4096, 4, 128, 4426, kFull, kForge},
      {forge, "Llama 3 70B", h200, {.x = 4, .z = 8}, 4096, 2, 64, 551.8, kFull, kForge},
      {swiss, "Llama 3.2 3B", "alps", {.data = 4}, 8192, 1, 256, 18211},
      {swiss, "Llama 3.2 3B", "alps", {.data = 32}, 8192, 2, 256, 17778},
      {swiss, "Llama 3 8B", "alps", {.data = 256}, 8192, 1, 512, 8290}};
  return rows;
}

const PublishedRow& published_row(std::string_view program, std::string_view model, int devices) {
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
  if (row.nodes.devices > 0) machine.devices_per_node = row.nodes.devices;
  if (row.nodes.bytes_per_s > 0) machine.node_bytes_per_s = row.nodes.bytes_per_s;
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
