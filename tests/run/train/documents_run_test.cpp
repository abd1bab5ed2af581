// Training on documents that share sequences: separate, or joined as Apertus was trained.
#include <cmath>

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "axonn/data/corpus/batches.h"
#include "axonn/data/corpus/corpus.h"
#include "axonn/data/corpus/synthetic/synthetic.h"
#include "axonn/foundation/base/files.h"
#include "axonn/plan/measure/compare.h"
#include "axonn/plan/measure/dry_run.h"
#include "axonn/ranks/comm/threads/threads.h"
#include "axonn/run/config/prepared_run.h"
#include "axonn/run/config/resolve.h"
#include "axonn/run/config/validate.h"
#include "axonn/run/train/training.h"

#include "tests/support/dry_peak.h"
#include "tests/support/runs.h"
#include "tests/support/temporary_path.h"

using namespace axonn;
using namespace axonn::testing_support;
using testing::HasSubstr;

namespace {

/// Lines of JSON whose documents have 3 to 90 characters, and the path of the file.
std::string write_documents(const std::string& path) {
  const std::string text = synthetic_text(20'000, 1);
  std::string lines;
  for (std::size_t at = 0, n = 0; at + 100 < text.size(); ++n) {
    const std::size_t length = 3 + n * 37 % 88;
    lines += nlohmann::json{{"text", text.substr(at, length)}}.dump() + '\n';
    at += length;
  }
  write_file_atomically(path, lines);
  return path;
}

/// A run of 10 steps of 12 sequences of 32 tokens.
Config documents_config(const test::TemporaryPath& folder,
                        DocumentMode mode = DocumentMode::separate) {
  Config config = tiny_config(folder / "run");
  config.data.synthetic = 0;
  config.data.text = {write_documents(folder / "documents.jsonl")};
  config.data.documents = mode;
  config.training.seq_len = 32;
  config.optimizer.lr = 1e-3;
  return config;
}

Config as_llama(Config config) {
  config.model.family = ModelFamily::llama;
  config.model.kv_heads = 4;
  config.model.tied = false;
  return config;
}

/// A tiny Apertus with its joined documents and its goldfish mask. A larger eps keeps the effect of
/// rounding small: docs/apertus.md.
Config apertus_config(const test::TemporaryPath& folder) {
  Config config = as_llama(documents_config(folder, DocumentMode::apertus));
  config.model.activation = MlpKind::xielu;
  config.model.qk_norm = QkNormKind::head;
  config.optimizer.eps = 1e-5;
  config.training.goldfish = {.k = 3, .h = 4, .mask = GoldfishMask::apertus};
  return config;
}

GridTrace trace_of(const Config& given, int steps = 10) {
  const PreparedRun run = prepared(given);
  GridTrace trace;
  run_ranks(run->parallelism.grid().ranks(), [&](Communicator& world) {
    GridTrace mine = trace_run(run, world, make_cpu_backend(1), {.steps = steps});
    if (world.rank() == 0) trace = std::move(mine);
  });
  return trace;
}

/// Expects the losses and norms of one rank, the latter up to ten times the difference.
void expect_like(const GridTrace& got, const GridTrace& want, const std::string& what) {
  EXPECT_LE(largest_difference(got.losses, want.losses), 2e-6) << what;
  EXPECT_LE(largest_difference(got.norms, want.norms), 2e-5) << what;
}

std::int64_t count(const std::vector<std::int32_t>& targets) {
  return std::ranges::count_if(targets, [](std::int32_t target) { return target >= 0; });
}

}  // namespace

TEST(DocumentsTraining, HasTheLossesOfOneRankOnEveryGridAndForEveryMicroBatch) {
  test::TemporaryPath folder;
  std::vector<Config> configs{documents_config(folder),
                              as_llama(documents_config(folder, DocumentMode::packed)),
                              apertus_config(folder)};
  configs[0].training.goldfish = configs[1].training.goldfish = {.k = 3, .h = 4};
  for (const Config& config : configs) {
    const GridTrace one = trace_of(config);
    Config joined = config;
    joined.data.documents = DocumentMode::joined;
    EXPECT_GT(largest_difference(trace_of(joined, 1).losses, {one.losses.front()}), 1e-5);
    for (const GridShape grid : {GridShape{.z = 2}, GridShape{.data = 3}, GridShape{2, 1, 2, 1},
                                 GridShape{2, 2, 1, 2}, GridShape{1, 2, 3, 1}})
      expect_like(trace_of(on_grid(config, grid)), one, to_string(grid));
    Config cut = config;
    cut.training.micro_batch = 3;
    expect_like(trace_of(cut), one, "micro-batches");
  }
}

TEST(DocumentsTraining, HasTheSameLossesWhereRanksShareSequencesAndTheSameBitsWithoutOverlap) {
  test::TemporaryPath folder;
  for (Config config : {as_llama(documents_config(folder)), apertus_config(folder)}) {
    config.training.seq_len = 256;
    config.training.global_batch = 2;
    const GridTrace one = trace_of(config, 4);
    for (const ContextLayout layout : {ContextLayout::automatic, ContextLayout::zigzag}) {
      Config shared = config;
      shared.parallelism.context_layout = layout;
      shared = on_grid(shared, {1, 1, 2, 1, 2});
      const GridTrace two = trace_of(shared, 4);
      expect_like(two, one, "a context of 2");
      shared.parallelism.overlap.context = shared.parallelism.overlap.weights = false;
      EXPECT_EQ(trace_of(shared, 4).losses, two.losses);
    }
  }
}

TEST(DocumentsTraining, TheLossIsThatOfEachDocumentAlone) {
  test::TemporaryPath folder;
  for (const Config& given : {documents_config(folder), as_llama(documents_config(folder))}) {
    const Config config = resolved(given);
    run_ranks(1, [&](Communicator& world) {
      Training training(prepared(config), world, make_cpu_backend(1));
      training.model.initialise();
      const Context ctx = training.model.context();
      const MicroBatch batch = training.batches->at(0)->micro_batches.front();
      const auto& [ids, targets, positions, starts, branches] = batch.rows;
      const double together = training.step.forward(ctx, make_tokens(ctx, batch));
      double alone = 0;
      int documents = 0;
      for (std::size_t begin = 0, end = 0; begin < ids.size(); begin = end, ++documents) {
        for (end = begin + 1; end < ids.size() && positions[end] > 0;) ++end;
        const auto part = [&](const std::vector<std::int32_t>& all) {
          return std::vector(all.begin() + static_cast<std::ptrdiff_t>(begin),
                             all.begin() + static_cast<std::ptrdiff_t>(end));
        };
        alone += training.step.forward(
            ctx, make_tokens(ctx, {.sequences = 1, .rows = {part(ids), part(targets), {}, {}}}));
      }
      EXPECT_GT(documents, 15);
      // Sums are in f64; an f32 loss of about log 256 is off by less than ten roundings.
      EXPECT_NEAR(together / alone, 1, 1e-6);
    });
  }
}

TEST(DocumentsTraining, CountsTargetsOverAllRanksInTrainingAndInValidation) {
  test::TemporaryPath folder;
  const auto check = [&](DocumentMode mode, const GridShape& grid, double& one) {
    Config config = on_grid(documents_config(folder, mode), grid);
    config.training.goldfish = {.k = 3, .h = 4};
    run_ranks(grid.ranks(), [&](Communicator& world) {
      Training training(prepared(config), world, make_cpu_backend(1));
      training.model.initialise();
      for (int step = 0; step < 2; ++step) {
        const SequenceMask mask =
            make_goldfish(config.training.goldfish, 0, *training.corpora.front());
        std::int64_t all = 0, kept = 0, inputs = 0;
        Sequence sequence;
        for (std::int64_t n = step * 12; n < (step + 1) * 12; ++n) {
          training.batches->sources().front().sequences->read(n, sequence);
          all += count(sequence.targets);
          inputs += 32 - std::ranges::count(sequence.targets, kPaddingTarget);
          mask(n, sequence);
          kept += count(sequence.targets);
        }
        const StepInput input = training.input(step);
        EXPECT_EQ(input.inputs, inputs);
        EXPECT_EQ(input.tokens, kept);
        EXPECT_EQ(input.all_targets, all);
        if (mode == DocumentMode::separate) {
          EXPECT_LT(all, 12 * 32);
        }
      }
      const double loss = training.validate();
      if (grid.ranks() == 1) one = loss;
      EXPECT_NEAR(loss / one, 1, 2e-6);
      EXPECT_NEAR(one, std::log(256.0), 0.1) << "the mean over the targets that count";
    });
  };
  for (const DocumentMode mode : {DocumentMode::separate, DocumentMode::packed}) {
    double one = 0;
    for (const GridShape grid : {GridShape{}, GridShape{2, 1, 2, 3}}) check(mode, grid, one);
  }
}

TEST(DocumentsTraining, AResumedRunHasTheSameBits) {
  test::TemporaryPath folder;
  Config packed = documents_config(folder, DocumentMode::packed), apertus = apertus_config(folder);
  packed.training.goldfish = {.k = 3, .h = 4};
  apertus.output.dir = folder / "apertus";
  apertus.optimizer.kind = OptimizerKind::ademamix;
  for (const Config& config : {packed, apertus}) {
    const Config whole = on_grid(config, {2, 1, 2, 1});
    train_on_threads(whole);
    Config rest = whole;
    rest.output.dir += "-rest";
    rest.checkpoint.resume = whole.output.dir + "/checkpoints/step-5";
    train_on_threads(rest);
    const std::vector<double> all = column(metrics_of(whole), "loss");
    EXPECT_EQ(column(metrics_of(rest), "loss"), std::vector(all.begin() + 5, all.end()));
    EXPECT_EQ(weights_of(rest.output.dir + "/checkpoints/step-10"),
              weights_of(whole.output.dir + "/checkpoints/step-10"));
  }
}

TEST(DocumentsTraining, DryPeakEqualsARealRunsAndShowsWhereDocumentsBegin) {
  test::TemporaryPath folder;
  for (const GridShape grid : {GridShape{}, GridShape{2, 1, 2, 1}}) {
    expect_dry_peak(prepared(on_grid(documents_config(folder, DocumentMode::packed), grid)));
  }
  const PreparedRun separate = prepared(documents_config(folder)),
                    joined = prepared(documents_config(folder, DocumentMode::joined));
  EXPECT_THAT(dry_run(separate, 0).sample, HasSubstr("; documents begin at rows 0"));
  EXPECT_THAT(dry_run(joined, 0).sample, testing::Not(HasSubstr("documents begin")));
}

TEST(DocumentsTraining, RefusesGraphs) {
  test::TemporaryPath folder;
  Config config = documents_config(folder);
  config.training.cuda_graph = true;
  EXPECT_THAT([&] { validate(config); },
              testing::ThrowsMessage<UsageError>(HasSubstr("[data] documents = \"separate\"")));
}
