// Times tokenizers: MB/s of text that one core encodes, and that all cores tokenize from files.
//
//   bench_data_tokenizers TEXT TOKENIZER...
//
// TEXT is a file, or "synthetic" (20 MB of generated English); a TOKENIZER is a value of
// data.tokenizer. Each figure is the median of five runs after one that fills the caches.
#include <algorithm>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <string>
#include <vector>

#include "axonn/base/check.h"
#include "axonn/base/clock.h"
#include "axonn/base/files.h"
#include "axonn/base/host.h"
#include "axonn/data/synthetic/synthetic.h"
#include "axonn/data/tokenize.h"
#include "axonn/text/tokenizer.h"

using namespace axonn;

namespace {

constexpr int kRuns = 5;

template <typename Function>
double median_seconds(const Function& function) {
  function();
  std::vector<double> seconds;
  for (int i = 0; i < kRuns; ++i) {
    const double start = now_seconds();
    function();
    seconds.push_back(now_seconds() - start);
  }
  std::ranges::nth_element(seconds, seconds.begin() + kRuns / 2);
  return seconds[kRuns / 2];
}

void measure(const std::string& name, const std::string& path) {
  const double start = now_seconds();
  const auto tokenizer = make_tokenizer(name);
  const double load = now_seconds() - start;
  const TextFile file(path);
  const double megabytes = static_cast<double>(file.text().size()) / 1e6;
  std::vector<std::int32_t> tokens;
  const double one = median_seconds([&] {
    tokens.clear();
    tokenizer->encode_into(file.text(), tokens);
  });
  const auto count = static_cast<double>(tokens.size());
  std::size_t bytes = 0;
  const double decoding = median_seconds([&] { bytes = tokenizer->decode(tokens).size(); });
  const TokenSink sink{[](std::span<const std::int32_t>) {}};
  const double all = median_seconds([&] { tokenize({path}, *tokenizer, sink); });
  std::printf(
      "%-40s load %5.2f s  %4.2f bytes/token  one core %6.1f MB/s  %d cores %6.1f MB/s  "
      "decode %6.1f MB/s\n",
      name.c_str(), load, megabytes * 1e6 / count, megabytes / one, usable_core_count(),
      megabytes / all, static_cast<double>(bytes) / 1e6 / decoding);
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc < 3) {
    std::cerr << "usage: bench_data_tokenizers TEXT|synthetic TOKENIZER...\n";
    return 2;
  }
  std::string text = argv[1];
  if (text == "synthetic") {
    text = "bench_data_tokenizers.txt";
    std::ofstream(text) << synthetic_text(20'000'000, 1);
  }
  for (int i = 2; i < argc; ++i) measure(argv[i], text);
  if (text != argv[1]) std::remove(text.c_str());
  return 0;
} catch (const Error& error) {
  std::cerr << "error: " << error.what() << '\n';
  return 1;
}
