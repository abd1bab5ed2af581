#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace axonn {

class TokenSource;
struct Sequence;

/// Numbers from `begin` to `end`, without that: tokens of a source, or documents of a range.
struct Span {
  std::int64_t begin = 0, end = 0;
  bool operator==(const Span&) const = default;
};

/// The tokens of a source, or the documents of a range, that training leaves out. It sees their
/// length alone: each of their tokens is the same filler, and is neither learned nor predicted
/// from. So training is that on data in which they were blanked, whatever model reads them.
struct Blanks {
  std::vector<Span> spans;  ///< ascending, without common numbers
  std::int32_t filler = 0;  ///< does not end a document
  /// Whether a span has a number of [begin, end).
  bool touches(std::int64_t begin, std::int64_t end) const;
};

/// Blanks the rows [row, row + rows) of a sequence, whose inputs are the tokens of a source from
/// `begin` on: inputs in a span become the filler, and rows whose input or target is in a span have
/// no target (-1).
void blank_rows(const Blanks& blanks, std::int64_t begin, std::int64_t row, std::int64_t rows,
                Sequence& to);

/// Spans in order, of which those that meet or overlap are joined.
std::vector<Span> joined_spans(std::vector<Span> spans);

/// A document that training leaves out, and its exact copies in the training data.
struct ForgottenDocument {
  std::string name;  ///< "document 3 of FILE"
  std::string hash;  ///< of its tokens, 16 hex digits
  /// For each stream of the corpus, the tokens of its source; or, of examples, their numbers.
  std::vector<std::vector<Span>> occurrences = {};
  bool found() const;
};

/// For each passage, where it begins in the source, as far as it has tokens in `within`; ascending.
/// Passages have at least one token. Reads the source once, and holds a few MiB of it.
std::vector<std::vector<std::int64_t>> find_passages(
    const TokenSource& source, Span within, std::span<const std::vector<std::int32_t>> passages);

}  // namespace axonn
