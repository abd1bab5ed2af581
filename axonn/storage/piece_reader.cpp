#include "axonn/storage/piece_reader.h"

#include <algorithm>
#include <cstring>
#include <span>

#include "axonn/base/check.h"
#include "axonn/base/hash.h"

namespace axonn {

PieceReader::PieceReader(const CheckpointIndex& index, const std::string& folder)
    : index_(index), folder_(folder), verified_(index.files.size()) {
  piece_.reserve(static_cast<std::size_t>(kPieceBytes));
}

const StoredFile& PieceReader::file_of(const ReadRun& run) const {
  return index_.files[static_cast<std::size_t>(run.file)];
}

void PieceReader::copy(const ReadRun& run) {
  open(run);
  const auto& verified = verified_[static_cast<std::size_t>(run.file)];
  auto* to = reinterpret_cast<std::byte*>(run.to);
  std::int64_t at = run.offset, left = run.count * std::int64_t{sizeof(float)};
  while (left > 0) {
    const std::int64_t piece = at / kPieceBytes, within = at % kPieceBytes,
                       n = std::min(left, kPieceBytes - within);
    if (!verified[static_cast<std::size_t>(piece)]) verify(run, piece);
    const std::byte* kept = piece == piece_at_ ? piece_.data() + within : nullptr;
    if (run.device) {
      if (!kept) kept = read(at, staged(n)).data();
      run.device->copy_from_host(to, kept, n);
    } else if (kept) {
      std::memcpy(to, kept, static_cast<std::size_t>(n));
    } else {
      read(at, std::span(to, static_cast<std::size_t>(n)));
    }
    to += n;
    at += n;
    left -= n;
  }
}

/// A host buffer for bytes that are copied to a device.
std::span<std::byte> PieceReader::staged(std::int64_t bytes) {
  staged_.resize(static_cast<std::size_t>(bytes));
  return staged_;
}

std::span<std::byte> PieceReader::read(std::int64_t at, std::span<std::byte> out) {
  file_->read(at, out);
  bytes_read_ += std::ssize(out);
  return out;
}

void PieceReader::open(const ReadRun& run) {
  if (run.file == file_at_) return;
  file_at_ = piece_at_ = -1;
  const StoredFile& stored = file_of(run);
  file_.emplace(concat(folder_, '/', stored.name));
  if (file_->bytes() != stored.bytes)
    refuse(file_->path(), " has ", file_->bytes(), " bytes instead of ", stored.bytes,
           ": it is cut short or altered");
  verified_[static_cast<std::size_t>(run.file)].resize(stored.checksums.size());
  file_at_ = run.file;
}

void PieceReader::verify(const ReadRun& run, std::int64_t piece) {
  piece_at_ = -1;
  const StoredFile& stored = file_of(run);
  const std::int64_t begin = piece * kPieceBytes,
                     count = std::min(kPieceBytes, stored.bytes - begin);
  piece_.resize(static_cast<std::size_t>(count));
  file_->read(begin, piece_);
  bytes_read_ += count;
  if (xxh3(piece_) != stored.checksums[static_cast<std::size_t>(piece)])
    refuse(file_->path(), " is altered: bytes ", begin, " to ", begin + count,
           " do not match their checksum; they hold ",
           index_.parameters[static_cast<std::size_t>(run.parameter)].name,
           "; use an older checkpoint");
  verified_[static_cast<std::size_t>(run.file)][static_cast<std::size_t>(piece)] = true;
  piece_at_ = piece;
}

}  // namespace axonn
