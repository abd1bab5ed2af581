// Generation with products of integers.
#include <algorithm>
#include <cmath>

#include <gmock/gmock.h>

#include "axonn/compute/ops/forwarding_backend.h"
#include "axonn/foundation/base/check.h"
#include "axonn/ranks/comm/self.h"
#include "axonn/run/config/prepared_run.h"

#include "tests/use/infer/generator_models.h"

using namespace axonn;
using namespace axonn::testing_support;
using testing::HasSubstr;
using testing::ThrowsMessage;

namespace {

Config with_codes(Quantization kind, const GridShape& grid = {}) {
  Config config = config_of(llama(), grid);
  config.model.quantize = kind;
  config.model.hidden = 128;  // so that two ranks of x or y have whole blocks
  config.model.heads = 32;
  return config;
}

bool has_integer_products() { return make_cpu_backend(1)->set_integer_products(true); }

/// The largest distance of the log-probabilities of the same first token of each prompt, which
/// has been computed from a prompt of one token, so by products of one row.
double distance(const Config& config, const Generator::Options& options) {
  const Prompts prompts{{65}, {7}, {200}, {33}};
  const GenerationOptions likeliest{.max_tokens = 1, .likeliest = 3};
  Generator::Options alone = options;
  alone.batch = 1;
  const auto texts = generate(config, prompts, likeliest, alone);
  alone.integer_products = false;
  const auto want = generate(config, prompts, likeliest, alone);
  double most = 0;
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    EXPECT_EQ(texts[i].tokens, want[i].tokens) << i;
    const double off = texts[i].scores[0].log_probability - want[i].scores[0].log_probability;
    most = std::max(most, std::abs(off));
  }
  return most;
}

class WithoutIntegers : public ForwardingBackend {
 public:
  using ForwardingBackend::ForwardingBackend;
  bool set_integer_products(bool) override { return false; }
};

}  // namespace

TEST(IntegerProducts, ChangeLogProbabilitiesALittleOnAnyGrid) {
  if (!has_integer_products()) GTEST_SKIP() << "this processor has none";
  for (const Quantization kind : {Quantization::q8_0, Quantization::q4_0, Quantization::q5_0})
    for (const GridShape& grid : {GridShape{}, {2, 1, 1, 1}, {1, 2, 1, 1}, {1, 1, 2, 1}}) {
      const double off = distance(with_codes(kind, grid), {.integer_products = true});
      EXPECT_GT(off, 1e-4) << name_of(kind) << ' ' << to_string(grid);
      EXPECT_LT(off, 0.3) << name_of(kind) << ' ' << to_string(grid);
      EXPECT_EQ(distance(with_codes(kind, grid), {}), 0);
    }
}

TEST(IntegerProducts, AreRefusedWhereTheyCannotBe) {
  const auto refused = [](LoadedModel& model, const Generator::Options& options,
                          std::string_view words) {
    EXPECT_THAT([&] { Generator(model, options); }, ThrowsMessage<UsageError>(HasSubstr(words)));
  };
  with_model(config_of(llama()), [&](LoadedModel& model) {
    refused(model, {.integer_products = true}, "weights are values; keep them as codes of GGUF");
  });
  with_model(with_codes(Quantization::nf4), [&](LoadedModel& model) {
    refused(model, {.integer_products = true}, "weights are nf4; keep them as codes of GGUF");
  });
  with_model(with_codes(Quantization::q5_1), [&](LoadedModel& model) {
    refused(model, {.integer_products = true}, "weights are q5_1; keep them as codes of GGUF but");
  });
  with_model(with_codes(Quantization::q4_0), [&](LoadedModel& model) {
    refused(model, {.drafts = 3, .integer_products = true}, "leave it or --drafts out");
    EXPECT_THAT(
        [&] { Generator(model, {.trained_positions = kContext, .integer_products = true}); },
        ThrowsMessage<Error>(HasSubstr("scores of a training")));
  });
  const auto self = make_self();
  LoadedModel on_another(prepared_model(with_codes(Quantization::q4_0)), *self,
                         std::make_unique<WithoutIntegers>(make_cpu_backend(1)),
                         {.trainable = false});
  refused(on_another, {.integer_products = true}, "which has none; leave it out");
}
