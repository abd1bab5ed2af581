#include "axonn/run/train/reference_scores.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <iterator>

#include "axonn/data/corpus/corpus.h"
#include "axonn/data/corpus/jsonl.h"
#include "axonn/data/corpus/token_cache.h"
#include "axonn/foundation/base/check.h"
#include "axonn/foundation/base/files.h"
#include "axonn/foundation/base/hash.h"
#include "axonn/foundation/base/numbers.h"
#include "axonn/network/model/model_files.h"

namespace axonn {

namespace {

namespace fs = std::filesystem;

constexpr std::string_view kVersion = "axonn reference scores 1\n";

/// The files of a model, in order.
std::vector<std::string> files_of_model(const std::string& path) {
  const ModelFiles model(path);
  const std::string folder = model.checkpoint() ? model.checkpoint()->folder() : model.path();
  std::vector<std::string> files;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder))
    if (entry.is_regular_file()) files.push_back(entry.path());
  std::ranges::sort(files);
  return files;
}

template <typename T>
void append_bytes(const T& value, std::string& text) {
  text.append(reinterpret_cast<const char*>(&value), sizeof value);
}

}  // namespace

ReferenceScores::ReferenceScores(const std::string& folder, const PreparedRun& run,
                                 const Corpus& corpus)
    : folder_(folder) {
  if (folder.empty()) return;
  const std::string& named = run->preference.reference;
  std::vector<std::string> files = files_of_model(named.empty() ? run->model.path : named);
  std::ranges::copy(example_files(run->data.jsonl), std::back_inserter(files));
  if (!parse_real(run->data.validation) && !run->data.validation.empty())
    std::ranges::copy(example_files({run->data.validation}), std::back_inserter(files));
  key_ = cache_path({.folder = folder, .makes = false}, "reference", files,
                    concat(kVersion, fingerprint(corpus), ' ', name_of(run->training.dtype), ' ',
                           run->training.seq_len, ' ', run->preference.ld_alpha));
}

std::string ReferenceScores::path_of(const std::string& kind) const { return key_ + '-' + kind; }

std::optional<std::vector<double>> ReferenceScores::read(const std::string& kind,
                                                         std::int64_t count) const {
  const std::string path = key_.empty() ? "" : path_of(kind);
  if (path.empty() || !path_exists(path)) return std::nullopt;
  const std::string text = read_text(path, std::int64_t{1} << 40);
  const std::size_t bytes = static_cast<std::size_t>(count) * sizeof(double),
                    whole = kVersion.size() + bytes + sizeof(std::uint64_t);
  if (text.size() != whole || !text.starts_with(kVersion)) return std::nullopt;
  std::uint64_t sum = 0;
  std::memcpy(&sum, text.data() + whole - sizeof sum, sizeof sum);
  if (sum != xxh3(std::string_view(text).substr(0, whole - sizeof sum))) return std::nullopt;
  std::vector<double> sums(static_cast<std::size_t>(count));
  std::memcpy(sums.data(), text.data() + kVersion.size(), bytes);
  return sums;
}

void ReferenceScores::write(const std::string& kind, std::span<const double> sums) const {
  if (key_.empty()) return;
  make_folders(folder_);
  std::string text(kVersion);
  text.append(reinterpret_cast<const char*>(sums.data()), sums.size_bytes());
  append_bytes(xxh3(std::string_view(text)), text);
  write_file_atomically(path_of(kind), text);
}

}  // namespace axonn
