#include "axonn/data/storage/checkpoint/stored_pieces.h"

#include <algorithm>
#include <array>
#include <map>
#include <numeric>
#include <optional>

#include "axonn/foundation/base/check.h"
#include "axonn/foundation/base/hash.h"
#include "axonn/ranks/comm/texts.h"

namespace axonn {

namespace {

/// The bytes of a piece; that at the end of a file is shorter.
std::int64_t bytes_of_piece(const StoredFile& stored, std::int64_t piece) {
  return std::min(kPieceBytes, stored.bytes - piece * kPieceBytes);
}

void verify_piece(std::span<const std::byte> bytes, const std::string& path,
                  const StoredFile& stored, std::int64_t piece, const std::string& parameter) {
  if (xxh3(bytes) == stored.checksums[piece]) return;
  const std::int64_t begin = piece * kPieceBytes;
  refuse(path, " is altered: bytes ", begin, " to ", begin + std::ssize(bytes),
         " do not match their checksum", parameter.empty() ? "" : "; they hold ", parameter,
         "; use an older checkpoint");
}

/// Pieces of files that this rank can read. A verified piece that is no longer held is not read
/// whole.
class PiecesHere final : public StoredPieces {
 public:
  PiecesHere(const CheckpointIndex& index, std::vector<std::string> paths)
      : index_(index), paths_(std::move(paths)), verified_(index.files.size()) {}

  std::span<const std::byte> bytes_at(std::int64_t file, std::int64_t at, std::int64_t count,
                                      const std::string& parameter) override {
    open(file);
    const std::int64_t piece = at / kPieceBytes;
    if (!verified_[file][piece]) verify(piece, parameter);
    if (piece == piece_at_) return std::span(piece_).subspan(at % kPieceBytes, count);
    part_.resize(count);
    file_->read(at, part_);
    bytes_read_ += count;
    return part_;
  }

  std::int64_t bytes_read() const override { return bytes_read_; }

 private:
  void open(std::int64_t file) {
    if (file == file_at_) return;
    file_at_ = piece_at_ = -1;
    const StoredFile& stored = index_.files[file];
    file_.emplace(paths_[file]);
    if (file_->bytes() != stored.bytes)
      refuse(file_->path(), " has ", file_->bytes(), " bytes instead of ", stored.bytes,
             ": it is cut short or altered");
    verified_[file].resize(stored.checksums.size());
    file_at_ = file;
  }

  /// Reads a piece of the open file and compares it with its checksum.
  void verify(std::int64_t piece, const std::string& parameter) {
    piece_at_ = -1;
    read_piece(*file_, index_.files[file_at_], piece, piece_, parameter);
    bytes_read_ += std::ssize(piece_);
    verified_[file_at_][piece] = true;
    piece_at_ = piece;
  }

  const CheckpointIndex& index_;
  std::vector<std::string> paths_;           // by file
  std::vector<std::vector<bool>> verified_;  // by file and piece
  std::optional<InputFile> file_;
  std::int64_t file_at_ = -1, piece_at_ = -1, bytes_read_ = 0;
  std::vector<std::byte> piece_, part_;
};

struct PieceAt {
  std::int64_t file = -1, piece = -1;
  bool operator==(const PieceAt&) const = default;
};

/// Sends pieces to the ranks that want them. In each round a rank gets the next one that it wants.
///
/// A rank awaits its piece of a round, sends those that others want of it in that round, and then
/// waits. So the ranks that are furthest behind wait for none that waits for them, and each rank
/// holds two pieces, however many want some of it.
class PieceExchange {
 public:
  /// Collective. `wanted` are on other nodes.
  PieceExchange(const CheckpointIndex& index, const FilePlaces& places,
                const std::vector<PieceAt>& wanted)
      : index_(index), places_(places), world_(*places.world), wanted_(wanted) {
    const auto ranks = static_cast<std::size_t>(world_.size());
    std::vector<std::int64_t> to(ranks), from(ranks);
    for (const PieceAt& one : wanted_) to[places_.holders[one.file]] += kNumbers;
    world_.all_to_all(buffer(std::span(from)), buffer(std::span(to)), kLabel).wait();
    const auto numbers_of = [](const std::vector<std::int64_t>& counts) {
      return std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
    };
    std::vector<std::int64_t> begins(ranks), mine(numbers_of(to) + 1), theirs(numbers_of(from) + 1);
    std::exclusive_scan(to.begin(), to.end(), begins.begin(), std::int64_t{0});
    for (std::size_t round = 0; round < wanted_.size(); ++round) {
      std::int64_t& at = begins[places_.holders[wanted_[round].file]];
      for (const std::int64_t number :
           {static_cast<std::int64_t>(round), wanted_[round].file, wanted_[round].piece})
        mine[at++] = number;
    }
    world_
        .all_to_all(buffer(std::span(theirs).first(theirs.size() - 1)),
                    buffer(std::span(mine).first(mine.size() - 1)), {to, from}, kLabel)
        .wait();
    const std::int64_t* at = theirs.data();
    for (std::size_t rank = 0; rank < ranks; ++rank)
      for (std::int64_t i = 0; i < from[rank]; i += kNumbers, at += kNumbers)
        asked_.push_back({at[0], static_cast<int>(rank), {at[1], at[2]}});
    std::ranges::sort(asked_, {}, [](const Asked& one) { return std::pair(one.round, one.rank); });
  }

  /// The next wanted piece, not yet verified.
  void next(std::vector<std::byte>& to) {
    const PieceAt& want = wanted_[round_];
    to.resize(bytes_of_piece(index_.files[want.file], want.piece));
    Work arrives = world_.recv(buffer_of(to), places_.holders[want.file], kLabel);
    send_until(round_++);
    arrives.wait();
  }

