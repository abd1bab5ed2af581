#include "axonn/run/train/reference_scores.h"

#include <cstring>

#include "axonn/data/corpus/tokens/token_cache.h"
#include "axonn/foundation/base/check.h"
#include "axonn/foundation/base/files.h"
#include "axonn/foundation/base/hash.h"
#include "axonn/network/model/model_files.h"

namespace axonn {

namespace {

constexpr std::string_view kVersion = "axonn reference scores 1\n";

std::vector<std::string> files_of_model(const std::string& path) {
  const ModelFiles model(path);
  return files_below(model.checkpoint() ? model.checkpoint()->folder() : model.path());
}

template <typename T>
void append_bytes(const T& value, std::string& text) {
  text.append(reinterpret_cast<const char*>(&value), sizeof value);
}

}  // namespace

ReferenceScores::ReferenceScores(const std::string& folder, const PreparedRun& run)
    : folder_(folder) {
  if (folder.empty()) return;
  const std::string& named = run->preference.reference;
  run_ = cache_path(
      {.folder = folder, .makes = false}, "reference",
      files_of_model(named.empty() ? run->model.path : named),
      concat(kVersion, name_of(run->training.dtype), ' ', run->training.seq_len, ' ',
             run->preference.ld_alpha, run->preference.shared_prompt ? " shared prompts" : ""));
}

std::string ReferenceScores::path_of(const DocumentRange& answers) const {
  std::string hashes;
  for (std::int64_t d = answers.begin; d < answers.end; ++d) {
    const std::vector<std::int32_t> tokens = answers.documents->coded(d);
    append_bytes(xxh3(std::as_bytes(std::span(tokens))), hashes);
  }
  return concat(run_, '-', hex_of(xxh3(std::string_view(hashes))));
}

std::optional<std::vector<double>> ReferenceScores::read(const DocumentRange& answers,
                                                         std::int64_t count) const {
  const std::string path = run_.empty() ? "" : path_of(answers);
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

void ReferenceScores::write(const DocumentRange& answers, std::span<const double> sums) const {
  if (run_.empty()) return;
  make_folders(folder_);
  std::string text(kVersion);
  text.append(reinterpret_cast<const char*>(sums.data()), sums.size_bytes());
  append_bytes(xxh3(std::string_view(text)), text);
  write_file_atomically(path_of(answers), text);
}

}  // namespace axonn
