#include "axonn/use/infer/evaluate.h"

#include <cmath>
#include <map>
#include <numbers>
#include <numeric>

#include <gmock/gmock.h>

#include "axonn/foundation/base/check.h"
#include "axonn/foundation/base/random.h"
#include "axonn/use/infer/logits.h"
#include "axonn/use/infer/sampling.h"

#include "tests/support/family_reference.h"
#include "tests/support/runs.h"
#include "tests/support/temporary_path.h"
#include "tests/support/with_model.h"

using namespace axonn;
using namespace axonn::testing_support;
using axonn::test::spill;
using axonn::test::TemporaryPath;
using testing::HasSubstr;
using testing::ThrowsMessage;

namespace {

constexpr std::int64_t kVocab = 31;

Config small_llama() {
  Config config;
  config.model = {.family = ModelFamily::llama,
                  .layers = 2,
                  .hidden = 24,
                  .heads = 6,
                  .kv_heads = 2,
                  .ffn = 40,
                  .vocab = kVocab,
                  .positions = 12,
                  .tied = false};
  config.model.init_std = 0.4;  // large enough that losses differ
  config.training.threads = 1;
  return config;
}

std::vector<std::int32_t> random_tokens(std::int64_t count) {
  const Random random(11, "tokens");
  std::vector<std::int32_t> tokens;
  for (std::int64_t i = 0; i < count; ++i)
    tokens.push_back(static_cast<std::int32_t>(random.below(i, kVocab)));
  return tokens;
}

/// Returns the whole parameters of a model on one rank.
reference::Weights weights_of(LoadedModel& model) {
  reference::Weights weights;
  for (const ParameterGroup* group : model.model().groups())
    for (const auto& [spec, slice] : group->piece_slices()) {
      const Layout& layout = spec->layout;
      const bool vector = layout.cols == 1;
      reference::Matrix& matrix =
          weights
              .try_emplace(spec->name, vector ? 1 : layout.rows, vector ? layout.rows : layout.cols)
              .first->second;
      const float* master = group->master().as<float>();
      for (std::int64_t i = 0; i < slice.count(); ++i)
        matrix.values[slice.row * slice.cols + slice.begin + i] = master[slice.offset + i];
    }
  return weights;
}

/// Returns the sum of the losses, computed window by window by plain loops in double.
double reference_nats(LoadedModel& model, const std::vector<std::int32_t>& tokens,
                      std::int64_t seq_len) {
  const reference::Weights weights = weights_of(model);
  double nats = 0;
  for (std::size_t begin = 0; begin + 1 < tokens.size(); begin += seq_len) {
    const std::size_t end = std::min(begin + seq_len, tokens.size() - 1);
    const std::vector<std::int32_t> ids(tokens.begin() + begin, tokens.begin() + end);
    const std::vector<std::int32_t> targets(tokens.begin() + begin + 1, tokens.begin() + end + 1);
    const auto logits = reference::llama_logits(model.config().model, weights, ids,
                                                static_cast<std::int64_t>(ids.size()));
    for (const double loss : reference::cross_entropy(logits, targets).values) nats += loss;
  }
  return nats;
}

EvaluationText text_of(std::vector<std::int32_t> tokens) {
  return {std::make_shared<MemoryTokens>("tokens", std::move(tokens)), std::nullopt};
}

TextScore score_on(const Config& config, const EvaluationText& text, std::int64_t seq_len,
                   std::int64_t batch) {
  TextScore result;
  with_model(config, [&](LoadedModel& model) {
    const TextScore mine = evaluate(model, text, seq_len, {.batch = batch});
    if (model.grid().world().rank() == 0) result = mine;
  });
  return result;
}

TextScore score_on(const Config& config, std::int64_t tokens, std::int64_t seq_len,
                   std::int64_t batch) {
  return score_on(config, text_of(random_tokens(tokens)), seq_len, batch);
}

/// 30 tokens in documents of 3, 6, 1, 9 and 11.
const std::vector<std::int64_t> kBegins{0, 3, 9, 10, 19};
EvaluationText documents_of_30(DocumentMode mode) {
  return {.tokens = std::make_shared<MemoryTokens>("documents", random_tokens(30), kBegins),
          .target_bytes = {},
          .documents = {.mode = mode}};
}

/// A tokenizer of bytes that puts a token before and after a text.
class TokenizerWithEnds : public Tokenizer {
 public:
  TokenizerWithEnds() {
    for (int c = 0; c < 256; ++c) tokens_.emplace_back(1, static_cast<char>(c));
    tokens_.insert(tokens_.end(), {"<s>", "</s>"});
    specials_ = {256, 257};
    begin_ = {256};
    end_ = 257;
  }

