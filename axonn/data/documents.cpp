#include "axonn/data/documents.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <utility>

#include "axonn/base/check.h"
#include "axonn/base/random.h"

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

Documents::Documents(const std::string& path) : name_(path), memory_(MappedFile(path)) {
  const std::string_view all = std::get<MappedFile>(memory_).text();
  const auto damaged = [&](const char* what) {
    refuse(name_, " is not a file of documents: it ", what,
           "; remove it, and it will be made again");
  };
  Trailer trailer;
  const Trailer wanted;
  if (all.size() < sizeof trailer) damaged("is too short");
  std::memcpy(&trailer, all.data() + all.size() - sizeof trailer, sizeof trailer);
  if (trailer.magic != wanted.magic || trailer.version != wanted.version)
    damaged("has no valid trailer");
  const std::uint64_t most = all.size() / 4;
  if (trailer.documents > most || trailer.tokens > most) damaged("counts more than it can hold");
  const std::uint64_t begins_at = padded(4 * trailer.tokens),
                      learned_at = begins_at + 8 * (trailer.documents + 1),
                      end = padded(learned_at + 4 * trailer.documents);
  if (end + sizeof trailer != all.size()) damaged("has a size that does not match its counts");
  const auto at = [&]<typename T>(std::span<const T>& table, std::uint64_t offset,
                                  std::uint64_t count) {
    table = {reinterpret_cast<const T*>(all.data() + offset), count};
  };
  at(coded_, 0, trailer.tokens);
  at(begins_, begins_at, trailer.documents + 1);
  at(learned_, learned_at, trailer.documents);
  if (hash_of(begins_, learned_) != trailer.hash || begins_.front() != 0 ||
      begins_.back() != static_cast<std::int64_t>(trailer.tokens) ||
      !std::ranges::is_sorted(begins_))
    damaged("has damaged tables");
}

Documents::Documents(std::string name, Tables tables)
    : name_(std::move(name)), memory_(std::move(tables)) {
  const Tables& here = std::get<Tables>(memory_);
  coded_ = here.coded;
  begins_ = here.begins;
  learned_ = here.learned;
}

std::span<const std::int32_t> Documents::coded(std::int64_t d) const {
  AXONN_CHECK(d >= 0 && d < count(), "document ", d, " of ", count(), " was asked for");
  return coded_.subspan(begins_[d], begins_[d + 1] - begins_[d]);
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
