// Times tokenizers: MB/s of text that one core encodes, and that all cores tokenize from files.
//
//   bench_data_tokenizers TEXT TOKENIZER...
//
// TEXT is a file, or "synthetic" (20 MB of generated English); a TOKENIZER is a value of
// data.tokenizer. Each figure is the median of five runs after one that fills the caches.
//
//   bench_data_tokenizers --forms TEXT TOKENIZER
//
// times the same text as a plain file, as lines of JSON, and each compressed, in turn.
#include <algorithm>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <map>
#include <string>
#include <vector>

#include "axonn/data/corpus/files/text_reader.h"
#include "axonn/data/corpus/synthetic/synthetic.h"
#include "axonn/data/corpus/tokens/tokenize.h"
#include "axonn/data/text/tokenizer.h"
#include "axonn/foundation/base/check.h"
#include "axonn/foundation/base/clock.h"
#include "axonn/foundation/base/files.h"
#include "axonn/foundation/base/host.h"

#include "tests/data/corpus/compress.h"

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

/// The text as lines of JSON, a document of about 4 KB each.
std::string json_lines(const std::string& text) {
  std::string lines;
  for (std::size_t at = 0; at < text.size(); at += 4096) {
    lines += R"({"id": 17, "url": "https://example.org/a", "text": ")";
    for (const char c : text.substr(at, 4096)) {
      if (c == '\n')
        lines += "\\n";
      else if (c == '"' || c == '\\')
        lines += {'\\', c};
      else
        lines += c;
    }
    lines += "\"}\n";
  }
  return lines;
}

/// Compressed in members or frames of 1 MiB, so that what is repeated in a longer text costs as
/// much as other text.
template <typename Compress>
std::string compressed(const std::string& text, const Compress& compress) {
  std::string data;
  for (std::size_t at = 0; at < text.size(); at += 1 << 20)
    data += compress(text.substr(at, 1 << 20));
  return data;
}

void measure_forms(const std::string& path, const std::string& name) {
  const auto tokenizer = make_tokenizer(name);
  const std::string text = read_text(path), lines = json_lines(text);
  std::map<std::string, std::string> forms = {{"t.txt", text},
                                              {"t.txt.gz", compressed(text, test::gzip)},
                                              {"t.txt.zst", compressed(text, test::zstandard)},
                                              {"t.jsonl", lines},
                                              {"t.jsonl.gz", compressed(lines, test::gzip)},
                                              {"t.jsonl.zst", compressed(lines, test::zstandard)}};
  for (const auto& [file, data] : forms) write_text(file, data);
  std::map<std::string, std::vector<double>> reading, all;
  const TokenSink sink{[](std::span<const std::int32_t>) {}};
  for (int i = 0; i <= kRuns; ++i)
    for (const auto& [file, data] : forms) {
      double start = now_seconds();
      for (TextReader reader(file); !reader.at_end();) reader.skip(reader.peek(1 << 20).size());
      reading[file].push_back(now_seconds() - start);
      start = now_seconds();
      tokenize({file}, *tokenizer, sink);
      all[file].push_back(now_seconds() - start);
    }
  const auto median = [](std::vector<double> seconds) {
    std::ranges::sort(seconds);
    return seconds[seconds.size() / 2];
  };
  for (const auto& [file, data] : forms) {
    const double megabytes = static_cast<double>(text.size()) / 1e6;
    std::printf("%-12s %6.1f MB  read %7.1f MB/s of text  %d cores tokenize %6.1f MB/s of text\n",
                file.c_str(), static_cast<double>(data.size()) / 1e6,
                megabytes / median(reading[file]), usable_core_count(),
                megabytes / median(all[file]));
    std::remove(file.c_str());
  }
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
  if (text == "--forms" && argc == 4) {
    measure_forms(argv[2], argv[3]);
    return 0;
  }
  for (int i = 2; i < argc; ++i) measure(argv[i], text);
  if (text != argv[1]) std::remove(text.c_str());
  return 0;
} catch (const Error& error) {
  std::cerr << "error: " << error.what() << '\n';
  return 1;
}
