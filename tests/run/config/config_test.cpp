#include "axonn/run/config/config.h"

#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>

#include <gmock/gmock.h>

#include "axonn/foundation/base/check.h"
#include "axonn/foundation/options/options.h"
#include "axonn/foundation/options/options_text.h"
#include "axonn/network/model/known_models.h"
#include "axonn/run/config/config_options.h"
#include "axonn/run/config/resolve.h"
#include "axonn/run/config/validate.h"
#include "axonn/use/memorize/config.h"

#include "tests/support/build_paths.h"

using namespace axonn;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

namespace {

const std::filesystem::path kRoot = test::source_folder();

/// The smallest config that validate() accepts.
Config small_config() {
  Config config;
  config.model = {.layers = 2, .hidden = 96, .heads = 24};
  config.data.synthetic = 1000;
  config.training.steps = 10;
  config.training.seq_len = 16;
  config.training.global_batch = 24;
  config.optimizer.lr = 1e-3;
  return config;
}

/// A config with all sections that the program knows.
Config whole_config() { return {.further = {memorize_section()}}; }

/// All values as text; equal texts mean equal configs.
std::string values_of(Config config) { return print_config(std::move(config), Origins()); }

/// Applies `change` to the config and returns the error message of validate(), or "accepted".
template <typename Change>
std::string refusal(Change change) {
  Config config = small_config();
  change(config);
  try {
    validate(config);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "accepted";
}

}  // namespace

TEST(ConfigFile, RoundTripsEveryValue) {
  Config config = small_config();
  config.optimizer.lr = 1.0 / 3;
  config.optimizer.eps = 1e-9;
  config.data = {.text = {"a b", "c\"d"}, .tokens = {}, .validation = "0.1"};
  config.training.dtype = DType::bf16;
  config.training.eval_every = 5;
  config.lr_scheduler = {.kind = ScheduleKind::wsd, .warmup_steps = 3, .min_lr = 1e-5};
  config.parallelism = {.x = 2, .z = 2, .reduce_dtype = DType::bf16, .chunks = 2};
  config.parallelism.overlap.weights = false;
  config.activation_checkpoint.mode = RecomputeMode::full;
  config.checkpoint.resume = "auto";
  validate(config);
  config = resolved(config);

  Config read;
  OptionList list;
  list_options(read, list);
  Origins origins;
  Origins given;
  given.set("training.micro_batch", "run.toml:3:1");
  read_toml_text(list, config_toml(config, given), "config.toml", origins);
  EXPECT_EQ(values_of(read), values_of(config));
  EXPECT_THAT(warnings(read, origins), IsEmpty());
}

TEST(ConfigFile, WritesKeysWithoutEffectAsCommentsSoThatTheyCauseNoWarnings) {
  Config config = small_config();
  config.model = {.path = "out/checkpoints/latest"};
  config.optimizer.kind = OptimizerKind::sgd;
  const std::string text = config_toml(config, Origins());
  EXPECT_THAT(text, AllOf(HasSubstr("\n# layers = 0 "), HasSubstr("\n# beta1 = 0.9 ")));
  Config read;
  OptionList list;
  list_options(read, list);
  Origins origins;
  read_toml_text(list, text, "config.toml", origins);
  EXPECT_THAT(warnings(read, origins), IsEmpty());

  Origins set;
  set.set("optimizer.beta1", "--optimizer.beta1");
  EXPECT_THAT(config_toml(config, set), HasSubstr("\nbeta1 = 0.9\n"))
      << "a key that the user set is not a comment";
}

TEST(FurtherSections, AreReadPrintedAndStoredLikeTheOthers) {
  auto width = std::make_shared<std::int64_t>(3);
  const auto own = [](const std::shared_ptr<std::int64_t>& value) {
    return FurtherSection{.name = "my_model", .list = [value](OptionList& list) {
                            list.section("my_model", "A user's own model");
                            list.add("width", value.get(), {.help = "width of the model"});
                          }};
  };
  Config config = small_config();
  config.further = {own(width), memorize_section()};
  OptionList list;
  list_options(config, list);
  Origins origins;
  read_toml_text(list, "[my_model]\nwidth = 7\n[memorize]\ntrials = 2\n", "a.toml", origins);
  EXPECT_EQ(*width, 7);
  EXPECT_THAT(read_flags(list, std::vector<std::string>{"--my_model.width", "8"}, origins),
              IsEmpty());
  EXPECT_THAT(print_config(config, origins),
              HasSubstr("[my_model]\nwidth = 8  # --my_model.width\n"));
  EXPECT_THAT(warnings(config, origins), IsEmpty()) << "several commands may share a file";

  const std::string text = config_toml(config, Origins());
  EXPECT_THAT(text, AllOf(HasSubstr("[my_model]\nwidth = 8\n"), HasSubstr("# trials = 2"),
                          HasSubstr("only axonn memorize reads it")));
  EXPECT_THAT(config_toml(config, origins), HasSubstr("\ntrials = 2\n"))
      << "the user's file sets it";
  auto again = std::make_shared<std::int64_t>(3);
  Config stored{.further = {own(again), memorize_section()}};
  OptionList stored_list;
  list_options(stored, stored_list);
  read_toml_text(stored_list, text, "config.toml", origins);
  EXPECT_EQ(*again, 8);

  // Without the owner of a section, a user's file is refused. A checkpoint's file can be read.
  Config without;
  OptionList short_list;
  list_options(without, short_list);
  EXPECT_THAT([&] { read_toml_text(short_list, text, "a.toml", origins); },
              testing::ThrowsMessage<UsageError>(HasSubstr("there is no section")));
  read_toml_text(short_list, text, "a.toml", origins, UnknownSections::skip);
  EXPECT_EQ(without.training.steps, config.training.steps);
}

TEST(Warnings, NameEveryKeyThatTheUserSetAndTheRunDoesNotRead) {
  Config config;
  OptionList list;
  list_options(config, list);
  Origins origins;
  read_toml_text(list,
                 "[optimizer]\nkind = \"sgd\"\nbeta1 = 0.9\n"
                 "[lr_scheduler]\nkind = \"constant\"\nmin_lr = 1e-4\ndecay_steps = 5\n"
                 "[training]\neval_every = 10\nattention = \"own\"\n[data]\nvalidation = 0\n"
                 "[parallelism]\noverlap_weights = false\ndevice = \"cpu\"\n",
                 "a.toml", origins);
  EXPECT_THAT(
      warnings(config, origins),
      testing::UnorderedElementsAre(
          "optimizer.beta1 (a.toml:3:1) has no effect: optimizer.kind is sgd, which has no moments",
          HasSubstr("lr_scheduler.min_lr (a.toml:6:1) has no effect"),
          HasSubstr("lr_scheduler.decay_steps (a.toml:7:1) has no effect"),
          HasSubstr("training.eval_every (a.toml:9:1) has no effect: data.validation is none"),
          HasSubstr("training.attention (a.toml:10:1) has no effect: parallelism.device is not "
                    "cuda"),
          HasSubstr(
              "parallelism.overlap_weights (a.toml:14:1) has no effect: there is only one rank")));
}

TEST(Warnings, NameTheKeysOfExpertsThatHaveNoEffect) {
  const auto warned = [](const std::string& text) {
    Config config;
    OptionList list;
    list_options(config, list);
    Origins origins;
    read_toml_text(list, text, "a.toml", origins);
    return warnings(config, origins);
  };
  const std::string llama = "[model]\nfamily = \"llama\"\nlayers = 2\n";
  EXPECT_THAT(warned(llama + "router_scale = 2.0\n[training]\nbalance.z = 1e-3\n"),
              testing::UnorderedElementsAre(
                  "model.router_scale (a.toml:4:1) has no effect: model.experts is 0",
                  HasSubstr("training.balance.z (a.toml:6:9) has no effect: model.experts is 0")));
  const std::string experts = llama + "experts = 4\nexperts_per_token = 2\nffn = 64\n";
  EXPECT_THAT(warned(experts), testing::IsEmpty());
  EXPECT_THAT(warned(experts + "expert_ffn = 32\n[training]\nbalance.scope = \"batch\"\n"),
              testing::UnorderedElementsAre(
                  HasSubstr("model.ffn (a.toml:6:1) has no effect: all layers have experts"),
                  HasSubstr("training.balance.scope (a.toml:9:9) has no effect")));
  EXPECT_THAT(warned(experts + "expert_ffn = 32\ndense_layers = [1]\n"), testing::IsEmpty());
  EXPECT_THAT(warned("[model]\npath = \"m\"\nexperts = 4\n[training]\nbalance.weight = 1e-3\n"),
              testing::ElementsAre(HasSubstr("the checkpoint at model.path has its own sizes")));
}

TEST(Validate, AcceptsTheSmallestConfigAndNamesAllMissingKeysAtOnce) {
  EXPECT_EQ(refusal([](Config&) {}), "accepted");
  EXPECT_EQ(refusal([](Config& c) { c.training.seq_len = 0; }),
            "a key is missing; set it in a file, axonn train CONFIG.toml, or by flags such as "
            "--training.seq_len VALUE:\n  training.seq_len: length of each training sequence");
  const std::string all = refusal([](Config& c) {
    c = {};
    c.file = "a.toml";
  });
  EXPECT_THAT(all,
              HasSubstr("8 keys are missing; set them in a.toml or by flags such as --model."));
  for (const char* key :
       {"model.layers", "model.hidden", "model.heads", "data.text", "training.steps",
        "training.seq_len", "training.global_batch", "optimizer.lr"})
    EXPECT_THAT(all, HasSubstr(std::string("\n  ") + key + ": "));
  EXPECT_THAT(all, AllOf(HasSubstr("unless model.path names a model"),
                         HasSubstr(", or training.epochs"), HasSubstr(", or data.tokens, ")));
  EXPECT_EQ(refusal([](Config& c) { c.model = {.path = "checkpoint"}; }), "accepted");
}

TEST(Validate, TakesEpochsInPlaceOfStepsAndAShareInPlaceOfWarmupSteps) {
  const auto epochs = [](Config& c) {
    c.training.steps = 0;
    c.training.epochs = 2.5;
    c.lr_scheduler = {.warmup_steps = 11, .min_lr = 0};
  };
  EXPECT_EQ(refusal(epochs), "accepted");
  Config config = small_config();
  epochs(config);
  EXPECT_THAT([&] { with_steps(resolved(config), 10); },
              testing::ThrowsMessage<UsageError>(HasSubstr("warmup_steps = 11 is more than")));
  EXPECT_THAT(refusal([](Config& c) { c.training.epochs = 3; }),
              AllOf(HasSubstr("steps = 10 and epochs = 3.0"), HasSubstr("leave one of them out")));
  const auto staged = [&](Config& c) {
    epochs(c);
    c.data.synthetic = 0;
    c.stage = {{.name = "a", .synthetic = 100}};
  };
  EXPECT_THAT(refusal(staged), HasSubstr("[[stage]] name several; set steps instead"));
  EXPECT_THAT(refusal([](Config& c) { c.lr_scheduler = {.warmup_steps = 2, .warmup_ratio = 0.5}; }),
              HasSubstr("warmup_steps = 2 and warmup_ratio = 0.5 both set"));
  EXPECT_THAT(
      refusal([](Config& c) { c.lr_scheduler = {.warmup_ratio = 0.5, .total_samples = 100}; }),
      HasSubstr("warmup_ratio = 0.5 counts steps"));
}

TEST(Defaults, OfAdaptersAreTheirOwnUnlessTheUserSetsTheKeys) {
  Config config = small_config();
  config.model.lora.rank = 8;
  Origins origins;
  set_adapter_defaults(config, origins);
  EXPECT_EQ(config.optimizer.lr, 2e-4);
  EXPECT_EQ(config.optimizer.weight_decay, 0);
  EXPECT_EQ(config.lr_scheduler.warmup_ratio, 0.03);
  EXPECT_THAT(print_config(config, origins),
              testing::ContainsRegex("\nlr = 2e-04 +# default of adapters\n"));
  config = small_config();
  config.model.lora.path = "adapters";
  config.lr_scheduler.warmup_steps = 3;
  Origins set;
  for (const char* key : {"optimizer.lr", "lr_scheduler.warmup_steps"}) set.set(key, "a.toml");
  set_adapter_defaults(config, set);
  EXPECT_EQ(config.optimizer.lr, 1e-3);
  EXPECT_EQ(config.optimizer.weight_decay, 0);
  EXPECT_EQ(config.lr_scheduler.warmup_ratio, 0);
  config = small_config();
  set_adapter_defaults(config, origins = {});
  EXPECT_EQ(values_of(config), values_of(small_config()));
}

TEST(Defaults, OutputIsNamedAfterTheFileOfTheConfig) {
  Config config;
  Origins origins;
  name_output(config, origins);
  EXPECT_EQ(config.output.dir, "out/run");
  config.file = "some/where/chat.v2.toml";
  name_output(config, origins);
  EXPECT_EQ(config.output.dir, "out/chat.v2");
  EXPECT_EQ(origins.of("output.dir"), "named after some/where/chat.v2.toml");
  config.output.dir = "elsewhere";
  name_output(config, origins);
  EXPECT_EQ(config.output.dir, "elsewhere");
}

TEST(Warnings, NameATokenizerThatLeavesMostOfTheVocabularyUnused) {
  Config config = small_config();
  config.data = {.text = {"a.txt"}};
  config.model.vocab = 50'257;
  Origins origins;
  EXPECT_THAT(warnings(config, origins),
              ElementsAre(HasSubstr("uses 256 of the 50257 tokens of model.vocab")));
  origins.set("data.tokenizer", "a.toml");
  EXPECT_THAT(warnings(config, origins), IsEmpty());
}

TEST(Config, RefusesStagesWithoutOneKindOfDataOrOutOfOrder) {
  const auto staged = [](const auto& change) {
    return refusal([&](Config& c) {
      c.data.synthetic = 0;
      c.training.seq_len = 8;
      c.stage = {{.name = "a", .synthetic = 100}, {.name = "b", .from_step = 3, .text = {"b.txt"}}};
      change(c);
    });
  };
  EXPECT_EQ(staged([](Config&) {}), "accepted");
  EXPECT_THAT(staged([](Config& c) { c.data.synthetic = 1; }),
              HasSubstr("[data] and [[stage]] both name training data"));
  EXPECT_THAT(staged([](Config& c) { c.stage[1].name = ""; }), HasSubstr("has no name"));
  EXPECT_THAT(staged([](Config& c) { c.stage[1].name = "a"; }),
              HasSubstr("two stages have the name \"a\""));
  EXPECT_THAT(staged([](Config& c) { c.stage[1].text.clear(); }),
              HasSubstr("[[stage]] \"b\" names no data; set one of its keys"));
  EXPECT_THAT(staged([](Config& c) { c.stage[1].synthetic = 5; }),
              HasSubstr("names more than one kind of data"));
  EXPECT_THAT(staged([](Config& c) { c.stage[1].from_step = 1; }),
              HasSubstr("from_step = 1 must be greater than the previous stage's, 1"));
  EXPECT_THAT(staged([](Config& c) { c.stage[1].seq_len = 3; }),
              HasSubstr("seq_len = 3 does not divide [training] seq_len = 8"));
  EXPECT_EQ(staged([](Config& c) { c.stage[1].seq_len = 2; }), "accepted");
  const auto uncut = [](Config& c) {
    c.training.seq_len = 512;
    c.stage[1].seq_len = 128;
    c.parallelism.z = c.parallelism.context = 2;
  };
  EXPECT_THAT(staged(uncut), HasSubstr("a [[stage]] seq_len = 128, [parallelism] context = 2: "));
  const auto captured = [](Config& c) {
    c.stage[1].seq_len = 2;
    c.training.cuda_graph = true;
  };
  EXPECT_THAT(staged(captured), HasSubstr("seq_len of a [[stage]] exclude one another"));
}

TEST(Config, StoresItsStages) {
  Config config = small_config(), read;
  config.stage = {{.name = "a", .tokens = {"0.7 x", "0.3 y"}},
                  {.name = "b", .from_step = 3, .text = {"b.txt"}, .seq_len = 2}};
  OptionList list;
  list_options(read, list);
  Origins origins;
  read_toml_text(list, config_toml(config, Origins()), "config.toml", origins);
  ASSERT_EQ(read.stage.size(), 2u);
  EXPECT_EQ(read.stage[0].tokens, config.stage[0].tokens);
  EXPECT_EQ(read.stage[1].from_step, 3);
  EXPECT_EQ(read.stage[1].text, config.stage[1].text);
  EXPECT_EQ(config_toml(read, Origins()), config_toml(config, Origins()));
  EXPECT_THAT(config_toml(config, Origins()),
              HasSubstr("\n[[stage]]\nname = \"b\"\nfrom_step = 3\ntext = [\"b.txt\"]\n"
                        "seq_len = 2\n"));
}

TEST(Config, RefusesBatchesThatDoNotRiseToTheGlobalBatch) {
  const auto ramp = [](const char* text) {
    return refusal([&](Config& c) { c.training.batch_ramp = text; });
  };
  for (const char* text : {"4 4", "4 4 0", "a 4 100", "4 4 100 1", "-4 4 100"})
    EXPECT_THAT(ramp(text), HasSubstr("is not \"start increment sequences\"")) << text;
  EXPECT_THAT(ramp("5 4 100"), HasSubstr("must be a multiple of the increment"));
  EXPECT_THAT(ramp("24 4 100"), HasSubstr("does not rise from 24 by 4 to global_batch = 24"));
  EXPECT_EQ(ramp("4 4 100"), "accepted");
  const auto listed = [](const std::vector<std::string>& stages) {
    return refusal([&](Config& c) { c.training.batch_stages = stages; });
  };
  EXPECT_THAT(listed({"8"}), HasSubstr("is not \"batch sequences\""));
  EXPECT_THAT(listed({"8 100", "8 200"}), HasSubstr("\"8 100\" is out of order"));
  EXPECT_THAT(listed({"8 100", "12 100"}), HasSubstr("\"12 100\" is out of order"));
  EXPECT_THAT(listed({"8 100", "24 200"}), HasSubstr("rise to global_batch = 24"));
  EXPECT_EQ(listed({"8 100", "12 200"}), "accepted");
  const auto both = [](Config& c) {
    c.training.batch_ramp = "4 4 100";
    c.training.batch_stages = {"8 100"};
  };
  EXPECT_THAT(refusal(both), HasSubstr("exclude one another"));
  const auto planned = [](Config& c) {
    c.training.batch_ramp = "4 4 100";
    c.parallelism.named_grid = "auto";
  };
  EXPECT_THAT(refusal(planned), HasSubstr("name a grid"));
}

TEST(Config, RefusesAScheduleThatCountsBothStepsAndSequences) {
  const auto mixed = [](Config& c) { c.lr_scheduler = {.warmup_steps = 2, .total_samples = 100}; };
  EXPECT_THAT(refusal(mixed), HasSubstr("warmup_steps = 2 counts steps"));
  const auto longer = [](Config& c) {
    c.lr_scheduler = {
        .kind = ScheduleKind::wsd, .warmup_samples = 60, .decay_samples = 50, .total_samples = 100};
  };
  EXPECT_THAT(refusal(longer), HasSubstr("are more than total_samples = 100"));
}

TEST(Validate, NamesSizesThatWork) {
  EXPECT_THAT(refusal([](Config& c) { c.model.heads = 7; }),
              AllOf(HasSubstr("heads = 7 does not divide hidden = 96"), HasSubstr("6 or 8 heads")));
  EXPECT_THAT(refusal([](Config& c) { c.model.heads = 97; }), HasSubstr("take 96 heads"));
  EXPECT_THAT(refusal([](Config& c) { c.model.kv_heads = 5; }),
              AllOf(HasSubstr("kv_heads = 5"), HasSubstr("take 4 or 6")));
  EXPECT_THAT(refusal([](Config& c) {
                c.training.micro_batch = 6;
                c.parallelism.z = 5;
              }),
              AllOf(HasSubstr("micro_batch = 6 is more than 5, the most sequences that a rank has"),
                    HasSubstr("global_batch = 24 with [parallelism] z 5 x data 1; lower it")));
  EXPECT_THAT(refusal([](Config& c) { c.parallelism.chunks = 5; }),
              HasSubstr("chunks = 5 does not divide the micro-batch of 24"));
}

TEST(Validate, RejectsContradictingKeys) {
  EXPECT_THAT(refusal([](Config& c) { c.data.text = {"a.txt"}; }),
              HasSubstr("exclude one another"));
  EXPECT_THAT(refusal([](Config& c) { c.data.validation = "1.5"; }), HasSubstr("between 0 and 1"));
  EXPECT_EQ(refusal([](Config& c) { c.data.validation = "0"; }), "accepted");
  EXPECT_EQ(refusal([](Config& c) { c.data.validation = "held_out.txt"; }), "accepted");
  EXPECT_THAT(refusal([](Config& c) { c.model.positions = 8; }),
              AllOf(HasSubstr("seq_len = 16"), HasSubstr("positions = 8")));
  EXPECT_THAT(refusal([](Config& c) { c.lr_scheduler.warmup_steps = 11; }),
              AllOf(HasSubstr("warmup_steps = 11"), HasSubstr("steps = 10")));
  EXPECT_THAT(refusal([](Config& c) { c.lr_scheduler.min_lr = 1; }), HasSubstr("min_lr = 1"));
  EXPECT_THAT(refusal([](Config& c) {
                c.lr_scheduler = {
                    .kind = ScheduleKind::wsd, .warmup_steps = 6, .min_lr = 0, .decay_steps = 6};
              }),
              HasSubstr("decay_steps = 6"));
  EXPECT_THAT(refusal([](Config& c) { c.training.skip_outliers = 0.5; }),
              HasSubstr("skip_outliers"));
  EXPECT_THAT(refusal([](Config& c) { c.output.dir = ""; }), HasSubstr("[output] dir"));
  constexpr std::int64_t kLargest = std::numeric_limits<std::int64_t>::max();
  EXPECT_THAT(refusal([](Config& c) { c.training.seq_len = kLargest; }),
              HasSubstr("more than 2^63 tokens together"));
  EXPECT_THAT(refusal([](Config& c) {
                c.training.micro_batch = kLargest;
                c.parallelism.z = 2;
              }),
              HasSubstr("micro_batch = 9223372036854775807 is more than 12, the most"));
}

TEST(Validate, RejectsDevicesThatThisBuildDoesNotHave) {
  EXPECT_THAT(refusal([](Config& c) { c.parallelism.device = DeviceKind::hip; }),
              HasSubstr("this build has no HIP backend"));
}

TEST(Validate, CountsRanksWithoutOverflow) {
  EXPECT_THAT(refusal([](Config& c) {
                c.parallelism = {.x = 1 << 20, .y = 1 << 20, .z = 1 << 20, .data = 1 << 20};
              }),
              HasSubstr("ranks"));
}

TEST(NamedGrid, SetsAllFourExtentsAndRejectsContradictingKeys) {
  Config config = small_config();
  config.parallelism.named_grid = "2,1,3,1";
  EXPECT_EQ(resolved(config).parallelism.grid(), (GridShape{2, 1, 3, 1}));
  EXPECT_EQ(resolved(config).parallelism.named_grid, "");
  EXPECT_EQ(resolved(config).training.micro_batch, 8);
  const auto of_grid = [](const char* name, GridShape keys, std::int64_t micro_batch = 0) {
    return refusal([&](Config& c) {
      c.parallelism.set_grid(keys);
      c.parallelism.named_grid = name;
      c.training.micro_batch = micro_batch;
    });
  };
  EXPECT_EQ(of_grid("2,1,3,1", {}), "accepted");
  EXPECT_EQ(of_grid("2,1,3,1", {2, 1, 3, 1}), "accepted");
  EXPECT_EQ(of_grid("auto", {}), "accepted");
  EXPECT_THAT(of_grid("2,1,3,1", {1, 1, 3, 1}), HasSubstr("contradicts x 1, y 1, z 3"));
  EXPECT_THAT(of_grid("auto", {2, 1, 1, 1}), HasSubstr("contradicts x 2"));
  EXPECT_THAT(of_grid("auto", {}, 4), HasSubstr("micro_batch = 4"));
  EXPECT_THAT(of_grid("1,1,5,1", {}, 6), HasSubstr("micro_batch = 6 is more than 5"));
  EXPECT_NE(of_grid("best", {}), "accepted");
}

TEST(Resolved, TheMicroBatchDividesTheShareOfEveryBatch) {
  const auto micro_batch_of = [](std::int64_t batch, int z, std::vector<std::string> stages) {
    Config config = small_config();
    config.training.global_batch = batch;
    config.training.batch_stages = std::move(stages);
    config.parallelism.z = z;
    return resolved(config).training.micro_batch;
  };
  EXPECT_EQ(micro_batch_of(24, 2, {}), 12);
  EXPECT_EQ(micro_batch_of(24, 2, {"8 100"}), 4);
  EXPECT_EQ(micro_batch_of(24, 5, {}), 5);
  EXPECT_EQ(micro_batch_of(3, 8, {}), 1);
  EXPECT_EQ(micro_batch_of(24, 4, {"5 100", "15 200"}), 2);  // shares of 2, 4 and 6
}

TEST(Resolved, FillsInValuesThatFollowFromOthers) {
  Config config = small_config();
  config.parallelism = {.z = 2, .data = 3};
  config.lr_scheduler.kind = ScheduleKind::wsd;
  const Config full = resolved(config);
  EXPECT_EQ(full.model.kv_heads, 24);
  EXPECT_EQ(full.model.ffn, 384);
  EXPECT_EQ(full.model.positions, 16);
  EXPECT_EQ(full.model.vocab, 0) << "the size is known only to the tokenizer";
  EXPECT_EQ(full.training.micro_batch, 4);
  EXPECT_EQ(full.lr_scheduler.decay_steps, 1);
  EXPECT_EQ(values_of(resolved(full)), values_of(full));
}

TEST(ConfigToml, LeavesTheMicroBatchToTheProgramWhereTheUserDid) {
  Config config = small_config();
  config.parallelism = {.z = 2, .data = 3};
  const Config full = resolved(config);
  EXPECT_THAT(config_toml(full, Origins()), HasSubstr("\nmicro_batch = 0\n"));
  Origins given;
  given.set("training.micro_batch", "run.toml:3:1");
  EXPECT_THAT(config_toml(full, given), HasSubstr("\nmicro_batch = 4\n"));
  Config planned = full;
  planned.training.micro_batch = 2;  // as grid = "auto" may choose
  EXPECT_THAT(config_toml(planned, Origins()), HasSubstr("\nmicro_batch = 2\n"));
}

TEST(Configs, EveryFileOfTheProjectIsValidWithoutWarnings) {
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(kRoot / "configs")) {
    if (entry.path().extension() != ".toml") continue;
    SCOPED_TRACE(entry.path());
    Config config = whole_config();
    Origins origins;
    const auto read = [&] {
      OptionList list;
      list_options(config, list);
      read_toml(list, entry.path(), origins);
    };
    read();
    if (!config.model.name.empty()) {
      config = {.model = known_model(config.model.name), .further = config.further};
      read();
    }
    EXPECT_THAT(warnings(config, origins), IsEmpty());
    if (config.data.synthetic == 0 && config.data.jsonl.empty() && config.data.tokens.empty() &&
        config.stage.empty())
      config.data.text = {"given on the command line"};
    EXPECT_NO_THROW(validate(config));
    ++files;
  }
  EXPECT_GE(files, 13);
}

