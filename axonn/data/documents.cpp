#include "axonn/data/documents.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <utility>

#include "axonn/base/check.h"
#include "axonn/base/files.h"
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

class MemoryDocuments final : public Documents {
 public:
  MemoryDocuments(std::string name, std::vector<std::int32_t> coded,
                  std::vector<std::int64_t> begins, std::vector<std::int32_t> learned)
      : Documents(std::move(name)),
        coded_here_(std::move(coded)),
        learned_here_(std::move(learned)),
        begins_here_(std::move(begins)) {
    coded_ = coded_here_;
    learned_ = learned_here_;
    begins_ = begins_here_;
  }

 private:
  std::vector<std::int32_t> coded_here_, learned_here_;
  std::vector<std::int64_t> begins_here_;
};

class MappedDocuments final : public Documents {
 public:
  explicit MappedDocuments(const std::string& path) : Documents(path), file_(path) {
    const std::string_view all = file_.text();
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
    coded_ = at<std::int32_t>(0, trailer.tokens);
    begins_ = at<std::int64_t>(begins_at, trailer.documents + 1);
    learned_ = at<std::int32_t>(learned_at, trailer.documents);
    if (hash_of(begins_, learned_) != trailer.hash || begins_.front() != 0 ||
        begins_.back() != static_cast<std::int64_t>(trailer.tokens) ||
        !std::ranges::is_sorted(begins_))
      damaged("has damaged tables");
  }

 private:
  [[noreturn]] void damaged(const char* what) const {
    refuse(name_, " is not a file of documents: it ", what,
           "; remove it, and it will be made again");
  }
  template <typename T>
  std::span<const T> at(std::uint64_t offset, std::uint64_t count) const {
    return {reinterpret_cast<const T*>(file_.text().data() + offset), count};
  }

  MappedFile file_;
};

class MemoryWriter final : public DocumentWriter {
 public:
  explicit MemoryWriter(std::string name) : name_(std::move(name)) {}
  std::shared_ptr<const Documents> finish() override {
    return std::make_shared<MemoryDocuments>(name_, std::move(coded_), std::move(begins_),
                                             std::move(learned_));
  }

 private:
  void put(std::span<const std::int32_t> coded) override {
    coded_.insert(coded_.end(), coded.begin(), coded.end());
  }
  std::string name_;
  std::vector<std::int32_t> coded_;
};

class FileWriter final : public DocumentWriter {
 public:
  explicit FileWriter(const std::string& path) : file_(path) {}
  std::shared_ptr<const Documents> finish() override {
    const Trailer trailer{.documents = learned_.size(),
                          .tokens = static_cast<std::uint64_t>(begins_.back()),
                          .hash = hash_of(begins_, learned_)};
    pad();
    append_bytes(std::as_bytes(std::span(begins_)));
    append_bytes(std::as_bytes(std::span(learned_)));
    pad();
    append_bytes(std::as_bytes(std::span(&trailer, 1)));
    file_.commit();
    return Documents::open(file_.path());
  }

 private:
  void put(std::span<const std::int32_t> coded) override { append_bytes(std::as_bytes(coded)); }
  void append_bytes(std::span<const std::byte> bytes) {
    file_.append(bytes);
    written_ += bytes.size();
  }
  void pad() {
    const std::array<std::byte, 8> zeros{};
    append_bytes(std::span(zeros).first(padded(written_) - written_));
  }
  AtomicFile file_;
  std::uint64_t written_ = 0;
};

}  // namespace

std::shared_ptr<const Documents> Documents::open(const std::string& path) {
  return std::make_shared<MappedDocuments>(path);
}

std::span<const std::int32_t> Documents::coded(std::int64_t d) const {
  AXONN_CHECK(d >= 0 && d < count(), "document ", d, " of ", count(), " was asked for");
  const auto begin = static_cast<std::size_t>(begins_[static_cast<std::size_t>(d)]),
             end = static_cast<std::size_t>(begins_[static_cast<std::size_t>(d) + 1]);
  return coded_.subspan(begin, end - begin);
}

void DocumentWriter::append(std::span<const std::int32_t> coded) {
  AXONN_CHECK(std::ssize(coded) < std::numeric_limits<std::int32_t>::max(), "a document of ",
              coded.size(), " tokens");
  put(coded);
  begins_.push_back(begins_.back() + std::ssize(coded));
  learned_.push_back(static_cast<std::int32_t>(
      coded.empty() ? 0 : std::ranges::count_if(coded.subspan(1), is_learned)));
}

std::unique_ptr<DocumentWriter> make_document_writer(const std::string& path,
                                                     const std::string& name) {
  if (path.empty()) return std::make_unique<MemoryWriter>(name);
  return std::make_unique<FileWriter>(path);
}

}  // namespace axonn
