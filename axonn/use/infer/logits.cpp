#include "axonn/use/infer/logits.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "axonn/compute/tensor/dtype.h"
#include "axonn/foundation/base/check.h"
#include "axonn/ranks/parallel/scheduling.h"
#include "axonn/ranks/parallel/stored_values.h"

namespace axonn {

std::vector<float> gather_columns(Communicator& across, std::vector<float> mine, std::int64_t n,
                                  const char* what) {
  const std::int64_t ways = across.size();
  if (ways == 1 || n == 0) return mine;
  const std::int64_t piece = std::ssize(mine) / n;
  std::vector<float> all(mine.size() * ways), whole(mine.size() * ways);
  across.all_gather(buffer(std::span(all)), buffer(std::span(mine)), what).wait();
  for (std::int64_t rank = 0; rank < ways; ++rank)
    for (std::int64_t row = 0; row < n; ++row)
      std::copy_n(all.begin() + (rank * n + row) * piece, piece,
                  whole.begin() + (row * ways + rank) * piece);
  return whole;
}

std::vector<float> host_values(const Context& ctx, const Tensor& from) {
  if (from.dtype() == DType::f32) return stored_values<float>(ctx, from);
  AXONN_CHECK(is_half(from.dtype()), "host_values: wanted f32, bf16 or f16, got ", from.view());
  const auto stored = stored_values<std::uint16_t>(ctx, from);
  std::vector<float> values(from.count());
  for (std::int64_t i = 0; i < std::ssize(values); ++i)
    values[i] = float_at(stored.data(), from.dtype(), i);
  return values;
}

void check_sequence(LoadedModel& model, std::span<const std::int32_t> tokens, std::int64_t most) {
  const std::int64_t vocab = model.model().vocab();
  if (tokens.empty()) refuse("a sequence has no tokens");
  if (std::ssize(tokens) > most)
    refuse("a sequence has ", tokens.size(), " tokens, more than ", most,
           ", which is what the model's ", model.config().model.positions, " positions allow");
  for (const std::int32_t token : tokens)
    if (token < 0 || token >= vocab)
      refuse("a sequence has token ", token, ", but the model's vocabulary has ", vocab);
}

void check_kept_form(LoadedModel& model, const KeptForm& form) {
  if (form.kind == Quantization::none) return;
  const std::string kind(name_of(form.kind));
  AXONN_CHECK(form.kind == Quantization::q8_0, "keys and values in ", kind, ", wanted q8_0");
  if (model.config().model.kv_lora_rank > 0)
    refuse("--kv-cache ", kind,
           ": latent attention keeps latents, which are small already, in the ",
           "compute type; leave --kv-cache out");
  if (!model.model().caches())
    refuse("--kv-cache ", kind, ": this model keeps no keys and values; leave --kv-cache out");
  if (!model.backend().reads_kept_codes())
    refuse("--kv-cache ", kind, ": attention on a GPU reads keys and values in the compute type; ",
           "leave --kv-cache out, or compute on the CPU by --device cpu");
}

void use_integer_products(LoadedModel& model, bool drafts) {
  const ModelConfig& sizes = model.config().model;
  const Quantization kind = sizes.quantize;
  const auto has_any = [kinds = sizes.kept()](Quantization one) {
    return has_integer_products(one) && kinds.any_as(one);
  };
  if (std::ranges::none_of(kCodes, has_any))
    refuse("--integer-products: weights are ",
           kind == Quantization::none   ? "values"
           : kind == Quantization::file ? "of other kinds"
                                        : name_of(kind),
           "; keep them as codes of GGUF but q4_1, q5_1, q2_k, iq4_nl, iq4_xs and mxfp4, such as ",
           "--quantize q4_0, or file");
  if (drafts)
    refuse("--integer-products: a draft is verified by products of several rows, whose bits are ",
           "not those of one row; leave it or --drafts out");
  if (!model.backend().set_integer_products(true))
    refuse("--integer-products: this run computes on ", model.backend().matmul_device(),
           ", which has none; leave it out");
}

std::vector<float> logits_of(LoadedModel& model, std::span<const std::int32_t> tokens) {
  check_sequence(model, tokens, model.config().model.positions);
  const std::int64_t count = std::ssize(tokens);
  StepState state;
  Context ctx = model.context();
  Scheduling& scheduling = ctx.own_scheduling();
  scheduling.run.sequence_parallel = false;  // whole sequences, of any length
  scheduling.run.chunks = 1;
  scheduling.step = &state;
  state.prefetcher.begin_pass();
  const std::vector<std::int32_t> lengths(count, static_cast<std::int32_t>(count));
  const Tokens rows = make_tokens(ctx, tokens, {}, {1, count},
                                  {.lengths = lengths,
                                   .short_sequences = model.config().model.short_sequences(),
                                   .whole = true});
  std::vector<std::int64_t> all(count);
  std::iota(all.begin(), all.end(), 0);
  const Tensor mine = model.model().next_logits(ctx, rows, all);
  std::vector<float> padded =
      gather_columns(model.grid().along(Axis::x), host_values(ctx, mine), count, "logits");
  const std::int64_t cols = std::ssize(padded) / count, vocab = model.model().vocab();
  if (cols == vocab) return padded;
  std::vector<float> logits;
  for (std::int64_t row = 0; row < count; ++row)
    logits.insert(logits.end(), padded.begin() + row * cols, padded.begin() + row * cols + vocab);
  return logits;
}

}  // namespace axonn
