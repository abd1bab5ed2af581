#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "axonn/data/corpus/config.h"
#include "axonn/data/corpus/documents.h"
#include "axonn/data/corpus/packing.h"
#include "axonn/data/corpus/sequences.h"
#include "axonn/data/text/tokenizer.h"

namespace axonn {

/// Two answers to a prompt, of which the first was preferred.
struct TextPair {
  std::string prompt, chosen, rejected;
};

/// Parses a line {"prompt": TEXT, "chosen": TEXT, "rejected": TEXT}. Without a prompt, it is what
/// chosen and rejected begin with, up to the last space before they differ, as TRL has it. Throws
/// UsageError, beginning with `place`, if the line is no JSON object or lacks one of the two, if a
/// value is no string (lists of messages are not supported), or if both answers are the same.
TextPair parse_pair(std::string_view line, const std::string& place);

/// The prompt's text that chosen and rejected, which have none of their own, share. It ends before
/// the space that precedes the first difference; if one is the beginning of the other, before its
/// last character.
std::size_t shared_prompt(std::string_view chosen, std::string_view rejected);

/// The tokens of prompt and answer, coded as in Documents.
struct CodedPair {
  std::vector<std::int32_t> chosen, rejected;
};

/// Encodes prompt + chosen and prompt + rejected, each with the end-of-text token unless it ends
/// with it. An answer begins where the tokens of the prompt alone cease to be those of both texts,
/// so that no token is half prompt and half answer; all that follows is learned.
CodedPair encode_pair(const Tokenizer& tokenizer, const TextPair& pair);

/// Encodes the lines of the files, also compressed ones and tables (text_reader.h), as documents:
/// chosen is number 2 n, rejected 2 n + 1. They stay in memory. Throws UsageError, with
/// "FILE:LINE", as parse_pair() does.
std::shared_ptr<const Documents> encode_pairs(const std::vector<std::string>& files,
                                              const Tokenizer& tokenizer);

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