TEST(ConfigReference, IsUpToDate) {
  std::ifstream file(kRoot / "docs" / "configuration.md");
  const std::string committed(std::istreambuf_iterator<char>(file), {});
  EXPECT_TRUE(committed == config_reference(whole_config()))
      << "to update it: axonn help --markdown > docs/configuration.md";
}

TEST(ConfigOfPairs, RefusesByNameWhatALossOfPairsDoesNotDo) {
  const auto refusal_of = [](const auto& change) {
    return refusal([&](Config& config) {
      config.preference.loss = PreferenceLoss::simpo;
      config.data.synthetic = 0;
      config.data.jsonl = {"pairs.jsonl"};
      change(config);
    });
  };
  const std::vector<std::pair<const char*, std::function<void(Config&)>>> changes{
      {"[data] jsonl",
       [](Config& config) {
         config.data.jsonl.clear();
         config.data.text = {"a.txt"};
       }},
      {"use_weighting",
       [](Config& config) {
         config.preference = {.loss = PreferenceLoss::dpo, .use_weighting = true};
         config.model.logit_cap = 30;
       }},
      {"[data] mask_history", [](Config& config) { config.data.mask_history = true; }},
      {"[data] train_on_prompt", [](Config& config) { config.data.train_on_prompt = true; }},
      {"[training] goldfish.k", [](Config& config) { config.training.goldfish.k = 4; }},
      {"[training] z_loss", [](Config& config) { config.training.z_loss = 1e-3; }},
      {"[training] verify_every", [](Config& config) { config.training.verify_every = 2; }}};
  for (const auto& [key, change] : changes)
    EXPECT_THAT(refusal_of(change), testing::StartsWith(concat("[preference] loss: ", key)));
  EXPECT_EQ(refusal_of([](Config&) {}), "accepted");
  EXPECT_EQ(refusal_of([](Config& config) { config.data.validation = "0.1"; }), "accepted");
}

