// Times steps of the same run with several settings in turn, on one thread, and prints the median
// ratio of each to the first.
//
// Usage: bench_train_variants recompute|documents|sums|products|values|operations [ROUNDS [HIDDEN
//        [SEQ_LEN]]]
//
//   recompute  no recomputation; budgets at a quarter, a half and three quarters between the peaks
//              of none and full; full
//   documents  joined, apertus, separate, packed; documents of 8 to 500 tokens, drawn with weight
//   1/length
//   sums       without and with checksums of the state (training.verify_state), in f32 and in bf16;
//              GPT-2 of 12 layers with its vocabulary, which is GPT-2 124M with HIDDEN 768
//   products   the same without and with sums of each product (training.verify_products)
//   values     likewise with sums of all values (training.verify_values)
//   operations likewise with all operations done twice (training.verify_operations)
//
// Seconds are of the processor, which other programs on the machine disturb less than the clock.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "axonn/data/corpus/corpus.h"
#include "axonn/data/corpus/packed_stream.h"
#include "axonn/data/corpus/synthetic/synthetic.h"
#include "axonn/foundation/base/check.h"
#include "axonn/foundation/base/files.h"
#include "axonn/foundation/base/random.h"
#include "axonn/plan/measure/dry_step.h"
#include "axonn/plan/planner/recompute_budget.h"
#include "axonn/ranks/comm/self.h"
#include "axonn/run/config/prepared_run.h"
#include "axonn/run/config/recompute.h"
#include "axonn/run/config/resolve.h"
#include "axonn/run/load/devices.h"
#include "axonn/run/train/training.h"

using namespace axonn;

