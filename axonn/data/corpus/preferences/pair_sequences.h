#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "axonn/data/corpus/config.h"
#include "axonn/data/corpus/documents.h"
#include "axonn/data/corpus/packing.h"
#include "axonn/data/corpus/sequences.h"

namespace axonn {

/// A sequence for each pair: the document of the chosen answer, that of the rejected one, which do
/// not see each other, and padding.
class PairSequences : public Sequences {
 public:
  /// vocab > 0: every token that is read must be below it. The range is of whole pairs. A pair that
  /// is longer than seq_len is left out with ExcessLength::drop. Throws UsageError, with the pair
  /// and the remedy, for other longer pairs, and if no pair is left.
  PairSequences(DocumentRange range, std::int64_t seq_len, std::int64_t vocab, ExcessLength excess);

  std::int64_t count() const override { return std::ssize(pairs_); }
  void read(std::int64_t n, Sequence& to) const override;
  Size size(std::int64_t n) const override;
  std::string where(std::int64_t n) const override;
  std::vector<std::string> notes() const override;

 private:
  /// Rows of both documents of the pair that begins with this document.
  std::int64_t rows_of(std::int64_t document) const;

  DocumentRange range_;
  std::int64_t seq_len_, vocab_;
  std::vector<std::int64_t> pairs_;  // the first document of each
};

}  // namespace axonn
