// Documents in one sequence do not influence one another.
#include <cmath>

#include <gmock/gmock.h>

#include "axonn/foundation/base/random.h"

#include "tests/support/one_rank_model.h"
#include "tests/support/tiny_model.h"

using namespace axonn;
using namespace axonn::testing_support;

namespace {

using Document = std::vector<std::int32_t>;  // each token but the last is an input

Document document(std::uint64_t number, std::int64_t tokens) {
  const Random random(number, "document");
  Document ids(tokens);
  for (std::int64_t t = 0; t < tokens; ++t) ids[t] = static_cast<std::int32_t>(random.below(t, 31));
  return ids;
}

/// Sequences of T inputs, each with the documents of one list. The rest is filled with documents of
/// one token without a target.
class Packed {
 public:
  Packed(std::int64_t T, const std::vector<std::vector<Document>>& sequences)
      : rows_{std::ssize(sequences), T} {
    for (const auto& documents : sequences) {
      const std::int64_t begin = std::ssize(ids_);
      for (const Document& each : documents)
        for (std::int64_t t = 0; t + 1 < std::ssize(each); ++t)
          put(each[t], each[t + 1], t, std::ssize(ids_) - begin - t);
      while (std::ssize(ids_) - begin < T) put(0, -1, 0, std::ssize(ids_) - begin);
    }
  }
  Tokens tokens(const Context& ctx, int further = 0) const {
    return make_tokens(ctx, ids_, targets_, rows_,
                       {.positions = positions_, .starts = starts_, .further = further});
  }

 private:
  void put(std::int32_t id, std::int32_t target, std::int64_t position, std::int64_t start) {
    ids_.push_back(id);
    targets_.push_back(target);
    positions_.push_back(static_cast<std::int32_t>(position));
    starts_.push_back(static_cast<std::int32_t>(start));
  }
  Rows rows_;
  std::vector<std::int32_t> ids_, targets_, positions_, starts_;
};

ModelConfig packed_model(ModelFamily family) {
  ModelConfig config{
      .family = family, .layers = 2, .hidden = 24, .heads = 6, .ffn = 40, .vocab = 31};
  config.kv_heads = family == ModelFamily::llama ? 2 : 6;
  return config;
}

double largest_difference(const OneRankModel::Weights& a, const OneRankModel::Weights& b) {
  double most = 0;
  for (const auto& [name, values] : a)
    for (std::size_t i = 0; i < values.values.size(); ++i)
      most = std::max(most, std::abs(values.values[i] - b.at(name).values[i]));
  return most;
}

double largest_of(const OneRankModel::Weights& a) {
  double most = 0;
  for (const auto& [name, values] : a)
    for (double value : values.values) most = std::max(most, std::abs(value));
  return most;
}

}  // namespace

TEST(PackedDocuments, HaveTheSameLossAndGradientsAsInSequencesOfTheirOwn) {
  const Document a = document(1, 4), b = document(2, 6), c = document(3, 2);
  for (ModelFamily family : {ModelFamily::llama, ModelFamily::gpt}) {
    OneRankModel model(packed_model(family));
    const auto run = [&](std::int64_t T, const std::vector<std::vector<Document>>& sequences) {
      const Packed packed(T, sequences);
      return model.backward([&](const Context& ctx) { return packed.tokens(ctx); });
    };
    const auto [loss, gradients] = run(9, {{a, b, c}});  // 3 + 5 + 1 inputs
    const auto [apart, apart_gradients] = run(9, {{a}, {b}, {c}});
    const auto [other, other_gradients] = run(9, {{c, b}, {a}});
    // Sums of at most 9 rows and 40 products, in another order.
    const double tolerance = 100 * 1.2e-7;
    EXPECT_NEAR(loss, apart, tolerance * loss);
    EXPECT_NEAR(loss, other, tolerance * loss);
    EXPECT_LE(largest_difference(gradients, apart_gradients), tolerance * largest_of(gradients));
    EXPECT_LE(largest_difference(gradients, other_gradients), tolerance * largest_of(gradients));
  }
}

TEST(PackedDocuments, HaveFurtherTokensOfTheirOwn) {
  const Document a = document(1, 4), b = document(2, 6), c = document(3, 2);
  ModelConfig config = packed_model(ModelFamily::llama);
  config.mtp_layers = 2;
  OneRankModel model(config);
  model.set_mtp(0.5);
  const auto run = [&](const std::vector<std::vector<Document>>& sequences) {
    const Packed packed(9, sequences);
    const auto result = model.backward([&](const Context& ctx) { return packed.tokens(ctx, 2); });
    return std::pair(model.mtp_loss(), result.second);
  };
  const auto [loss, gradients] = run({{a, b, c}});
  const auto [apart, apart_gradients] = run({{a}, {b}, {c}});
  const double tolerance = 100 * 1.2e-7;  // as above
  EXPECT_GT(loss, 0);
  EXPECT_NEAR(loss, apart, tolerance * loss);
  EXPECT_LE(largest_difference(gradients, apart_gradients), tolerance * largest_of(gradients));
}

TEST(PackedDocuments, ChangeNoBitOfAnotherDocumentsLoss) {
  const Document first = document(1, 4), second = document(2, 6);
  for (ModelFamily family : {ModelFamily::llama, ModelFamily::gpt}) {
    OneRankModel model(packed_model(family));
    const auto loss_of_second = [&](const Document& before) {  // without the targets of `before`
      const std::int64_t n = std::ssize(before) - 1, T = 9;
      std::vector<std::int32_t> ids(T), targets(T, -1), positions(T), starts(T);
      for (std::int64_t t = 0; t < T; ++t) {
        const bool in_second = t >= n && t - n < std::ssize(second) - 1;
        ids[t] = t < n ? before[t] : in_second ? second[t - n] : 0;
        if (in_second) targets[t] = second[t - n + 1];
        starts[t] = static_cast<std::int32_t>(t < n ? 0 : n);
        positions[t] = static_cast<std::int32_t>(t) - starts[t];
      }
      return model.backward([&](const Context& ctx) {
        return make_tokens(ctx, ids, targets, {1, T}, {.positions = positions, .starts = starts});
      });
    };
    const auto [loss, gradients] = loss_of_second(first);
    const auto [again, same] = loss_of_second(document(7, 4));
    EXPECT_EQ(loss, again);
    EXPECT_EQ(largest_difference(gradients, same), 0);
    EXPECT_GT(loss, 0);
  }
}
