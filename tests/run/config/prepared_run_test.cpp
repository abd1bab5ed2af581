// A run is complete before anything starts: values that follow from others are filled in, and what
// is missing is refused.
#include "axonn/run/config/prepared_run.h"

#include <gmock/gmock.h>

#include "axonn/foundation/base/check.h"
#include "axonn/ranks/comm/self.h"
#include "axonn/run/load/launch.h"
#include "axonn/run/load/loaded_model.h"
#include "axonn/run/train/training.h"

using namespace axonn;
using testing::HasSubstr;
using testing::ThrowsMessage;

namespace {

Config asked() {
  Config config;
  config.model = {.layers = 2, .hidden = 48, .heads = 4};
  config.data.synthetic = 20'000;
  config.training = {.steps = 2, .seq_len = 8, .global_batch = 12};
  config.optimizer.lr = 1e-3;
  return config;
}

}  // namespace

TEST(PreparedRun, HasEveryValueThatFollowsFromOthers) {
  Config config = asked();
  config.parallelism.named_grid = "2,1,3,1";
  const PreparedRun run = prepared(config);
  EXPECT_EQ(run->parallelism.grid(), (GridShape{2, 1, 3, 1}));
  EXPECT_EQ(run->training.micro_batch, 4);
  EXPECT_EQ(run->model.vocab, 256) << "that of the tokenizer, bytes";
  EXPECT_EQ(run->model.kv_heads, 4);
  EXPECT_EQ(run->model.ffn, 4 * 48);
  EXPECT_EQ(prepared(run.config())->training.micro_batch, 4) << "prepared again, it is the same";
}

TEST(PreparedRun, OfTokenFilesNeedsAVocabulary) {
  Config config = asked();
  config.data = {.tokens = {"tokens.bin"}, .tokenizer = ""};
  EXPECT_THAT([&] { prepared(config); }, ThrowsMessage<UsageError>(HasSubstr("set model.vocab")));
  config.model.vocab = 100;
  EXPECT_EQ(prepared(config)->model.vocab, 100);
}

TEST(PreparedRun, OfATrainingHasQuantizedWeightsUnderAdaptersAlone) {
  Config config = asked();
  config.model.quantize_embeddings = true;
  EXPECT_THAT([&] { prepared(config); },
              ThrowsMessage<UsageError>(
                  HasSubstr("[model] quantize_embeddings = true wants quantize, such as q8_0")));
  config.model.quantize = Quantization::nf4;
  EXPECT_THAT([&] { prepared(config); },
              ThrowsMessage<UsageError>(testing::AllOf(HasSubstr("[model] quantize = nf4"),
                                                       HasSubstr("set [lora] rank, such as 16"))));
  config.model.lora.rank = 16;
  EXPECT_EQ(prepared(config)->model.quantize, Quantization::nf4);
  config.model.quantize = Quantization::iq4_xs;
  EXPECT_THAT([&] { prepared(config); },
              ThrowsMessage<UsageError>(testing::AllOf(
                  HasSubstr("[model] quantize = iq4_xs: blocks of this kind are read from GGUF"),
                  HasSubstr("take file"))));
}

TEST(PreparedRun, AVariantWithAMissingValueIsRefused) {
  const PreparedRun run = prepared(asked());
  const auto refused = [&](const std::function<void(Config&)>& change, const std::string& why) {
    EXPECT_THAT([&] { run.with(change); }, ThrowsMessage<Error>(HasSubstr(why)));
  };
  refused([](Config& config) { config = asked(); },
          "a vocabulary of 0; prepare the run with prepared(config)");
  refused([](Config& config) { config.model.heads = 0; }, "0 heads");
  refused([](Config& config) { config.parallelism.named_grid = "2,1,1,1"; },
          "parallelism.grid became \"2,1,1,1\"");
  Config config = run.config();
  config.parallelism.named_grid = "2,1,1,1";
  EXPECT_THAT([&] { launch(config.parallelism, [](Communicator&) {}); },
              ThrowsMessage<Error>(HasSubstr("launch: parallelism.grid is still")));
}

TEST(PreparedRun, AVariantHasTheChangeAloneAndLeavesTheRun) {
  const PreparedRun run = prepared(asked());
  const PreparedRun other = run.with([](Config& config) { config.parallelism.chunks = 2; });
  EXPECT_EQ(other->parallelism.chunks, 2);
  EXPECT_EQ(other->training.micro_batch, run->training.micro_batch);
  EXPECT_EQ(run->parallelism.chunks, 1);
  Config open = asked();
  open.parallelism.named_grid = "auto";
  const PreparedRun automatic = prepared(open);
  EXPECT_TRUE(
      automatic.with([](Config& config) { config.training.seed = 1; })->parallelism.automatic());
  EXPECT_FALSE(automatic.with([](Config& config) { config.parallelism.named_grid.clear(); })
                   ->parallelism.automatic());
}

TEST(PreparedRun, OfAStoredModelIsNotTrained) {
  const auto world = make_self();
  EXPECT_THAT([&] { Training(prepared_model(asked()), *world); },
              ThrowsMessage<Error>(HasSubstr("training.micro_batch is 0")));
}

TEST(PreparedRun, WithABudgetThatWasNotAppliedLoadsNoModel) {
  Config config = asked();
  config.activation_checkpoint.budget = 1 << 20;
  const auto world = make_self();
  EXPECT_THAT([&] { LoadedModel(prepared(config), *world); },
              ThrowsMessage<Error>(HasSubstr("activation_checkpoint.budget was not applied")));
}
