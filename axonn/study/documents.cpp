#include "axonn/study/documents.h"

#include <algorithm>
#include <optional>
#include <set>
#include <span>
#include <string_view>

#include "axonn/base/check.h"
#include "axonn/base/files.h"
#include "axonn/base/random.h"
#include "axonn/data/jsonl.h"
#include "axonn/data/synthetic/synthetic_records.h"

namespace axonn {

namespace {

/// Collects documents that are long enough and no duplicates; cuts those that are too long.
class Collector {
 public:
  Collector(const DocumentLimits& limits, std::optional<std::int32_t> end)
      : limits_(limits), end_(end) {}

  void add(std::string name, std::vector<std::int32_t> tokens) {
    ++all_.found;
    if (end_ && !tokens.empty() && tokens.back() == *end_) tokens.pop_back();
    if (std::ssize(tokens) > limits_.most) tokens.resize(static_cast<std::size_t>(limits_.most));
    const auto* bytes = reinterpret_cast<const char*>(tokens.data());
    if (std::ssize(tokens) < limits_.least)
      ++all_.too_short;
    else if (!hashes_.insert(hash_text({bytes, tokens.size() * sizeof tokens[0]})).second)
      ++all_.repeated;
    else
      all_.documents.push_back({std::move(name), std::move(tokens)});
  }
  FoundDocuments take() { return std::move(all_); }

 private:
  DocumentLimits limits_;
  std::optional<std::int32_t> end_;
  std::set<std::uint64_t> hashes_;
  FoundDocuments all_;
};

}  // namespace

FoundDocuments read_documents(const std::vector<std::string>& files,
                              std::shared_ptr<const Tokenizer> tokenizer,
                              const DocumentLimits& limits, const std::string& cache_folder,
                              const TokenizeReport& report) {
  std::vector<std::string> paths;
  for (const std::string& pattern : files)
    for (const std::string& path : expand_pattern(pattern)) paths.push_back(path);
  for (const std::string& path : paths)
    if (kind_of_examples(path) != Example::Kind::text)
      refuse(path, " does not hold documents; each line must be {\"text\": \"...\"}");
  const auto end = tokenizer->end_of_text();
  const auto encoded =
      encode_examples(paths, ExampleEncoder(std::move(tokenizer)), cache_folder, report);
  const std::string more = paths.size() > 1 ? concat(" and ", paths.size() - 1, " more") : "",
                    files_name = paths.front() + more;
  Collector collector(limits, end);
  for (std::int64_t d = 0; d < encoded->count(); ++d) {
    std::vector<std::int32_t> tokens;
    for (const std::int32_t coded : encoded->coded(d)) tokens.push_back(token_of(coded));
    collector.add(concat("document ", d + 1, " of ", files_name), std::move(tokens));
  }
  return collector.take();
}

FoundDocuments generated_documents(std::int64_t count, std::uint64_t seed,
                                   const Tokenizer& tokenizer, const DocumentLimits& limits) {
  const SyntheticRecords records(seed);
  Collector collector(limits, tokenizer.end_of_text());
  for (std::int64_t i = 0; i < count; ++i)
    collector.add(concat("record ", i + 1), tokenizer.encode_prompt(records.text(i)));
  return collector.take();
}

std::vector<StudyDocument> draw_documents(FoundDocuments from, std::int64_t count,
                                          std::uint64_t seed) {
  std::vector<StudyDocument>& all = from.documents;
  if (std::ssize(all) < count)
    refuse("the buckets need ", count, " documents, but of the ", from.found, " found only ",
           all.size(), " can be used (", from.too_short, " are too short, ", from.repeated,
           " are duplicates); give more memorize.documents, or lower memorize.bucket_size");
  const auto bits = Random(seed, "study/buckets").bits(0);
  const std::uint64_t key = std::uint64_t{bits[0]} << 32 | bits[1];
  std::vector<StudyDocument> drawn;
  for (std::int64_t i = 0; i < count; ++i)
    drawn.push_back(std::move(all[permute(static_cast<std::uint64_t>(i), all.size(), key)]));
  return drawn;
}

}  // namespace axonn