  /// Passes over the pieces that are left, and sends what others want.
  void finish() {
    std::vector<std::byte> dropped;
    while (round_ < std::ssize(wanted_)) next(dropped);
    send_until(INT64_MAX);
  }

  /// Of the first piece that could not be read: what was sent in its place matches no checksum.
  const std::string& fault() const { return fault_; }

 private:
  static constexpr const char* kLabel = "pieces of shards";
  static constexpr std::int64_t kNumbers = 3;  // of a wanted piece: its round, file and piece

  struct Asked {
    std::int64_t round = 0;
    int rank = 0;
    PieceAt at;
  };

  static Buffer buffer_of(std::span<std::byte> bytes) {
    return {bytes.data(), std::ssize(bytes), DType::u8};
  }

  void send_until(std::int64_t round) {
    for (; sent_ < asked_.size() && asked_[sent_].round <= round; ++sent_) {
      const auto& [_, rank, at] = asked_[sent_];
      piece_.assign(bytes_of_piece(index_.files[at.file], at.piece), std::byte{});
      const std::string fault = fault_of([&] {
        const auto [file, added] = files_.try_emplace(at.file, places_.paths[at.file]);
        file->second.read(at.piece * kPieceBytes, piece_);
      });
      if (fault_.empty()) fault_ = fault;
      world_.send(buffer_of(piece_), rank, kLabel).wait();
    }
  }

  const CheckpointIndex& index_;
  const FilePlaces& places_;
  Communicator& world_;
  const std::vector<PieceAt>& wanted_;
  std::vector<Asked> asked_;  // by round
  std::size_t sent_ = 0;
  std::int64_t round_ = 0;
  std::map<std::int64_t, InputFile> files_;
  std::vector<std::byte> piece_;
  std::string fault_;
};

/// Pieces of files on several nodes. Of those from other nodes it holds two, for values in few bits
/// and what scales them.
class PiecesOfNodes final : public StoredPieces {
 public:
  PiecesOfNodes(const CheckpointIndex& index, const FilePlaces& places)
      : index_(index), places_(places), here_(index, places.paths) {}

  void during(const std::function<void(bool)>& read) override {
    wanted_.clear();
    held_ = {};
    std::string fault = refusal_of([&] { read(true); });
    if (!fault.empty()) wanted_.clear();
    held_ = {};
    PieceExchange exchange(index_, places_, wanted_);
    exchange_ = &exchange;
    if (fault.empty()) fault = refusal_of([&] { read(false); });
    exchange.finish();
    exchange_ = nullptr;
    if (!exchange.fault().empty()) fault = exchange.fault();
    try {
      agree(*places_.world, "reading local checkpoint " + step_name(index_.step), fault);
    } catch (const AgreedError& error) {
      refuse(error.what());
    }
  }

  std::span<const std::byte> bytes_at(std::int64_t file, std::int64_t at, std::int64_t count,
                                      const std::string& parameter) override {
    const bool here = !places_.paths[file].empty();
    if (here && exchange_) return here_.bytes_at(file, at, count, parameter);
    if (!here) hold({file, at / kPieceBytes}, parameter);
    if (!exchange_) return blank(count);
    return std::span(held_[0].bytes).subspan(at % kPieceBytes, count);
  }

  std::int64_t bytes_read() const override { return here_.bytes_read() + received_; }

 private:
  struct Held {
    PieceAt at;
    std::vector<std::byte> bytes;
  };

  /// The message of a UsageError; other errors end all ranks anyway.
  static std::string refusal_of(const auto& work) {
    try {
      work();
      return {};
    } catch (const UsageError& error) {
      return error.what();
    }
  }

  /// Fetches the piece into held_[0], unless it is one of the two that were used last.
  void hold(const PieceAt& piece, const std::string& parameter) {
    if (held_[0].at == piece) return;
    std::swap(held_[0], held_[1]);
    if (held_[0].at == piece) return;
    held_[0].at = piece;
    if (!exchange_) return wanted_.push_back(piece);
    exchange_->next(held_[0].bytes);
    received_ += std::ssize(held_[0].bytes);
    const StoredFile& stored = index_.files[piece.file];
    verify_piece(held_[0].bytes, concat(stored.name, " of rank ", places_.holders[piece.file]),
                 stored, piece.piece, parameter);
  }

  std::span<const std::byte> blank(std::int64_t count) {
    blank_.resize(kPieceBytes);
    return std::span(blank_).first(count);
  }

  const CheckpointIndex& index_;
  const FilePlaces& places_;
  PiecesHere here_;
  PieceExchange* exchange_ = nullptr;  // null: in a rehearsal, which notes what is wanted
  std::vector<PieceAt> wanted_;
  std::array<Held, 2> held_;  // that of the last use first
  std::vector<std::byte> blank_;
  std::int64_t received_ = 0;
};

}  // namespace

void read_piece(const InputFile& file, const StoredFile& stored, std::int64_t piece,
                std::vector<std::byte>& to, const std::string& parameter) {
  to.resize(bytes_of_piece(stored, piece));
  file.read(piece * kPieceBytes, to);
  verify_piece(to, file.path(), stored, piece, parameter);
}

std::unique_ptr<StoredPieces> pieces_of(const CheckpointIndex& index,
                                        std::vector<std::string> paths) {
  return std::make_unique<PiecesHere>(index, std::move(paths));
}

std::unique_ptr<StoredPieces> pieces_of(const CheckpointIndex& index, const FilePlaces& places) {
  return std::make_unique<PiecesOfNodes>(index, places);
}

}  // namespace axonn