 private:
  void append_tokens(std::string_view text, std::vector<std::int32_t>& tokens,
                     const EncodeOptions&) const override {
    for (const char c : text) tokens.push_back(static_cast<unsigned char>(c));
  }
};

std::vector<std::int32_t> all_of(const EvaluationText& text) {
  std::vector<std::int32_t> tokens(text.tokens->size());
  text.tokens->read(0, tokens);
  return tokens;
}

}  // namespace

TEST(Evaluate, SumsTheLossOfEveryTargetOnceForWindowsOfAnyLength) {
  with_model(small_llama(), [](LoadedModel& model) {
    // Windows of 7 tokens: a short one, only whole ones, one with a single target after whole ones,
    // and a pair of tokens.
    for (const std::int64_t count : {30, 29, 36, 2, 8, 5}) {
      const std::vector<std::int32_t> tokens = random_tokens(count);
      const double want = reference_nats(model, tokens, 7);
      for (const std::int64_t batch : {1, 3}) {
        const TextScore got = evaluate(model, text_of(tokens), 7, {.batch = batch});
        EXPECT_EQ(got.tokens, count - 1);
        EXPECT_NEAR(got.nats, want, 1e-5 * want) << count << " tokens, batch " << batch;
      }
    }
  });
}

TEST(Evaluate, AgreesOnEveryGridAndForEveryBatchSize) {
  const TextScore one = score_on(small_llama(), 101, 8, 1);
  EXPECT_EQ(one.tokens, 100);
  for (const GridShape grid : {GridShape{}, GridShape{2, 2, 1, 1}, GridShape{1, 1, 2, 2},
                               GridShape{2, 1, 2, 1}, GridShape{1, 2, 3, 1}, GridShape{.data = 5}})
    for (const std::int64_t batch : {1, 5}) {
      const TextScore other = score_on(on_grid(small_llama(), grid), 101, 8, batch);
      EXPECT_EQ(other.tokens, 100) << to_string(grid);
      EXPECT_NEAR(other.nats, one.nats, 1e-6 * one.nats) << to_string(grid) << " batch " << batch;
    }
}

TEST(Evaluate, ScoresOfTargetsAddUpToThoseOfTheirSequencesOnEveryGrid) {
  const std::vector<std::vector<std::int32_t>> texts{random_tokens(9), random_tokens(3),
                                                     random_tokens(1), random_tokens(12)};
  const ScoredSequences sequences{.count = std::ssize(texts), .at = [&](std::int64_t n) {
                                    const std::int64_t targets = std::ssize(texts[n]) - 1;
                                    return ScoredSequence{.tokens = texts[n],
                                                          .scored = targets - (n == 0 ? 2 : 0),
                                                          .positions = targets};
                                  }};
  for (const GridShape& grid : {GridShape{}, GridShape{2, 1, 1, 1}, GridShape{1, 2, 2, 2}})
    with_model(on_grid(small_llama(), grid), [&](LoadedModel& model) {
      const auto sums = score(model, sequences, {.batch = 2});
      const auto each = score_targets(model, sequences, {.batch = 2});
      ASSERT_EQ(each.size(), sums.size());
      for (std::size_t n = 0; n < each.size(); ++n) {
        EXPECT_EQ(std::accumulate(each[n].losses.begin(), each[n].losses.end(), 0.0), sums[n].nats);
        EXPECT_EQ(std::ssize(each[n].losses), sums[n].targets);
        EXPECT_EQ(std::ranges::count(each[n].greedy, true), sums[n].greedy);
      }
    });
}

