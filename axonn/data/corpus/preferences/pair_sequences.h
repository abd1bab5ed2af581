#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "axonn/data/corpus/config.h"
#include "axonn/data/corpus/documents.h"
#include "axonn/data/corpus/packing.h"
#include "axonn/data/corpus/sequences.h"

namespace axonn {

/// A sequence for each two documents (AnswerDocuments), which do not see each other, and padding.
/// With AnswerData::shared_prompt the second one is a branch of the first (Sequence::branches):
/// the rows of the prompt but its last token, which both begin with, are there once.
class PairSequences : public Sequences {
 public:
  /// vocab > 0: every token that is read must be below it. The range is of whole pairs. A pair that
  /// is longer than seq_len is left out with ExcessLength::drop. Throws UsageError, with the pair
  /// and the remedy, for other longer pairs, and if no pair is left.
  PairSequences(DocumentRange range, std::int64_t seq_len, std::int64_t vocab, ExcessLength excess,
                const AnswerData& data = {.kind = AnswerData::Kind::pairs});

  std::int64_t count() const override { return std::ssize(pairs_); }
  void read(std::int64_t n, Sequence& to) const override;
  Size size(std::int64_t n) const override;
  /// The number of the two documents of sequence n, among the twos of all.
  std::int64_t number(std::int64_t n) const { return pairs_.at(n) / 2; }
  /// The rows of sequence n before the first target of its first answer.
  std::int64_t prompt_rows(std::int64_t n) const;
  std::string where(std::int64_t n) const override;
  std::vector<std::string> notes() const override;

 private:
  /// Rows of both documents of the pair that begins with this document, those shared once.
  std::int64_t rows_of(std::int64_t document) const;
  /// The rows that both documents begin with and a sequence has once.
  std::int64_t shared_rows(std::int64_t document) const;
  /// "pair" or "example", for messages.
  const char* noun() const;

  DocumentRange range_;
  std::int64_t seq_len_, vocab_;
  AnswerData data_;
  std::vector<std::int64_t> pairs_;  // the first document of each
};

}  // namespace axonn