TEST(ConfigOfFurtherTokens, RefusesByNameWhatTheirLayersDoNotDo) {
  const auto refusal_with = [](const auto& change) {
    return refusal([&](Config& config) {
      config.model.family = ModelFamily::llama;
      config.model.mtp_layers = 1;
      config.training.seq_len = 256;
      change(config);
    });
  };
  EXPECT_EQ(refusal_with([](Config&) {}), "accepted");
  EXPECT_THAT(refusal_with([](Config& c) { c.model.family = ModelFamily::gpt; }),
              HasSubstr("mtp_layers = 1: [model] family"));
  EXPECT_THAT(refusal_with([](Config& c) { c.distill.teacher = "teacher"; }),
              HasSubstr("mtp_layers = 1: [distill] teacher"));
  EXPECT_THAT(refusal_with([](Config& c) { c.training.z_loss = 1e-3; }),
              HasSubstr("mtp_layers = 1: [training] z_loss"));
  EXPECT_THAT(refusal_with([](Config& c) { c.parallelism.z = c.parallelism.context = 2; }),
              HasSubstr("mtp_layers = 1: [parallelism] context"));
  EXPECT_THAT(refusal_with([](Config& c) { c.model.window = 4; }), HasSubstr("with window"));
  EXPECT_THAT(refusal_with([](Config& c) { c.model.lora.rank = 2; }), HasSubstr("with [lora]"));
}