TEST(Evaluate, LossesFollowFromTheLogitsOnEveryGrid) {
  const std::vector<std::int32_t> tokens = random_tokens(11);
  for (const GridShape& grid : {GridShape{}, GridShape{2, 1, 1, 1}, GridShape{2, 2, 1, 2}})
    with_model(on_grid(small_llama(), grid), [&](LoadedModel& model) {
      const std::vector<float> logits = logits_of(model, tokens);
      ASSERT_EQ(std::ssize(logits), 11 * kVocab);
      const auto scores = score_targets(model,
                                        {.count = 1,
                                         .at =
                                             [&](auto) {
                                               return ScoredSequence{
                                                   .tokens = tokens, .scored = 10, .positions = 10};
                                             }},
                                        {});
      for (std::size_t t = 0; t < 10; ++t) {
        const float* row = &logits[t * kVocab];
        double sum = 0;
        for (std::int64_t v = 0; v < kVocab; ++v) sum += std::exp(row[v]);
        // Logits are of the order of 10, whose f32 have errors of 1e-6.
        EXPECT_NEAR(scores[0].losses[t], std::log(sum) - row[tokens[t + 1]], 2e-5);
      }
      EXPECT_THAT([&] { logits_of(model, random_tokens(13)); },
                  ThrowsMessage<UsageError>(HasSubstr("has 13 tokens, more than 12")));
    });
}

TEST(Evaluate, RecordsHaveTheProbabilitiesWithWhichTokensAreSampledOnEveryGrid) {
  const std::vector<std::int32_t> tokens = random_tokens(11);
  const std::vector<SamplingPolicy> policies{{},
                                             {.temperature = 0.5, .top_k = 12},
                                             {.temperature = 2, .top_p = 0.7},
                                             {.top_k = 20, .top_p = 0.9},
                                             {.temperature = 0}};
  for (const GridShape& grid : {GridShape{}, GridShape{2, 1, 1, 1}, GridShape{2, 2, 1, 2}})
    with_model(on_grid(small_llama(), grid), [&](LoadedModel& model) {
      const std::vector<float> logits = logits_of(model, tokens);
      const auto whole = [&](auto) {
        return ScoredSequence{.tokens = tokens, .scored = 10, .positions = 10};
      };
      const ScoredSequences sequences{.count = 1, .at = whole};
      const auto records = record_targets(model, sequences, policies, {});
      const auto scores = score_targets(model, sequences, {});
      ASSERT_EQ(records.at(0).size(), 10u);
      for (std::size_t t = 0; t < 10; ++t) {
        const TargetRecord& record = records[0][t];
        EXPECT_NEAR(record.log_p, -scores[0].losses[t], 2e-5);
        EXPECT_EQ(record.rank == 1, scores[0].greedy[t]);
        for (std::size_t i = 0; i < policies.size(); ++i) {
          constexpr int kDraws = 2000;  // at even distances: a share is right to two of them
          const Sampling sampling{.temperature = policies[i].temperature,
                                  .top_k = policies[i].top_k,
                                  .top_p = policies[i].top_p};
          int drawn = 0;
          for (int draw = 0; draw < kDraws; ++draw)
            drawn += sample(std::span(logits).subspan(t * kVocab, kVocab), sampling,
                            (draw + 0.5) / kDraws) == tokens[t + 1];
          EXPECT_NEAR(std::exp(record.log_q[i]), drawn / double{kDraws}, 2.0 / kDraws)
              << "target " << t << ", policy " << i;
        }
      }
    });
}

