#include "axonn/data/corpus/documents.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <utility>

#include "axonn/foundation/base/check.h"
#include "axonn/foundation/base/files.h"
#include "axonn/foundation/base/random.h"

namespace axonn {

namespace {

struct Trailer {
  std::array<char, 8> magic{'A', 'X', 'O', 'N', 'N', 'D', 'O', 'C'};
  std::uint64_t version = 1, documents = 0, tokens = 0, hash = 0;
};
static_assert(sizeof(Trailer) == 40);

template <typename T>
std::string_view bytes_of(std::span<const T> values) {
  return {reinterpret_cast<const char*>(values.data()), values.size_bytes()};
}

std::uint64_t hash_of(std::span<const std::int64_t> begins, std::span<const std::int32_t> learned) {
  return hash_text(bytes_of(begins)) ^ hash_text(bytes_of(learned)) * 3;
}

constexpr std::uint64_t padded(std::uint64_t bytes) { return (bytes + 7) / 8 * 8; }

}  // namespace

Documents::Documents(const std::vector<std::string>& paths) : name_(paths.at(0)) {
  for (const std::string& path : paths) add(path);
}

void Documents::add(const std::string& path) {
  files_.push_back({InputFile(path), tokens()});
  const InputFile& file = files_.back().file;
  const auto damaged = [&](const char* what) {
    refuse(path, " is not a file of documents: it ", what,
           "; remove it, and it will be made again");
  };
  Trailer trailer;
  const Trailer wanted;
  const auto bytes = static_cast<std::uint64_t>(file.bytes());
  if (bytes < sizeof trailer) damaged("is too short");
  file.read(file.bytes() - std::int64_t{sizeof trailer},
            std::as_writable_bytes(std::span(&trailer, 1)));
  if (trailer.magic != wanted.magic || trailer.version != wanted.version)
    damaged("has no valid trailer");
  const std::uint64_t most = bytes / 4;
  if (trailer.documents > most || trailer.tokens > most) damaged("counts more than it can hold");
  const std::uint64_t begins_at = padded(4 * trailer.tokens),
                      learned_at = begins_at + 8 * (trailer.documents + 1),
                      end = padded(learned_at + 4 * trailer.documents);
  if (end + sizeof trailer != bytes) damaged("has a size that does not match its counts");
  std::vector<std::int64_t> begins(trailer.documents + 1);
  std::vector<std::int32_t> learned(trailer.documents);
  file.read(static_cast<std::int64_t>(begins_at), std::as_writable_bytes(std::span(begins)));
  file.read(static_cast<std::int64_t>(learned_at), std::as_writable_bytes(std::span(learned)));
  if (hash_of(begins, learned) != trailer.hash || begins.front() != 0 ||
      begins.back() != static_cast<std::int64_t>(trailer.tokens) || !std::ranges::is_sorted(begins))
    damaged("has damaged tables");
  for (std::int64_t& begin : begins) begin += files_.back().first;
  tables_.begins.insert(tables_.begins.end(), begins.begin() + 1, begins.end());
  tables_.learned.insert(tables_.learned.end(), learned.begin(), learned.end());
}

Documents::Documents(std::string name, Tables tables)
    : name_(std::move(name)), tables_(std::move(tables)) {}

std::int64_t Documents::size(std::int64_t d) const {
  AXONN_CHECK(d >= 0 && d < count(), "document ", d, " of ", count(), " was asked for");
  return tables_.begins[d + 1] - tables_.begins[d];
}

std::vector<std::int32_t> Documents::coded(std::int64_t d) const {
  std::vector<std::int32_t> values(size(d));
  read(d, 0, values);
  return values;
}

void Documents::read(std::int64_t d, std::int64_t begin, std::span<std::int32_t> coded) const {
  AXONN_CHECK(begin >= 0 && begin + std::ssize(coded) <= size(d), "tokens ", begin, " to ",
              begin + std::ssize(coded), " of document ", d, ", which has ", size(d));
  const std::int64_t first = tables_.begins[d] + begin;
  const auto file = std::ranges::upper_bound(files_, first, {}, &TokensFile::first);
  if (file != files_.begin())
    file[-1].file.read(4 * (first - file[-1].first), std::as_writable_bytes(coded));
  else
    std::copy_n(tables_.coded.begin() + first, coded.size(), coded.begin());
}

DocumentWriter::DocumentWriter(const std::string& path, std::string name) : name_(std::move(name)) {
  if (!path.empty()) file_.emplace(path);
}

void DocumentWriter::append(std::span<const std::int32_t> coded) {
  AXONN_CHECK(std::ssize(coded) < std::numeric_limits<std::int32_t>::max(), "a document of ",
              coded.size(), " tokens");
  if (file_)
    file_->append(std::as_bytes(coded));
  else
    tables_.coded.insert(tables_.coded.end(), coded.begin(), coded.end());
  tables_.begins.push_back(tables_.begins.back() + std::ssize(coded));
  tables_.learned.push_back(static_cast<std::int32_t>(
      coded.empty() ? 0 : std::ranges::count_if(coded.subspan(1), is_learned)));
}

std::shared_ptr<const Documents> DocumentWriter::finish() {
  const auto& [coded, begins, learned] = tables_;
  if (!file_) return std::make_shared<const Documents>(std::move(name_), std::move(tables_));
  const Trailer trailer{.documents = learned.size(),
                        .tokens = static_cast<std::uint64_t>(begins.back()),
                        .hash = hash_of(begins, learned)};
  const auto pad = [&](std::uint64_t bytes) {
    const std::array<std::byte, 8> zeros{};
    file_->append(std::span(zeros).first(padded(bytes) - bytes));
  };
  pad(4 * trailer.tokens);
  file_->append(std::as_bytes(std::span(begins)));
  file_->append(std::as_bytes(std::span(learned)));
  pad(4 * learned.size());
  file_->append(std::as_bytes(std::span(&trailer, 1)));
  file_->commit();
  return std::make_shared<const Documents>(file_->path());
}

}  // namespace axonn
