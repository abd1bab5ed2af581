#include <functional>
#include <memory>
#include <numeric>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>

#include "axonn/compute/tensor/dynamic_map.h"

#include "tests/compute/ops/declared_writes.h"
#include "tests/compute/ops/harness.h"

using namespace axonn;
using reference::Matrix;
// Every operation gives the same bits with one thread as with two or three. Sizes are large enough
// that the threads share the work.
namespace {

constexpr std::int64_t kRows = 300, kCols = 768;
using Outputs = std::vector<Operand>;

void expect_same_bits(const std::string& name, const std::function<Outputs(Backend&)>& run) {
  const Outputs one = run(*std::make_unique<DeclaredWrites>(make_cpu_backend(1)));
  for (int threads : {2, 3}) {
    const Outputs many = run(*make_cpu_backend(threads));
    for (std::size_t i = 0; i < one.size(); ++i)
      EXPECT_TRUE(one[i].memory() == many[i].memory())
          << name << ", output " << i << ", " << threads
          << " threads: " << close(many[i].values(), one[i].values(), {});
  }
}

Operand input(std::string_view name, std::int64_t rows, std::int64_t cols, DType type) {
  return Operand(random_values(name, rows, cols, type), type);
}

Outputs outputs(std::initializer_list<Operand*> list) {
  Outputs all;
  for (Operand* operand : list) all.push_back(std::move(*operand));
  return all;
}

Outputs layer_norm(Backend& backend, DType type) {
  const Operand inp = input("inp", kRows, kCols, type), d_out = input("d_out", kRows, kCols, type),
                weight = input("weight", 1, kCols, type);
  Operand moments(kRows, 2, DType::f32), stats(kRows, 2, DType::f32), out(kRows, kCols, type),
      sums(kRows, 2, DType::f32), d_inp(kRows, kCols, type), d_weight(1, kCols, DType::f32),
      d_bias(1, kCols, DType::f32);
  backend.run(ops::RowMoments{moments, inp});
  backend.run(ops::CombineMoments{stats, moments, kCols, 1e-5f});
  backend.run(ops::LayerNorm{out, inp, weight, {}, stats});
  Operand normed(kRows, kCols, type), own_stats(kRows, 2, DType::f32);
  backend.run(ops::NormForward{
      .out = normed, .stats = own_stats, .inp = inp, .weight = weight, .eps = 1e-5f});
  backend.run(ops::LayerNormSums{sums, d_out, inp, weight, stats});
  backend.run(ops::LayerNormBackward{.d_inp = d_inp,
                                     .d_out = d_out,
                                     .inp = inp,
                                     .weight = weight,
                                     .stats = stats,
                                     .sums = sums,
                                     .width = kCols});
  backend.run(ops::LayerNormWeightBackward{d_weight, d_bias, d_out, inp, stats});
  Operand d_all(kRows, kCols, type);
  backend.run(ops::NormBackward{.d_inp = d_all,
                                .d_weight = d_weight,
                                .d_bias = d_bias,
                                .d_out = d_out,
                                .inp = inp,
                                .weight = weight,
                                .stats = stats});
  Operand sum(kRows, kCols, type), moments_of_sum(kRows, 2, DType::f32);
  backend.run(ops::AddMoments{sum, moments_of_sum, inp, d_out});
  return outputs({&stats, &out, &normed, &own_stats, &sums, &d_inp, &d_all, &d_weight, &d_bias,
                  &sum, &moments_of_sum});
}

Outputs llama(Backend& backend, DType type) {
  const Operand inp = input("inp", kRows, kCols, type), d_out = input("d_out", kRows, kCols, type),
                weight = input("weight", 1, kCols, type),
                head_weight = input("head_weight", 1, 64, type),
                table = input("table", 150, 64, DType::f32),
                d_half = input("d_half", kRows, kCols / 2, type);
  Operand squares(kRows, 2, DType::f32), sums(kRows, 2, DType::f32), heads(kRows, kCols, type),
      rstd(kRows, kCols / 64, DType::f32), d_heads(kRows, kCols, type), d_weight(1, 64, DType::f32),
      turned(kRows, kCols, type), activated(kRows, kCols / 2, type),
      d_activated(kRows, kCols, type);
  backend.run(ops::RowMoments{squares, inp});
  backend.run(ops::MomentsAboutZero{squares, squares, kCols});
  backend.run(ops::RmsNormSums{sums, d_out, inp, weight, squares});
  const ops::HeadNorm norm{.out = heads, .inp = inp, .weight = head_weight, .rstd = rstd};
  backend.run(norm);
  backend.run(ops::HeadNormBackward{
      .forward = norm, .d_out = d_out, .d_inp = d_heads, .d_weight = d_weight});
  backend.run(ops::RotaryEmbedding{.out = turned, .inp = inp, .table = table});
  backend.run(ops::Swiglu{activated, inp});
  backend.run(ops::SwigluBackward{d_activated, d_half, inp});
  const Operand p = input("p", 1, 1, type), n = input("n", 1, 1, type);
  Operand bent(kRows, kCols, type), d_bent(kRows, kCols, type), terms(kRows, 2, DType::f32),
      d_p(1, 1, DType::f32), d_n(1, 1, DType::f32);
  const ops::Xielu xielu{.out = bent, .inp = inp, .p = p, .n = n};
  backend.run(xielu);
  backend.run(ops::XieluBackward{xielu, d_bent, d_out, terms, d_p, d_n});
  std::vector<std::int32_t> rows(kRows);
  std::iota(rows.begin(), rows.end(), 0);
  const Operand slots(rows), positions(random_ids("positions", kRows, 5));
  Operand kept(kRows * (kCols / 64) * 2, 64, type);
  backend.run(ops::KeepHeads{
      .kept = kept, .inp = inp, .slots = slots, .positions = positions, .entries = 2});
  Operand begins{std::vector<std::int32_t>(kRows)};
  backend.run(ops::ChunkStarts{.out = begins, .positions = positions, .chunk = 3, .length = kRows});
  Operand copies(kRows, 2, DType::i32), own(kRows, 2, DType::f32),
      firsts{std::vector<std::int32_t>(2 * kRows)};
  const Operand branches(std::vector{100, 150, 280}), blocks(std::vector{3, 0, 1, 2});
  backend.run(ops::BranchCopies{copies, own, firsts, branches});
  const Operand sinks = input("sinks", 1, kCols / 64, type),
                stats = input("stats", kRows, kCols / 64, DType::f32);
  Operand moved(kRows, kCols, type), rounded(kRows, kCols, type), ordered(256, kCols, type);
  backend.run(ops::RoundHeads{rounded, inp, 64});
  backend.run(ops::CopyHeads{moved, inp, kCols / 64, 48, 64, 64});
  Operand total(kRows, kCols / 64, DType::f32), of_sinks(kRows, kCols / 64, DType::f32);
  backend.run(ops::AddSinks{turned, total, stats, sinks});
  backend.run(ops::SinkTerms{of_sinks, inp, turned, total, sinks});
  backend.run(ops::OrderBlocks{ordered, inp.view().row_range(0, 256), blocks, 1, 2});
  return outputs({&squares,     &sums,  &heads,  &rstd,   &d_heads, &d_weight, &turned,  &activated,
                  &d_activated, &bent,  &d_bent, &d_p,    &d_n,     &kept,     &ordered, &total,
                  &of_sinks,    &moved, &begins, &copies, &own,     &firsts,   &rounded});
}

/// Sequences of 64 rows, with heads of 10 columns.
Outputs delta_net(Backend& backend, DType type) {
  constexpr std::int64_t kHeads = 4, kKeyHeads = 2, kDim = 10, kAll = kHeads * kDim;
  const std::int64_t rows = kRows / 64 * 64;
  const ops::SeenRows seen{.positions = 64};
  const Operand inp = input("inp", rows, kAll, type), taps = input("taps", 5, kAll, DType::f32),
                gates = input("gates", rows, kHeads, type),
                number = input("number", 1, kHeads, type),
                keys = input("keys", rows, kKeyHeads * kDim, type),
                d_out = input("d", rows, kAll, type),
                d_gates = input("dg", rows, kHeads, DType::f32);
  const auto floats = [&](std::int64_t cols) { return Operand(rows, cols, DType::f32); };
  Operand out(rows, kAll, type), turned(kAll, rows, DType::f32), d_taps(4, kAll, DType::f32),
      decay = floats(kHeads), beta = floats(kHeads), d_a(rows, kHeads, type),
      d_b(rows, kHeads, type), of_log = floats(kHeads), of_bias = floats(kHeads),
      states(rows / 64 * kHeads, (kDim + 2) * kDim, DType::f32), recalled(rows, kAll, type),
      d_q = floats(kKeyHeads * kDim), d_k = floats(kKeyHeads * kDim), d_v(rows, kAll, type),
      d_decay = floats(kHeads), d_beta = floats(kHeads), deltas = floats(kAll),
      memory(rows / 64 * kKeyHeads, ops::DeltaRuleBackward::memory_cols(64, kDim, kDim),
             DType::f32);
  backend.run(ops::Transpose{turned, inp});
  backend.run(ops::CausalConvolution{.out = out, .inp = inp, .weight = taps, .seen = seen});
  backend.run(ops::CausalConvolutionWeights{d_taps, d_out, inp, seen});
  const ops::DeltaGates made{decay, beta, gates, gates, number, number};
  backend.run(made);
  backend.run(ops::DeltaGatesBackward{made, d_gates, d_gates, d_a, d_b, of_log, of_bias});
  const ops::DeltaRule rule{.out = recalled,
                            .states = states,
                            .q = keys,
                            .k = keys,
                            .v = inp,
                            .decay = decay,
                            .beta = beta,
                            .seen = seen,
                            .heads = kHeads,
                            .key_heads = kKeyHeads,
                            .group = kHeads / kKeyHeads};
  backend.run(rule);
  backend.run(ops::DeltaRuleBackward{rule, d_out, d_q, d_k, d_v, d_decay, d_beta, deltas, memory});
  return outputs({&out, &turned, &d_taps, &decay, &beta, &d_a, &d_b, &of_log, &of_bias, &recalled,
                  &d_q, &d_k, &d_v, &d_decay, &d_beta});
}

Outputs loss_and_embedding(Backend& backend, DType type) {
  const Operand x = input("x", kRows, kCols, type), ids(random_ids("ids", kRows, 50));
  Operand stats(kRows, 3, DType::f32), loss(kRows, 1, DType::f32), lse(kRows, 1, DType::f32),
      d(kRows, kCols, type), d_table(50, kCols, DType::f32), squares(1, 1, DType::f64),
      d_positions(100, kCols, DType::f32), embedded(kRows, kCols, type);
  backend.run(ops::SoftmaxStats{stats, x, ids, {0, kCols}});
  backend.run(ops::CombineSoftmax{loss, lse, stats, ids});
  backend.run(ops::CrossEntropyBackward{d, x, lse, ids, {0, kCols}, 1});
  Operand whole_loss(kRows, 1, DType::f32), d_whole(kRows, kCols, type);
  backend.run(ops::CrossEntropy{.loss = whole_loss,
                                .lse = lse,
                                .d_logits = d_whole,
                                .logits = x,
                                .targets = ids,
                                .valid = kCols});
  backend.run(ops::Embedding{.out = embedded, .ids = ids, .table = x, .first = 3});
  backend.run(ops::EmbeddingBackward{d_table, x, ids, 0});
  backend.run(ops::PositionsBackward{d_positions, x});
  Operand terms(kRows, 2, DType::f32), diverged(kRows, kCols, type);
  const Operand s = input("s", kRows, kCols, DType::f32), t = input("t", kRows, kCols, DType::f32);
  Operand entropy(kRows, 1, DType::f32), kept(kRows, 1, DType::f32), tail(kRows, 4, DType::f32);
  backend.run(ops::EntropyTerms{entropy, s, lse, ids, kCols});
  backend.run(ops::DivergenceTerms{terms, s, t, lse, lse, ids, kCols, 0.5f});
  backend.run(ops::DivergenceBackward{diverged, s, t, lse, lse, ids, terms, kCols, 0.5f, 1});
  backend.run(ops::KthLargestLogit{kept, t, ids, kCols, 1, 9});
  backend.run(ops::DivergenceTerms{tail, s, t, lse, lse, ids, kCols, 0, kept});
  backend.run(ops::DivergenceTail{tail, ids, 0});
  Operand greedy(kRows, 1, DType::f32), sum(1, 1, DType::f64), bad(1, 1, DType::i64),
      clip(1, 1, DType::f32), powers(1, 1, DType::f64), largest(1, 1, DType::f64);
  Operand tied(kRows, 4, DType::f32), record(kRows, 4, DType::f32), drawn(kRows, 1, DType::f32);
  backend.run(ops::SoftmaxStats{tied, x, ids, {0, kCols}});
  backend.run(ops::GreedyTargets{greedy, tied, ids, kCols});
  backend.run(ops::TokenRecord{record, s, ids, kCols});
  backend.run(ops::PolicyLogProbability{
      .out = drawn, .logits = s, .targets = ids, .vocab = kCols, .top_k = 40, .top_p = 0.9});
  backend.run(ops::SquaredSum{squares, x});
  backend.run(ops::Sum{sum, x});
  backend.run(ops::CountNonfinite{bad, x});
  backend.run(ops::ClipFactor{clip, squares, 1});
  backend.run(ops::PowerSum{powers, x, squares, 3});
  backend.run(ops::LargestSize{largest, x});
  return outputs({&loss,    &lse,         &d,        &whole_loss, &d_whole,  &d_table,
                  &squares, &d_positions, &embedded, &terms,      &diverged, &greedy,
                  &tied,    &record,      &drawn,    &sum,        &bad,      &clip,
                  &powers,  &largest,     &entropy,  &kept,       &tail});
}

Outputs adafactor(Backend& backend, DType type) {
  const std::int64_t R = 100, C = 1000;
  const Operand matrix = input("g", R, C, DType::f32), rows_sum(1, 1, DType::f64);
  Operand rows(1, R, DType::f32), cols(1, C, DType::f32), steps(1, 1, DType::f64),
      weights = input("w", R, C, DType::f32), by_adafactor(R, C, type);
  backend.run(ops::AddSquares{.rows = rows, .cols = cols, .gradient = matrix});
  backend.run(ops::Sum{rows_sum, rows});
  const ops::FactoredMoment moment{rows, cols, rows_sum, static_cast<float>(R)};
  backend.run(ops::AdafactorSquares{steps, matrix, moment});
  backend.run(ops::Adafactor{.master = weights,
                             .gradient = matrix,
                             .out = by_adafactor,
                             .moment = moment,
                             .step_squares = steps,
                             .count = static_cast<double>(R * C),
                             .step = 0.1F});
  return outputs({&rows, &cols, &steps, &weights, &by_adafactor});
}

Outputs small_states(Backend& backend, DType) {
  const std::int64_t n = 100'000;  // 391 blocks
  const Operand inp = input("m", 1, n, DType::f32),
                table = input("t", 1, DynamicMap::kTable, DType::f32);
  Operand codes(1, n, DType::u8), absmax(1, 391, DType::f32), rounded(1, n, DType::bf16);
  const ops::DynamicBlocks blocks{codes, absmax, table};
  backend.run(ops::EncodeDynamic{blocks, inp});
  Operand out(1, n, DType::f32);
  backend.run(ops::DecodeDynamic{out, blocks});
  backend.run(ops::RoundAtRandom{rounded, inp, 3});
  return outputs({&codes, &absmax, &out, &rounded});
}

Outputs optimizers(Backend& backend, DType type) {
  const std::int64_t n = 100'000;
  const Operand gradient = input("g", 1, n, DType::f32);
  Operand master = input("w", 1, n, DType::f32), first(1, n, DType::f32), second(1, n, DType::f32),
          out(1, n, type), by_sgd(1, n, type);
  backend.run(ops::AdamW{.master = master,
                         .first = first,
                         .second = second,
                         .gradient = gradient,
                         .out = out,
                         .lr = 0.1f,
                         .weight_decay = 0.1f,
                         .decayed = 70'001});
  backend.run(ops::Sgd{.master = master,
                       .gradient = gradient,
                       .out = by_sgd,
                       .lr = 0.1f,
                       .weight_decay = 0.1f,
                       .decayed = 70'001});
  const Operand other = input("h", 1, n, type);
  Operand slow(1, n, DType::f32), momentum(1, n, DType::f32), moved(1, n, DType::f32),
      divided(1, n, type), sum(1, n, type), squares(1, 1, DType::f64);
  backend.run(ops::AdamW{.master = master,
                         .first = first,
                         .second = second,
                         .gradient = gradient,
                         .out = out,
                         .lr = 0.1f,
                         .decayed = 70'001,
                         .slow = slow,
                         .beta3 = 0.99,
                         .alpha = 8});
  backend.run(ops::Momentum{.momentum = momentum, .gradient = gradient, .out = moved});
  backend.run(ops::DivideByNorm{divided, gradient, squares, 1});
  backend.run(ops::WeightedSum{sum, divided, other, 3, 2});
  Operand average = input("a", 1, n, DType::f32);
  backend.run(ops::MovingAverage{average, gradient, 0.1f});
  Operand by_lion(1, n, type), mean(1, n, DType::f32), z(1, n, DType::f32), x(1, n, DType::f32);
  backend.run(ops::Lion{
      .master = master, .mean = mean, .gradient = gradient, .out = by_lion, .decayed = 70'001});
  backend.run(ops::ScheduleFreeAdamW{.master = master,
                                     .z = z,
                                     .average = x,
                                     .second = second,
                                     .gradient = gradient,
                                     .out = out,
                                     .lr = 0.1f});
  Operand clamped = input("c", 1, n, type), words(1, 3, DType::i64);
  backend.run(ops::Clamp{clamped, 0.5f});
  Matrix ends(1, 4);
  ends.values = {0, 200, 200'000, 400'000};
  backend.run(ops::WordSums{words, gradient, Operand(ends, DType::i64)});
  return outputs({&words, &master, &first, &second, &out, &by_sgd, &slow, &momentum, &moved,
                  &divided, &sum, &average, &by_lion, &mean, &z, &x, &clamped});
}

Outputs elements(Backend& backend, DType type) {
  const Operand a = input("a", kRows, kCols, DType::f32), b = input("b", kRows, kCols, type);
  Operand activated(kRows, kCols, type), d(kRows, kCols, type), sum(kRows, kCols, type),
      copy(kRows, kCols, type), dropped(kRows, kCols, type), columns(1, kCols, DType::f32);
  backend.run(ops::Gelu{activated, b});
  backend.run(ops::GeluBackward{d, activated, b});
  backend.run(ops::Add{sum, a, b});
  backend.run(ops::Cast{copy, a});
  backend.run(ops::Dropout{.out = dropped, .inp = b, .probability = 0.3f, .key = 5});
  backend.run(ops::ColumnSum{columns, b});
  const QuantizedForm form{Quantization::nf4, 32};
  const std::int64_t cols = 64, count = 300 * cols, size = form.bytes(count);
  reference::Matrix bytes(1, size);
  std::ranges::copy(random_ids("records", size, 256), bytes.values.begin());
  const Operand records(bytes, DType::u8), ids(random_ids("ids", 40, 310));
  Operand dequantized(1, count, type), looked_up(40, cols, type);
  backend.run(ops::Dequantize{dequantized, records, form});
  backend.run(ops::DequantizeRows{looked_up, ids, records, form, 3});
  return outputs({&activated, &d, &sum, &copy, &dropped, &columns, &dequantized, &looked_up});
}

Outputs arithmetic(Backend& backend, DType type) {
  const Operand a = input("a", kRows, kCols, type), b = input("b", kRows, kCols, type);
  Operand activated(kRows, kCols, type), d(kRows, kCols, type), product(kRows, kCols, type),
      scaled(kRows, kCols, type), shifted(kRows, kCols, DType::f32), stats(kRows, 2, DType::f32),
      p(kRows, kCols, type), dots(kRows, 1, DType::f32), d_p(kRows, kCols, type);
  backend.run(ops::Activation{activated, a, ops::ActivationKind::tanh});
  backend.run(ops::ActivationBackward{d, b, a, ops::ActivationKind::tanh});
  backend.run(ops::Multiply{product, a, b});
  backend.run(ops::Scale{scaled, a, 0.3f});
  backend.run(ops::AddNumber{shifted, a, 0.3f});
  Operand by_number(kRows, kCols, type);
  backend.run(ops::ScaleByNumber{by_number, a, input("number", 1, 1, type)});
  Operand capped(kRows, kCols, type), d_capped(kRows, kCols, type);
  backend.run(ops::SoftCap{capped, a, 0.5f});
  backend.run(ops::SoftCapBackward{d_capped, b, capped, 0.5f});
  backend.run(ops::SoftmaxStats{stats, a, {}, {0, kCols}});
  backend.run(ops::Softmax{p, a, stats});
  backend.run(ops::RowDots{dots, b, p});
  backend.run(ops::SoftmaxBackward{d_p, b, p, dots});
  return outputs({&activated, &d, &product, &scaled, &shifted, &stats, &p, &dots, &d_p, &capped,
                  &d_capped, &by_number});
}

Outputs experts(Backend& backend, DType type) {
  const std::int64_t E = 70, k = 3;
  const Operand logits = input("logits", kRows, E, DType::f32),
                inp = input("inp", kRows, kCols, type), d_out = input("d_out", kRows, kCols, type),
                balance = input("balance", 3, E, DType::f32);
  Operand ids(kRows, k, DType::i32), weights(kRows, k, DType::f32), scores(kRows, E, DType::f32),
      log_sums(kRows, 1, DType::f32), score_sums(kRows, 1, DType::f32),
      counts(3, 2 * E + 2, DType::f64), copy_rows(kRows, k, DType::i32), each(1, E, DType::i32),
      copies(kRows * k, kCols, type), out(kRows, kCols, type), d_copies(kRows * k, kCols, type),
      d_weights(kRows, k, DType::f32), d_logits(kRows, E, DType::f32);
  const ops::Route route{.ids = ids,
                         .weights = weights,
                         .scores = scores,
                         .log_sums = log_sums,
                         .score_sums = score_sums,
                         .logits = logits,
                         .sigmoid = true,
                         .normalise = true};
  backend.run(route);
  backend.run(ops::RouteCounts{.out = counts,
                               .ids = ids,
                               .scores = scores,
                               .log_sums = log_sums,
                               .score_sums = score_sums,
                               .positions = 100});
  backend.run(ops::ExpertOrder{.copy_rows = copy_rows, .counts = each, .ids = ids});
  Operand scaled(kRows, k, DType::f32), terms(kRows, E, DType::f32);
  backend.run(ops::ExpertFactors{scaled, weights, ids, input("factors", 1, E, type)});
  backend.run(ops::ExpertFactorTerms{terms, scaled, weights, ids});
  backend.run(ops::SpreadRows{.out = copies, .inp = inp, .copy_rows = copy_rows});
  backend.run(ops::CombineRows{out, copies, copy_rows, weights});
  backend.run(ops::CombineRowsBackward{.d_inp = d_copies,
                                       .d_weights = d_weights,
                                       .d_out = d_out,
                                       .inp = copies,
                                       .copy_rows = copy_rows,
                                       .weights = weights});
  backend.run(ops::RouteBackward{.d_logits = d_logits,
                                 .d_weights = d_weights,
                                 .forward = route,
                                 .balance = balance,
                                 .positions = 100,
                                 .z = 0.5f});
  return outputs({&scaled, &terms, &ids, &weights, &scores, &log_sums, &score_sums, &counts,
                  &copy_rows, &each, &copies, &out, &d_copies, &d_weights, &d_logits});
}

/// Together they run every row-wise operation.
constexpr std::pair<const char*, Outputs (*)(Backend&, DType)> kRowwise[] = {
    {"layer_norm", layer_norm},
    {"llama", llama},
    {"delta_net", delta_net},
    {"experts", experts},
    {"loss_and_embedding", loss_and_embedding},
    {"optimizers", optimizers},
    {"small states", small_states},
    {"adafactor", adafactor},
    {"elements", elements},
    {"arithmetic", arithmetic}};

/// Notes the names of the operations that pass through it.
class NamingBackend final : public ForwardingBackend {
 public:
  NamingBackend() : ForwardingBackend(make_cpu_backend(1)) {}
  const std::set<std::string_view>& names() const { return names_; }

 protected:
  void around(const OperationCall& call, const std::function<void()>& run) override {
    names_.insert(call.name);
    run();
  }

 private:
  std::set<std::string_view> names_;
};

class Threads : public testing::TestWithParam<DType> {};

}  // namespace

TEST_P(Threads, ProductsInEveryModeHaveTheSameBits) {
  const std::int64_t sizes[][3] = {{256, 192, 768}, {48, 64, 2048}, {17, 33, 515}, {1024, 96, 96}};
  for (const auto& [M, N, K] : sizes)
    for (int mode = 0; mode < 4; ++mode)
      for (bool accumulate : {false, true})
        expect_same_bits("matmul", [&](Backend& backend) {
          const bool ta = mode & 1, tb = mode & 2;
          const Operand a = input("a", ta ? K : M, ta ? M : K, GetParam()),
                        b = input("b", tb ? N : K, tb ? K : N, GetParam());
          Operand out(M, N, accumulate ? DType::f32 : GetParam());
          backend.matmul({.out = out,
                          .a = a,
                          .b = b,
                          .a_transposed = ta,
                          .b_transposed = tb,
                          .accumulate = accumulate});
          return outputs({&out});
        });
}

TEST_P(Threads, ProductsOfExpertsHaveTheSameBits) {
  const std::vector<std::int64_t> counts{300, 7, 0, 90};
  const std::int64_t width = 192, N = 520;
  for (int mode = 0; mode < 4; ++mode)
    expect_same_bits("matmuls", [&](Backend& backend) {
      const bool ta = mode & 1, tb = mode & 2;
      Outputs inputs, results;
      std::vector<Matmul> products;
      for (const std::int64_t rows : counts) {
        const std::int64_t M = ta ? width : rows, K = ta ? rows : width;
        inputs.push_back(input("a", ta ? K : M, ta ? M : K, GetParam()));
        inputs.push_back(input("b", tb ? N : K, tb ? K : N, GetParam()));
        results.emplace_back(M, N, ta ? DType::f32 : GetParam());
        products.push_back({.out = results.back(),
                            .a = inputs[inputs.size() - 2],
                            .b = inputs.back(),
                            .a_transposed = ta,
                            .b_transposed = tb,
                            .accumulate = ta});
      }
      backend.matmuls(products);
      return results;
    });
}

TEST_P(Threads, ProductsInEveryWayHaveTheSameBits) {
  for (int mode = 0; mode < 4; ++mode) {
    const MatmulShape shape{.M = 290,
                            .N = 600,
                            .K = 131,
                            .a_transposed = (mode & 1) != 0,
                            .b_transposed = (mode & 2) != 0,
                            .type = GetParam(),
                            .out_type = GetParam()};
    const std::vector<std::string> ways = make_cpu_backend(1)->matmul_ways(shape);
    EXPECT_FALSE(ways.empty());
    for (const std::string& way : ways)
      expect_same_bits(to_string(shape) + " as " + way, [&](Backend& backend) {
        const std::int64_t M = shape.M, N = shape.N, K = shape.K;
        const bool ta = shape.a_transposed, tb = shape.b_transposed;
        const Operand a = input("a", ta ? K : M, ta ? M : K, GetParam()),
                      b = input("b", tb ? N : K, tb ? K : N, GetParam());
        Operand out(M, N, GetParam());
        EXPECT_TRUE(backend.set_matmul_way(shape, way));
        backend.matmul({.out = out, .a = a, .b = b, .a_transposed = ta, .b_transposed = tb});
        return outputs({&out});
      });
  }
}

TEST_P(Threads, AttentionHasTheSameBits) {
  for (const auto& [sequences, kv_heads] : {std::pair{2, 2}, {1, 1}})  // 3 threads share heads
    expect_same_bits("attention", [&](Backend& backend) {
      const std::int64_t D = 40, T = 150, R = sequences * T, k_cols = kv_heads * D;
      const Operand q = input("q", R, 2 * k_cols, GetParam()),
                    k = input("k", R, k_cols, GetParam()), v = input("v", R, k_cols, GetParam()),
                    d_out = input("d_out", R, 2 * k_cols, GetParam());
      Operand out(R, 2 * k_cols, GetParam()), stats(R, 2 * kv_heads, DType::f32),
          d_q(R, 2 * k_cols, GetParam()), d_k(R, k_cols, GetParam()), d_v(R, k_cols, GetParam());
      const Attention forward{.q = q,
                              .k = k,
                              .v = v,
                              .out = out,
                              .stats = stats,
                              .positions = T,
                              .heads = 2 * kv_heads,
                              .head_dim = D,
                              .group = 2,
                              .scale = 0.15f};
      backend.attention(forward);
      backend.attention_backward(
          {.forward = forward, .d_out = d_out, .d_q = d_q, .d_k = d_k, .d_v = d_v});
      return outputs({&out, &stats, &d_q, &d_k, &d_v});
    });
}

TEST_P(Threads, CachedAttentionHasTheSameBits) {
  expect_same_bits("cached_attention", [](Backend& backend) {
    const std::int64_t D = 24, entries = 1300, R = 3;
    const Operand q = input("q", R, 4 * D, GetParam()),
                  keys = input("k", 4 * entries, D, GetParam()),
                  values = input("v", 4 * entries, D, GetParam()),
                  slots(std::vector<std::int32_t>{1, 0, 1}),
                  positions(std::vector<std::int32_t>{1299, 700, 30});
    Operand out(R, 4 * D, GetParam());
    backend.cached_attention({.q = q,
                              .keys = keys,
                              .values = values,
                              .out = out,
                              .slots = slots,
                              .positions = positions,
                              .entries = entries,
                              .longest = entries,
                              .heads = 4,
                              .kv_heads = 2,
                              .head_dim = D,
                              .group = 2,
                              .scale = 0.15f});
    return outputs({&out});
  });
}

TEST_P(Threads, EveryRowwiseOperationHasTheSameBits) {
  NamingBackend naming;
  for (const auto& [name, run] : kRowwise) {
    expect_same_bits(name, [&](Backend& backend) { return run(backend, GetParam()); });
    run(naming, GetParam());
  }
  EXPECT_THAT(naming.names(), testing::UnorderedElementsAreArray(kRowwiseNames));
}

TEST_P(Threads, ColumnSumsHaveTheSameBitsWhetherThreadsShareColumnsOrRows) {
  for (std::int64_t cols : {300, 700})  // enough for one thread; for two, not for three
    expect_same_bits("column_sum", [cols](Backend& backend) {
      const Operand inp = input("inp", kRows, cols, GetParam()),
                    d_out = input("d_out", kRows, cols, GetParam()),
                    stats = input("stats", kRows, 2, DType::f32);
      Operand sums(1, cols, DType::f32), d_weight(1, cols, DType::f32), d_bias(1, cols, DType::f32);
      backend.run(ops::ColumnSum{sums, inp});
      backend.run(ops::LayerNormWeightBackward{d_weight, d_bias, d_out, inp, stats});
      return outputs({&sums, &d_weight, &d_bias});
    });
}

TEST_P(Threads, ColumnSumsOfAllColumnsHaveTheBitsOfThoseOfEachHalf) {
  // All columns together exceed the L2 caches, so their rows are prefetched; half of them do not.
  constexpr std::int64_t R = 1400, C = 800;
  const auto backend = make_cpu_backend(2);
  const Operand d_out = input("d_out", R, C, GetParam()), inp = input("inp", R, C, GetParam()),
                stats = input("stats", R, 2, DType::f32);
  const Operand whole(2, C, DType::f32), halves(2, C, DType::f32), sum(1, C, DType::f32),
      half_sums(1, C, DType::f32);
  const auto sums = [&](const View& two, const View& one, std::int64_t begin, std::int64_t n) {
    const auto cut = [&](const View& view) { return view.col_range(begin, n); };
    backend->run(ops::LayerNormWeightBackward{cut(two.row_range(0, 1)), cut(two.row_range(1, 1)),
                                              cut(d_out), cut(inp), stats});
    backend->run(ops::ColumnSum{cut(one), cut(d_out)});
  };
  sums(whole, sum, 0, C);
  for (std::int64_t begin : {std::int64_t{0}, C / 2}) sums(halves, half_sums, begin, C / 2);
  EXPECT_TRUE(whole.memory() == halves.memory()) << close(whole, halves.values(), {});
  EXPECT_TRUE(sum.memory() == half_sums.memory()) << close(sum, half_sums.values(), {});
}

INSTANTIATE_TEST_SUITE_P(Types, Threads, testing::Values(DType::f32, DType::bf16),
                         [](const auto& type) { return std::string(name_of(type.param)); });
