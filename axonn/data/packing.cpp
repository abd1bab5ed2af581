#include "axonn/data/packing.h"

#include <algorithm>
#include <bit>
#include <functional>
#include <numeric>

#include "axonn/base/check.h"

namespace axonn {

namespace {

/// Sequences by their free room; finds the one with the least room that is enough.
class Rooms {
 public:
  explicit Rooms(std::int64_t most) : by_room_(most + 1), filled_(most / 64 + 1) {}

  void put(std::int64_t sequence, std::int64_t room) {
    by_room_[room].push_back(sequence);
    filled_[room / 64] |= std::uint64_t{1} << room % 64;
  }
  /// Takes out the sequence with the least room of at least `wanted`, the last put of several, and
  /// sets `wanted` to its room. Returns -1 if there is none.
  std::int64_t take(std::int64_t& wanted) {
    std::int64_t word = wanted / 64;
    std::uint64_t bits = filled_[word] & (~std::uint64_t{0} << wanted % 64);
    while (bits == 0 && ++word < std::ssize(filled_)) bits = filled_[word];
    if (bits == 0) return -1;
    wanted = word * 64 + std::countr_zero(bits);
    auto& here = by_room_[wanted];
    const std::int64_t sequence = here.back();
    here.pop_back();
    if (here.empty()) filled_[word] &= ~(std::uint64_t{1} << wanted % 64);
    return sequence;
  }

 private:
  std::vector<std::vector<std::int64_t>> by_room_;
  std::vector<std::uint64_t> filled_;
};

}  // namespace

PackedDocuments::PackedDocuments(DocumentRange range, std::int64_t seq_len, std::int64_t vocab)
    : range_(std::move(range)), seq_len_(seq_len), vocab_(vocab) {
  AXONN_CHECK(seq_len > 0, "training.seq_len is ", seq_len, "; it must be positive");
  AXONN_CHECK(range_.documents && range_.begin >= 0 && range_.begin <= range_.end &&
                  range_.end <= range_.documents->count(),
              "documents ", range_.begin, " to ", range_.end, " do not exist");
  for (std::int64_t d = range_.begin; d < range_.end; ++d) cut(d);
  if (pieces_.empty())
    refuse(range_.documents->name(), ": in documents ", range_.begin + 1, " to ", range_.end,
           " there is nothing to learn; give more, or another data.validation");
  pack();
}

void PackedDocuments::cut(std::int64_t document) {
  const auto coded = range_.documents->coded(document);
  const std::int64_t inputs = std::ssize(coded) - 1;
  bool all = inputs > 0;
  for (std::int64_t begin = 0; begin < inputs; begin += seq_len_) {
    const std::int64_t n = std::min(seq_len_, inputs - begin);
    const auto targets =
        n == inputs
            ? range_.documents->learned(document)
            : static_cast<std::int32_t>(std::ranges::count_if(
                  coded.subspan(static_cast<std::size_t>(begin + 1), static_cast<std::size_t>(n)),
                  is_learned));
    if (targets == 0) {
      all = false;
      continue;
    }
    pieces_.push_back(
        {document, static_cast<std::int32_t>(begin), static_cast<std::int32_t>(n), targets});
    total_.targets += targets;
    total_.inputs += n;
  }
  continued_ += inputs > seq_len_;
  left_out_ += !all;
}

void PackedDocuments::pack() {
  std::ranges::stable_sort(pieces_, std::greater(), &Piece::inputs);
  std::vector<std::int64_t> sequence_of(pieces_.size());
  Rooms rooms(seq_len_);
  std::int64_t sequences = 0;
  for (std::size_t i = 0; i < pieces_.size(); ++i) {
    std::int64_t room = pieces_[i].inputs, sequence = rooms.take(room);
    if (sequence < 0) {
      sequence = sequences++;
      room = seq_len_;
    }
    sequence_of[i] = sequence;
    if (room > pieces_[i].inputs) rooms.put(sequence, room - pieces_[i].inputs);
  }
  // A counting sort by sequence; within a sequence the longest piece stays first.
  first_piece_.assign(sequences + 1, 0);
  for (const std::int64_t s : sequence_of) ++first_piece_[s + 1];
  std::partial_sum(first_piece_.begin(), first_piece_.end(), first_piece_.begin());
  std::vector<std::int64_t> next = first_piece_;
  std::vector<Piece> sorted(pieces_.size());
  for (std::size_t i = 0; i < pieces_.size(); ++i) sorted[next[sequence_of[i]]++] = pieces_[i];
  pieces_ = std::move(sorted);
}

Sequences::Size PackedDocuments::size(std::int64_t n) const {
  AXONN_CHECK(n >= 0 && n < count(), "sequence ", n, " of ", count(), " was asked for");
  Size size{};
  for (std::int64_t i = first_piece_[n]; i < first_piece_[n + 1]; ++i) {
    size.targets += pieces_[i].targets;
    size.inputs += pieces_[i].inputs;
  }
  return size;
}

std::string PackedDocuments::where(std::int64_t n) const {
  std::string text;
  for (std::int64_t i = first_piece_.at(n); i < first_piece_.at(n + 1); ++i)
    text += concat(text.empty() ? "" : ", ", pieces_[i].document + 1);
  return concat("documents ", text, " of ", range_.documents->name());
}

void PackedDocuments::read(std::int64_t n, Sequence& to) const {
  AXONN_CHECK(n >= 0 && n < count(), "sequence ", n, " of ", count(), " was asked for");
  const auto length = static_cast<std::size_t>(seq_len_);
  to.ids.assign(length, 0);
  to.targets.assign(length, -1);
  to.positions.assign(length, 0);
  to.starts.resize(length);
  std::iota(to.starts.begin(), to.starts.end(), 0);
  std::int32_t row = 0;
  for (std::int64_t i = first_piece_[n]; i < first_piece_[n + 1]; ++i) {
    const Piece& piece = pieces_[i];
    const auto coded = range_.documents->coded(piece.document).subspan(piece.begin);
    for (std::int32_t t = 0, start = row; t < piece.inputs; ++t, ++row) {
      to.ids[row] = token_of(coded[t]);
      to.targets[row] = is_learned(coded[t + 1]) ? coded[t + 1] : -1;
      to.positions[row] = t;
      to.starts[row] = start;
    }
    for (std::int32_t t = 0; t <= piece.inputs; ++t)
      if (vocab_ > 0 && token_of(coded[t]) >= vocab_)
        refuse("token ", piece.begin + t, " of document ", piece.document + 1, " of ",
               range_.documents->name(), " is ", token_of(coded[t]), ", but model.vocab is ",
               vocab_);
  }
}

}  // namespace axonn
