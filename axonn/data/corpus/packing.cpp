#include "axonn/data/corpus/packing.h"

#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <numeric>
#include <utility>

#include "axonn/foundation/base/check.h"
#include "axonn/foundation/base/log.h"
#include "axonn/foundation/base/utf8.h"

namespace axonn {

namespace {

/// The documents of a sequence, one per line. The target of a row is the token of the next row.
std::string documents_of(const Sequence& sequence, const Tokenizer& tokenizer) {
  std::string out;
  const std::int64_t rows = std::ssize(sequence.ids);
  const auto begin_of = [&](std::int64_t row) {
    return sequence.starts.empty() ? 0 : std::int64_t{sequence.starts[row]};
  };
  for (std::int64_t begin = 0, end = 0; begin < rows; begin = end) {
    for (end = begin + 1; end < rows && begin_of(end) == begin;) ++end;
    std::string text, same;  // same: the bytes since the last mark, as a character may be cut
    bool learned = false;
    const auto mark = [&](bool learns) {
      if (learns == learned) return;
      text += escaped(std::exchange(same, "")) + (learns ? "«" : "»");
      learned = learns;
    };
    const auto put = [&](std::int32_t token, bool learns) {
      mark(learns);
      same += tokenizer.bytes_of(token);
    };
    put(sequence.ids[begin], false);
    for (std::int64_t r = begin; r < end; ++r) {
      const bool learns = sequence.targets[r] >= 0;
      if (learns || r + 1 < end) put(learns ? sequence.targets[r] : sequence.ids[r + 1], learns);
    }
    mark(false);
    text += escaped(same);
    const bool padding = sequence.targets[begin] == kPaddingTarget;
    if (padding) return out + concat("  rows ", begin, " to ", rows - 1, ": padding\n");
    out += concat("  rows ", begin, " to ", end - 1, ": ", text, '\n');
  }
  return out;
}

}  // namespace

BestFit best_fit(std::span<const std::int64_t> inputs, std::int64_t seq_len) {
  BestFit fit;
  fit.sequence_of.reserve(inputs.size());
  std::map<std::int64_t, std::vector<std::int64_t>> by_room;  // sequences by their free room
  for (const std::int64_t count : inputs) {
    std::int64_t room = seq_len, sequence = fit.sequences;
    // The sequence with the least room that is enough, the last put of several; else a new one.
    if (const auto least = by_room.lower_bound(count); least != by_room.end()) {
      room = least->first;
      sequence = least->second.back();
      least->second.pop_back();
      if (least->second.empty()) by_room.erase(least);
    } else {
      ++fit.sequences;
    }
    fit.sequence_of.push_back(sequence);
    if (room > count) by_room[room - count].push_back(sequence);
  }
  return fit;
}

void make_padding(std::int64_t seq_len, Sequence& sequence) {
  sequence.ids.assign(seq_len, 0);
  sequence.targets.assign(seq_len, kPaddingTarget);
  sequence.positions.assign(seq_len, 0);
  sequence.starts.resize(seq_len);
  std::iota(sequence.starts.begin(), sequence.starts.end(), 0);
}

PackedDocuments::PackedDocuments(DocumentRange range, std::int64_t seq_len, std::int64_t vocab,
                                 ExcessLength excess)
    : range_(std::move(range)), seq_len_(seq_len), vocab_(vocab), excess_(excess) {
  AXONN_CHECK(seq_len > 0, "training.seq_len is ", seq_len, "; it must be positive");
  AXONN_CHECK(range_.documents && range_.begin >= 0 && range_.begin <= range_.end &&
                  range_.end <= range_.documents->count(),
              "documents ", range_.begin, " to ", range_.end, " do not exist");
  for (std::int64_t d = range_.begin; d < range_.end; ++d) cut(d);
  if (pieces_.empty()) {
    std::string why;
    for (const std::string& note : notes()) why += concat(why.empty() ? ": " : "; ", note);
    refuse(range_.documents->name(), ": in documents ", range_.begin + 1, " to ", range_.end,
           " there is nothing to learn", why, "; give more, or another data.validation");
  }
  pack();
}

void PackedDocuments::cut(std::int64_t document) {
  const std::int64_t inputs = range_.documents->size(document) - 1;
  if (inputs < 0) {
    ++empty_;
    return;
  }
  const bool longer = inputs > seq_len_;
  longer_ += longer;
  if (longer && excess_ == ExcessLength::drop) return;
  std::vector<std::int32_t> coded;
  if (longer) coded = range_.documents->coded(document);
  bool all = inputs > 0;
  const std::int64_t end = excess_ == ExcessLength::truncate ? std::min(inputs, seq_len_) : inputs;
  for (std::int64_t begin = 0; begin < end; begin += seq_len_) {
    const std::int64_t n = std::min(seq_len_, end - begin);
    const auto targets =
        longer ? static_cast<std::int32_t>(std::count_if(coded.begin() + begin + 1,
                                                         coded.begin() + begin + 1 + n, is_learned))
               : range_.documents->learned(document);
    if (targets == 0) {
      all = false;
      continue;
    }
    pieces_.push_back(
        {document, static_cast<std::int32_t>(begin), static_cast<std::int32_t>(n), targets});
    total_.targets += targets;
    total_.inputs += n;
  }
  left_out_ += !all;
}

std::vector<std::string> PackedDocuments::notes() const {
  std::vector<std::string> notes;
  const auto note = [&](std::int64_t count, const auto&... parts) {
    if (count > 0)
      notes.push_back(concat(format_count(count), " of ", format_count(range_.end - range_.begin),
                             " examples ", parts...));
  };
  constexpr std::array kFates = {
      "is split, so that its later parts begin without what precedes them", "is left out",
      "is cut off there"};
  note(longer_, "are longer than ", format_count(seq_len_), " tokens: each ",
       kFates[static_cast<std::size_t>(excess_)],
       " (data.excess_length_strategy = ", kExcessLengths[static_cast<std::size_t>(excess_)], ')');
  note(empty_, "have an empty answer and are left out");
  note(left_out_, "have nothing to learn, or parts without it, which are left out");
  return notes;
}

void PackedDocuments::pack() {
  std::ranges::stable_sort(pieces_, std::greater(), &Piece::inputs);
  std::vector<std::int64_t> inputs;
  inputs.reserve(pieces_.size());
  for (const Piece& piece : pieces_) inputs.push_back(piece.inputs);
  const auto [sequence_of, sequences] = best_fit(inputs, seq_len_);
  // A counting sort by sequence; within a sequence the longest piece stays first.
  first_piece_.assign(sequences + 1, 0);
  for (const std::int64_t s : sequence_of) ++first_piece_[s + 1];
  std::partial_sum(first_piece_.begin(), first_piece_.end(), first_piece_.begin());
  std::vector<std::int64_t> next = first_piece_;
  std::vector<Piece> sorted(pieces_.size());
  for (std::size_t i = 0; i < pieces_.size(); ++i) sorted[next[sequence_of[i]]++] = pieces_[i];
  pieces_ = std::move(sorted);
}

bool PackedDocuments::is_blanked(const Piece& piece) const {
  return range_.blanks && range_.blanks->touches(piece.document, piece.document + 1);
}

bool PackedDocuments::forgets(std::int64_t n) const {
  AXONN_CHECK(n >= 0 && n < count(), "sequence ", n, " of ", count(), " was asked for");
  return std::any_of(pieces_.begin() + first_piece_[n], pieces_.begin() + first_piece_[n + 1],
                     [&](const Piece& piece) { return is_blanked(piece); });
}

Sequences::Size PackedDocuments::size(std::int64_t n) const {
  AXONN_CHECK(n >= 0 && n < count(), "sequence ", n, " of ", count(), " was asked for");
  Size size{};
  for (std::int64_t i = first_piece_[n]; i < first_piece_[n + 1]; ++i) {
    if (!is_blanked(pieces_[i])) size.targets += pieces_[i].targets;
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
  make_padding(seq_len_, to);
  std::vector<std::int32_t> coded;
  std::int32_t row = 0;
  for (std::int64_t i = first_piece_[n]; i < first_piece_[n + 1]; ++i) {
    const Piece& piece = pieces_[i];
    coded.resize(piece.inputs + 1);
    range_.documents->read(piece.document, piece.begin, coded);
    if (is_blanked(piece)) std::ranges::fill(coded, ~range_.blanks->filler);
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

std::string show_sequence(const Sequences& sequences, std::int64_t sequence,
                          const Tokenizer& tokenizer) {
  if (sequence < 0 || sequence >= sequences.count())
    refuse("--sequence is ", sequence, "; it must be 0 to ", sequences.count() - 1);
  Sequence shown;
  sequences.read(sequence, shown);
  return concat("sequence ", sequence, ": ", sequences.where(sequence), '\n') +
         documents_of(shown, tokenizer);
}

std::string describe(const PackedDocuments& packed, std::int64_t seq_len,
                     const Tokenizer& tokenizer, std::int64_t sequence) {
  const Sequences::Size& total = packed.total();
  const std::int64_t rows = packed.count() * seq_len;
  std::string out =
      concat("sequences  ", format_count(packed.count()), " of ", format_count(seq_len),
             " tokens, with ", format_count(packed.pieces()), " documents\ninputs     ",
             format_count(total.inputs), ", and ", format_count(rows - total.inputs),
             " rows of padding\nlearned    ", format_count(total.targets), " targets\n");
  for (const std::string& note : packed.notes()) out += concat("note       ", note, '\n');
  return out + show_sequence(packed, sequence, tokenizer);
}

}  // namespace axonn