TEST(Evaluate, AgreesIfRanksShareSequences) {
  Config config = small_llama();
  config.model.positions = 512;
  const TextScore one = score_on(config, 1000, 300, 1);
  for (GridShape grid : {GridShape{1, 1, 2, 1}, GridShape{2, 1, 4, 1}, GridShape{1, 2, 2, 2}}) {
    grid.context = 2;
    const TextScore other = score_on(on_grid(config, grid), 1000, 300, 3);
    EXPECT_EQ(other.tokens, one.tokens) << to_string(grid);
    EXPECT_NEAR(other.nats, one.nats, 1e-6 * one.nats) << to_string(grid);
  }
}

TEST(Evaluate, ScoresDocumentsThatAreNotJoinedAsIfEachWereAlone) {
  const std::vector<std::int32_t> all = random_tokens(30);
  const auto part = [&](std::int64_t begin, std::int64_t end) {
    return std::vector(all.begin() + begin, all.begin() + end);
  };
  with_model(small_llama(), [&](LoadedModel& model) {
    double separate = 0, packed = 0;
    for (std::size_t d = 0; d < kBegins.size(); ++d) {
      const std::int64_t begin = kBegins[d], end = d + 1 < kBegins.size() ? kBegins[d + 1] : 30;
      packed += reference_nats(model, part(begin, end), 7);
      for (std::int64_t at = begin; at + 1 < end;) {  // cut where windows of 7 begin
        const std::int64_t next = std::min(at / 7 * 7 + 7, end - 1);
        separate += reference_nats(model, part(at, next + 1), 7);
        at = next;
      }
    }
    for (const std::int64_t batch : {1, 4}) {
      const TextScore alone = evaluate(model, documents_of_30(DocumentMode::separate), 7,
                                       {.batch = batch}),
                      whole = evaluate(model, documents_of_30(DocumentMode::packed), 7,
                                       {.batch = batch}),
                      joined = evaluate(model, documents_of_30(DocumentMode::joined), 7,
                                        {.batch = batch}),
                      apertus = evaluate(model, documents_of_30(DocumentMode::apertus), 7,
                                         {.batch = batch});
      EXPECT_NEAR(alone.nats, separate, 1e-5 * separate);
      EXPECT_NEAR(whole.nats, packed, 1e-5 * packed);
      for (const TextScore& score : {alone, whole, apertus})
        EXPECT_EQ(score.tokens, 25) << "all but five first tokens";
      EXPECT_EQ(joined.tokens, 29);
      EXPECT_LT(apertus.nats, joined.nats);
    }
  });
}

TEST(Evaluate, AgreesOnGridsIfDocumentsAreSeparateOrPacked) {
  for (const DocumentMode mode : {DocumentMode::separate, DocumentMode::packed}) {
    const TextScore one = score_on(small_llama(), documents_of_30(mode), 8, 1);
    for (GridShape grid :
         {GridShape{2, 2, 1, 1}, GridShape{1, 1, 2, 2}, GridShape{1, 1, 2, 1, 2}}) {
      const TextScore other = score_on(on_grid(small_llama(), grid), documents_of_30(mode), 8, 1);
      EXPECT_EQ(other.tokens, 25) << to_string(grid);
      EXPECT_NEAR(other.nats, one.nats, 1e-6 * one.nats) << to_string(grid);
    }
  }
}

TEST(Evaluate, RefusesDocumentsWithoutTargets) {
  with_model(small_llama(), [](LoadedModel& model) {
    EvaluationText text = documents_of_30(DocumentMode::separate);
    text.tokens =
        std::make_shared<MemoryTokens>("short", random_tokens(2), std::vector<std::int64_t>{0, 1});
    EXPECT_THAT([&] { evaluate(model, text, 7, {}); },
                ThrowsMessage<UsageError>(HasSubstr("short has no targets")));
  });
}

