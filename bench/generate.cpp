// Tokens per second of generation, and its share of the memory bandwidth, in batches: a GPT-2 124M
// (or another known model) with random weights and prompts of 128 tokens.
//
//   bench_generate [NAME [f32|bf16 [TOKENS [cpu|cuda]]]]
//
// A pass computes one token of each sequence. It reads all weights once, and the cached keys and
// values of each sequence. The bandwidth is that of a read stream, or of a copy on a GPU, timed in
// turn with generation. NAME tiny is a model for tests of this program.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <numeric>
#include <string>
#include <thread>

#include "axonn/foundation/base/check.h"
#include "axonn/foundation/base/clock.h"
#include "axonn/network/model/counts.h"
#include "axonn/network/model/known_models.h"
#include "axonn/ranks/comm/self.h"
#include "axonn/run/config/prepared_run.h"
#include "axonn/use/infer/generator.h"

#include "bench/measure.h"

using namespace axonn;

namespace {

constexpr std::int64_t kPrompt = 128;
constexpr int kRepetitions = 5;

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

/// Bytes that a pass reads: the weights of products, and the cache at half of the generated text.
double bytes_of_pass(const ModelConfig& model, DType dtype, std::int64_t batch,
                     std::int64_t tokens) {
  const std::int64_t tables = model.is_llama() ? 0 : model.positions,
                     embedding = model.tied ? 0 : model.vocab;
  const std::int64_t weights = parameter_count(model) - (tables + embedding) * model.hidden;
  const std::int64_t kept =
      2 * model.layers * model.kv_heads * model.head_width() * (kPrompt + tokens / 2) * batch;
  return static_cast<double>((weights + kept) * bytes_of(dtype));
}

/// Runs a pass over memory, and returns its bytes.
using MemoryPass = std::function<double()>;

/// A copy on the device, which reads and writes. Tensors must outlive the pass.
MemoryPass copy_pass(Device& device, const Tensor& to, const Tensor& from) {
  return [&] {
    device.copy(to.view().data, from.view().data, from.bytes());
    device.compute().synchronize();
    return 2.0 * static_cast<double>(from.bytes());
  };
}

void measure(LoadedModel& loaded, std::int64_t batch, std::int64_t tokens, const MemoryPass& pass) {
  const ModelConfig& model = loaded.config().model;
  Generator generator(loaded, {.batch = batch, .context = kPrompt + tokens});
  std::vector<std::vector<std::int32_t>> prompts(batch, std::vector<std::int32_t>(kPrompt));
  for (auto& prompt : prompts) std::iota(prompt.begin(), prompt.end(), 1000);
  std::vector<double> tokens_per_s, prompt_tokens_per_s, bandwidth;
  for (int i = 0; i < kRepetitions; ++i) {
    const double start = now_seconds();
    const double read = pass();
    bandwidth.push_back(read / (now_seconds() - start));
    generator.generate(prompts, {.max_tokens = tokens});
    const GenerationStats& stats = generator.stats();
    tokens_per_s.push_back(static_cast<double>(stats.tokens) / stats.seconds);
    if (i == 0)  // later prompts are in the cache except for their last token
      prompt_tokens_per_s.push_back(static_cast<double>(stats.prompt_tokens) /
                                    stats.prompt_seconds);
  }
  const double passes = median(tokens_per_s) / static_cast<double>(batch),
               bytes = bytes_of_pass(model, loaded.config().training.dtype, batch, tokens);
  std::printf("%5lld %10.1f %10.2f %10.1f %9.1f %9.1f %6.0f %% %12.0f\n",
              static_cast<long long>(batch), median(tokens_per_s), 1e3 / passes, bytes / 1e6,
              passes * bytes / 1e9, median(bandwidth) / 1e9,
              100 * passes * bytes / median(bandwidth), median(prompt_tokens_per_s));
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  const std::string name = argc > 1 ? argv[1] : "gpt2-124m", dtype = argc > 2 ? argv[2] : "bf16";
  const std::int64_t tokens = argc > 3 ? std::atoll(argv[3]) : 128;
  const int threads = static_cast<int>(std::thread::hardware_concurrency());
  Config config;
  config.model = name == "tiny" ? ModelConfig{.layers = 2, .hidden = 64, .heads = 2, .vocab = 2048}
                                : known_model(name);
  if (name == "tiny") config.model.positions = kPrompt + tokens;
  config.data.tokenizer.clear();
  config.training.dtype = dtype == "f32" ? DType::f32 : DType::bf16;
  const bool on_gpu = argc > 4 && argv[4] == std::string("cuda");
  const auto world = make_self();
  config.parallelism.device = on_gpu ? DeviceKind::cuda : DeviceKind::cpu;
  LoadedModel model(prepared_model(config), *world, nullptr, {.trainable = false});
  model.initialise();
  constexpr std::int64_t kStreamBytes = std::int64_t{256} << 20;
  bench::Memory memory;
  Arena arena(model.backend().device());
  Tensor to, from;
  MemoryPass pass;
  if (on_gpu) {
    to = Tensor(arena, 1, kStreamBytes, DType::u8);
    from = Tensor(arena, 1, kStreamBytes, DType::u8);
    pass = copy_pass(model.backend().device(), to, from);
  } else {
    pass = [stream = bench::stream(memory, threads, {.read = 1}, kStreamBytes)] {
      stream();
      return static_cast<double>(kStreamBytes);
    };
  }
  std::printf("%s %s, %s, %lld tokens after a prompt of %lld\n", name.c_str(), dtype.c_str(),
              on_gpu ? "GPU 0" : concat(threads, " threads").c_str(),
              static_cast<long long>(tokens), static_cast<long long>(kPrompt));
  std::printf("batch   tokens/s    ms/pass    MB/pass      GB/s    stream   share  prompt tok/s\n");
  for (const std::int64_t batch : {1, 2, 4, 8, 16, 32}) measure(model, batch, tokens, pass);
}
