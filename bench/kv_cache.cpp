// Tokens per second of generation with keys and values in the compute type and as codes of q8_0, in
// turn, after a long prompt: of one stream, and of sixteen.
//
//   bench_kv_cache [NAME [f32|bf16 [CONTEXT [TOKENS [ROUNDS [WEIGHTS]]]]]]
//
// A known model with random weights, and as many positions as CONTEXT, that many less TOKENS of the
// prompt. WEIGHTS q8_0 keeps weights as codes, too. A pass reads all weights and what is kept of
// each stream; the columns have its megabytes. NAME tiny is a model for tests of this program.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "axonn/foundation/base/clock.h"
#include "axonn/network/model/known_models.h"
#include "axonn/ranks/comm/self.h"
#include "axonn/run/config/prepared_run.h"
#include "axonn/use/infer/generator.h"

#include "bench/measure.h"

using namespace axonn;

namespace {

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

struct Settings {
  std::int64_t context, tokens;
  int rounds;
};

/// Megabytes that streams of half of the generated text keep.
double kept_megabytes(const ModelConfig& model, DType dtype, const KeptForm& form,
                      std::int64_t streams, const Settings& of) {
  const std::int64_t positions = of.context - of.tokens / 2;
  return 1e-6 * static_cast<double>(2 * model.layers * model.kv_heads *
                                    form.bytes(model.head_width(), dtype) * positions * streams);
}

void measure(LoadedModel& loaded, std::int64_t streams, const Settings& of) {
  const ModelConfig& model = loaded.config().model;
  constexpr KeptForm kForms[] = {{}, {Quantization::q8_0}};
  std::vector<std::vector<std::int32_t>> prompts(streams,
                                                 std::vector<std::int32_t>(of.context - of.tokens));
  for (std::size_t i = 0; i < prompts.size(); ++i)
    for (std::size_t t = 0; t < prompts[i].size(); ++t)
      prompts[i][t] = static_cast<std::int32_t>((7919 * i + 31 * t) % model.vocab);
  std::vector<double> rates[2], ratios;
  Generator plain(loaded, {.batch = streams, .context = of.context}),
      coded(loaded, {.batch = streams, .context = of.context, .kept = kForms[1]});
  for (int round = -1; round < of.rounds; ++round) {  // the first one reads the prompts
    for (int i = 0; i < 2; ++i) {
      Generator& generator = i == 0 ? plain : coded;
      generator.generate(prompts, {.max_tokens = of.tokens});
      const GenerationStats& stats = generator.stats();
      if (round >= 0) rates[i].push_back(static_cast<double>(stats.tokens) / stats.seconds);
    }
    if (round >= 0) ratios.push_back(rates[1].back() / rates[0].back());
  }
  const DType dtype = loaded.config().training.dtype;
  std::ranges::sort(ratios);
  std::printf("%7lld %12.1f %12.1f %12.2f %12.2f   %4.2f (%4.2f to %4.2f)\n",
              static_cast<long long>(streams), kept_megabytes(model, dtype, kForms[0], streams, of),
              kept_megabytes(model, dtype, kForms[1], streams, of), median(rates[0]),
              median(rates[1]), median(ratios), ratios.front(), ratios.back());
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  const auto word = [&](int i, const char* otherwise) {
    return std::string(argc > i ? argv[i] : otherwise);
  };
  const std::string name = word(1, "gpt2-124m"), dtype = word(2, "bf16");
  const Settings of{std::atoll(word(3, "4096").c_str()), std::atoll(word(4, "64").c_str()),
                    std::atoi(word(5, "5").c_str())};
  Config config;
  config.model =
      name == "tiny"
          ? ModelConfig{.layers = 2, .hidden = 64, .heads = 2, .kv_heads = 2, .vocab = 64}
          : known_model(name);
  config.model.positions = of.context;
  if (word(6, "") == "q8_0") config.model.quantize = Quantization::q8_0;
  config.data.tokenizer.clear();
  config.training.dtype = dtype == "f32" ? DType::f32 : DType::bf16;
  config.parallelism.device = DeviceKind::cpu;
  const auto world = make_self();
  LoadedModel model(prepared_model(config), *world, nullptr, {.trainable = false});
  model.initialise();
  std::printf("%s %s%s, %u threads, %lld tokens up to a context of %lld, %d rounds\n", name.c_str(),
              dtype.c_str(), word(6, "").empty() ? "" : ", weights in q8_0",
              std::thread::hardware_concurrency(), static_cast<long long>(of.tokens),
              static_cast<long long>(of.context), of.rounds);
  std::printf("%7s %12s %12s %12s %12s   q8_0 / %s\n", "streams", ("MB " + dtype).c_str(),
              "MB q8_0", (dtype + " tok/s").c_str(), "q8_0 tok/s", dtype.c_str());
  for (const std::int64_t streams : {1, 16}) measure(model, streams, of);
}