TEST(Evaluate, RefusesSequencesThatCannotBeScored) {
  with_model(small_llama(), [](LoadedModel& model) {
    const auto refused = [&](const ScoredSequence& one, const std::string& why) {
      EXPECT_THAT([&] { score(model, {.count = 1, .at = [&](auto) { return one; }}, {}); },
                  ThrowsMessage<Error>(HasSubstr(why)));
    };
    refused({.tokens = {1, 2}, .scored = 2, .positions = 1}, "2 are scored; wanted fewer");
    refused({.tokens = {}, .scored = 0, .positions = 1}, "has 0 tokens");
    refused({.tokens = {1, 2}, .scored = 1}, "computes 0 positions of 1");
    refused({.tokens = {1, 1 << 30}, .scored = 1, .positions = 1}, "has token 1073741824");
    refused({.tokens = {1, -2}, .scored = 1, .positions = 1}, "has token -2");
    EXPECT_THAT([&] { score(model, {.count = 1}, {}); },
                ThrowsMessage<Error>(HasSubstr("no function `at`")));
    EXPECT_THAT([&] { evaluate(model, {}, 7, {}); },
                ThrowsMessage<Error>(HasSubstr("the text has no tokens")));
  });
}

TEST(Evaluate, RejectsWindowsLongerThanTheModelsPositions) {
  with_model(small_llama(), [](LoadedModel& model) {
    const EvaluationText text = text_of(random_tokens(40));
    EXPECT_GT(evaluate(model, text, 12, {}).nats, 0);
    EXPECT_THAT([&] { evaluate(model, text, 13, {}); },
                ThrowsMessage<UsageError>(HasSubstr("windows of 13 tokens")));
  });
}

TEST(Evaluate, ScoresFollowFromNatsTokensAndBytes) {
  const TextScore score{.nats = 30, .tokens = 20, .bytes = 40};
  EXPECT_DOUBLE_EQ(score.loss(), 1.5);
  EXPECT_DOUBLE_EQ(score.perplexity(), std::exp(1.5));
  EXPECT_DOUBLE_EQ(*score.bits_per_byte(), 0.75 / std::numbers::ln2);
  EXPECT_FALSE((TextScore{.nats = 30, .tokens = 20, .bytes = {}}).bits_per_byte());
}

TEST(EvaluationText, OfBytesUsesItsFirstByteOnlyAsInput) {
  const TemporaryPath folder;
  spill(folder / "a.txt", "hello");
  const auto tokenizer = make_tokenizer("bytes");
  const EvaluationText text = open_evaluation_text(folder / "a.txt", tokenizer, 256);
  EXPECT_THAT(all_of(text), testing::ElementsAre('h', 'e', 'l', 'l', 'o'));
  EXPECT_EQ(text.target_bytes, 4);
}

TEST(EvaluationText, BeginsWithTheBeginningOfTextAndHasNoEndOfText) {
  const TemporaryPath folder;
  spill(folder / "a.txt", "hello");
  const auto tokenizer = std::make_shared<TokenizerWithEnds>();
  const EvaluationText text = open_evaluation_text(folder / "a.txt", tokenizer, 258);
  EXPECT_THAT(all_of(text), testing::ElementsAre(256, 'h', 'e', 'l', 'l', 'o'));
  EXPECT_EQ(text.target_bytes, 5);
}

TEST(EvaluationText, OfATokenFileCountsItsTargetsBytesWithoutSpecialTokens) {
  const TemporaryPath folder;
  write_token_file(folder / "a.bin", {'h', 'i', 257, 256, 'y', 'o', 'u', 257});
  const auto tokenizer = std::make_shared<TokenizerWithEnds>();
  const auto bytes_with = [&](const std::shared_ptr<const Tokenizer>& with, std::int64_t vocab) {
    return open_evaluation_text(folder / "a.bin", with, vocab).target_bytes;
  };
  EXPECT_EQ(bytes_with(tokenizer, 258), 4);
  EXPECT_EQ(bytes_with(nullptr, 258), std::nullopt);
  EXPECT_EQ(bytes_with(make_tokenizer("bytes"), 300), std::nullopt);  // it has no token 257
}