namespace {

struct Variant {
  std::string name;
  Config config;
};

Config base_config(std::int64_t hidden, std::int64_t seq_len) {
  Config config;
  config.model = {.family = ModelFamily::llama,
                  .layers = 8,
                  .hidden = hidden,
                  .heads = hidden / 64,
                  .kv_heads = hidden / 64,
                  .vocab = 256};
  config.data.synthetic = 1'000'000;
  config.training.steps = 1000;
  config.training.seq_len = seq_len;
  config.training.global_batch = config.training.micro_batch = 2;
  config.training.threads = 1;
  config.optimizer.lr = 1e-4;
  config.output.dir = "unused";
  return resolved(config);
}

std::vector<Variant> recompute_variants(const Config& config) {
  const auto peak = [](const Config& one) { return dry_step(prepared(one), 0).memory.peak_bytes; };
  Config full = config;
  full.activation_checkpoint.mode = RecomputeMode::full;
  const std::int64_t most = peak(config), least = peak(full);
  std::vector<Variant> variants{{"none", config}};
  for (const int quarters : {3, 2, 1}) {
    Config budget = config;
    budget.activation_checkpoint.budget = least + (most - least) * quarters / 4;
    budget = within_budget(prepared(budget)).config();
    variants.push_back(
        {concat("budget ", quarters, "/4: ", describe_recomputation(budget)), budget});
  }
  variants.push_back({"full", full});
  for (const auto& [name, one] : variants)
    std::printf("%-24s peak %11lld bytes\n", name.c_str(), static_cast<long long>(peak(one)));
  return variants;
}

/// Prints how many documents windows cut, and the padding of packed sequences.
void print_packing(const std::vector<TokenStream>& streams, std::int64_t seq_len) {
  std::vector<std::int64_t> begins;
  const TokenSource& source = *streams.front().source;
  source.document_begins(0, source.size(), begins);
  begins.push_back(source.size());
  std::int64_t cut = 0;
  for (std::size_t d = 0; d + 1 < begins.size(); ++d)
    cut += begins[d] / seq_len != (begins[d + 1] - 1) / seq_len;
  const PackedStream packed(streams, seq_len, 0);
  const double rows = static_cast<double>(packed.count() * seq_len);
  std::printf("windows cut %.1f %% of the documents; packed sequences have %.2f %% padding\n",
              100.0 * static_cast<double>(cut) / static_cast<double>(begins.size() - 1),
              100 * (1 - static_cast<double>(packed.inputs()) / rows));
}

std::vector<Variant> document_variants(Config config, const std::string& folder) {
  const Random random(1, "documents");
  const std::string text = synthetic_text(1'000'000, 1);
  std::string lines;
  std::uint64_t n = 0;
  for (std::size_t at = 0; at + 500 < text.size(); ++n) {
    const double u = static_cast<double>(random.below(n, 1 << 20)) / (1 << 20);
    const auto length = static_cast<std::size_t>(8 * std::pow(500.0 / 8, u));
    std::string document = text.substr(at, length);
    std::ranges::replace_if(
        document, [](char c) { return c == '"' || c == '\\' || c < ' '; }, ' ');
    lines += "{\"text\": \"" + document + "\"}\n";
    at += length;
  }
  std::printf("%llu documents, %.0f tokens on average\n", static_cast<unsigned long long>(n),
              static_cast<double>(text.size()) / static_cast<double>(n));
  write_file_atomically(folder + "/documents.jsonl", lines);
  config.data.synthetic = 0;
  config.data.text = {folder + "/documents.jsonl"};
  print_packing(open_corpus(config.data, {}).train, config.training.seq_len);
  std::vector<Variant> variants;
  for (const auto mode : {DocumentMode::joined, DocumentMode::apertus, DocumentMode::separate,
                          DocumentMode::packed}) {
    config.data.documents = mode;
    variants.push_back({std::string(kDocumentModes[static_cast<int>(mode)]), config});
  }
  return variants;
}

/// Without and with a kind of checksums.
std::vector<Variant> sums_variants(Config config, DType dtype, bool TrainingConfig::*kind) {
  config.model.family = ModelFamily::gpt;
  config.model.layers = 12;
  config.model.vocab = 50257;
  config.training.dtype = dtype;
  std::vector<Variant> variants;
  for (const bool sums : {false, true}) {
    config.training.*kind = sums;
    variants.push_back({concat(name_of(dtype), sums ? " with sums" : " without"), config});
  }
  return variants;
}

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

void time_in_turn(const std::vector<Variant>& variants, int rounds) {
  const auto world = make_self();
  std::vector<std::unique_ptr<Training>> runs;
  for (const Variant& variant : variants) {
    runs.push_back(std::make_unique<Training>(prepared(variant.config), *world,
                                              make_backend(variant.config, *world, 1)));
    runs.back()->model.initialise();
    for (int step = 0; step < 2; ++step) runs.back()->run(step);
  }
  std::vector<std::vector<double>> seconds(runs.size()), ratios(runs.size());
  for (int round = 0; round < rounds; ++round) {
    for (std::size_t i = 0; i < runs.size(); ++i) {
      const std::clock_t begin = std::clock();
      runs[i]->run(2 + round);
      seconds[i].push_back(static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC);
      ratios[i].push_back(seconds[i].back() / seconds[0].back());
    }
  }
  for (std::size_t i = 0; i < runs.size(); ++i)
    std::printf("%-24s %.3f s, ratio %.3f\n", variants[i].name.c_str(), median(seconds[i]),
                median(ratios[i]));
}

}  // namespace

int main(int argc, char** argv) {
  const std::string what = argc > 1 ? argv[1] : "";
  const auto number = [&](int i, int otherwise) {
    return argc > i ? std::atoi(argv[i]) : otherwise;
  };
  const std::map<std::string, bool TrainingConfig::*> checks{
      {"sums", &TrainingConfig::verify_state},
      {"products", &TrainingConfig::verify_products},
      {"values", &TrainingConfig::verify_values},
      {"operations", &TrainingConfig::verify_operations}};
  if (what != "recompute" && what != "documents" && !checks.contains(what)) {
    std::fprintf(stderr,
                 "usage: bench_train_variants recompute|documents|sums|products|values|operations "
                 "[ROUNDS [HIDDEN [SEQ_LEN]]]\n");
    return 2;
  }
  const Config config = base_config(number(3, 256), number(4, 512));
  if (const auto check = checks.find(what); check != checks.end()) {
    for (const DType dtype : {DType::f32, DType::bf16})
      time_in_turn(sums_variants(config, dtype, check->second), number(2, 9));
    return 0;
  }
  const std::string folder = std::filesystem::temp_directory_path() / "bench-train-variants";
  make_folders(folder);
  time_in_turn(what == "recompute" ? recompute_variants(config) : document_variants(config, folder),
               number(2, 9));
  std::filesystem::remove_all(folder);
}