TEST(EvaluationText, OfDocumentsThatAreNotJoinedCountsNoFirstTokens) {
  const TemporaryPath folder;
  spill(folder / "a.jsonl", "{\"text\": \"abc\"}\n{\"text\": \"de\"}\n");
  const auto bytes = make_tokenizer("bytes");
  const auto with_ends = std::make_shared<TokenizerWithEnds>();
  for (const DocumentMode mode :
       {DocumentMode::separate, DocumentMode::packed, DocumentMode::apertus}) {
    const DataConfig data{.documents = mode};
    EXPECT_EQ(open_evaluation_text(folder / "a.jsonl", bytes, 256, data).target_bytes, 3);
    EXPECT_EQ(open_evaluation_text(folder / "a.jsonl", with_ends, 258, data).target_bytes, 5);
  }
  EXPECT_EQ(open_evaluation_text(folder / "a.jsonl", bytes, 256).target_bytes, 4);
  write_token_file(folder / "a.bin", {'h', 'i', 'y', 'o'});
  EXPECT_THAT(
      [&] {
        open_evaluation_text(folder / "a.bin", bytes, 256, {.documents = DocumentMode::separate});
      },
      ThrowsMessage<UsageError>(HasSubstr("set data.eod")));
  EXPECT_EQ(open_evaluation_text(folder / "a.bin", bytes, 256,
                                 {.documents = DocumentMode::separate, .eod = 'i'})
                .target_bytes,
            2);
}

TEST(EvaluationText, OfConversationsScoresTheAnswersAsTrainingDoes) {
  const TemporaryPath folder;
  spill(folder / "a.jsonl", R"({"prompt": "ab", "completion": "cd"}
{"prompt": "e", "completion": "fgh"}
)");
  Config config = small_llama();
  config.model.vocab = 256;
  const EvaluationText text =
      open_evaluation_text(folder / "a.jsonl", make_tokenizer("bytes"), 256);
  EXPECT_EQ(text.examples.end, 2);
  with_model(config, [&](LoadedModel& model) {
    const TextScore all = evaluate(model, text, 12, {});
    EXPECT_EQ(all.tokens, 5);
    EXPECT_EQ(all.bytes, std::nullopt);
    const auto alone = [&](std::vector<std::int32_t> tokens, std::int64_t scored) {
      const ScoredSequence one{.tokens = std::move(tokens), .scored = scored, .positions = 12};
      return score(model, {.count = 1, .at = [&](std::int64_t) { return one; }}, {})[0].nats;
    };
    EXPECT_NEAR(all.nats, alone({'a', 'b', 'c', 'd'}, 2) + alone({'e', 'f', 'g', 'h'}, 3),
                1e-5 * all.nats);
  });
}

TEST(EvaluationText, IsRejectedIfTooShortOrNotTheModels) {
  const TemporaryPath folder;
  spill(folder / "empty.txt", "");
  spill(folder / "short.txt", "x");
  write_token_file(folder / "short.bin", {5});
  write_token_file(folder / "large.bin", {5, 6, 300, 7});
  const auto tokenizer = make_tokenizer("bytes");
  const auto open = [&](const std::string& name, const std::shared_ptr<const Tokenizer>& with,
                        std::int64_t vocab) {
    return [&, name, with, vocab] { open_evaluation_text(folder / name, with, vocab); };
  };
  EXPECT_THAT(open("empty.txt", tokenizer, 256),
              ThrowsMessage<UsageError>(HasSubstr("has 0 tokens")));
  EXPECT_THAT(open("short.txt", tokenizer, 256),
              ThrowsMessage<UsageError>(HasSubstr("has 1 tokens")));
  EXPECT_THAT(open("short.bin", nullptr, 256),
              ThrowsMessage<UsageError>(HasSubstr("has 1 tokens")));
  EXPECT_THAT(open("large.bin", nullptr, 256), ThrowsMessage<UsageError>(HasSubstr("token 2 of")));
  EXPECT_THAT(open("short.txt", nullptr, 256), ThrowsMessage<UsageError>(HasSubstr("--tokenizer")));
  EXPECT_THAT(open("short.txt", tokenizer, 255),
              ThrowsMessage<UsageError>(HasSubstr("has 256 tokens")));
  EXPECT_THAT(open("missing.txt", tokenizer, 256),
              ThrowsMessage<UsageError>(HasSubstr("missing.txt")));
}
