#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "axonn/data/corpus/config.h"
#include "axonn/data/corpus/documents.h"
#include "axonn/data/corpus/sequences.h"
#include "axonn/data/text/tokenizer.h"

namespace axonn {

struct Blanks;

/// Documents [begin, end) of a source.
struct DocumentRange {
  std::shared_ptr<const Documents> documents = nullptr;
  std::int64_t begin = 0, end = 0;
  std::shared_ptr<const Blanks> blanks = {};  ///< documents that are left out; null: none
  bool empty() const { return begin == end; }
};

/// The sequence of each piece of text, and the number of sequences.
struct BestFit {
  std::vector<std::int64_t> sequence_of;
  std::int64_t sequences = 0;
};
/// Puts pieces with these numbers of inputs, longest first, each into the sequence of seq_len with
/// the least room that is enough, or into a new one. A piece has 1 to seq_len inputs.
BestFit best_fit(std::span<const std::int64_t> inputs, std::int64_t seq_len);

/// Makes all rows of a sequence padding: each a document of its own, without a target.
void make_padding(std::int64_t seq_len, Sequence& sequence);

/// Packs documents into sequences by best fit, the longest first (Johnson, 1974, shows that this
/// takes at most 11/9 of the fewest possible sequences). The packing depends only on the documents'
/// lengths and seq_len. Tokens do not see other documents.
///
/// A document of n + 1 tokens has n inputs. `excess` says what becomes of one with more than
/// seq_len inputs; pieces of it are treated as documents. Documents and pieces without a learned
/// target are left out. Rows after the last document are padding: each is a document of its own,
/// without a target.
class PackedDocuments : public Sequences {
 public:
  /// vocab > 0: every token that is read must be below it. Memory: 32 bytes per document. Throws
  /// UsageError if there is nothing to learn.
  PackedDocuments(DocumentRange range, std::int64_t seq_len, std::int64_t vocab,
                  ExcessLength excess = ExcessLength::split);

  std::int64_t count() const override { return std::ssize(first_piece_) - 1; }
  void read(std::int64_t n, Sequence& to) const override;
  Size size(std::int64_t n) const override;
  bool forgets(std::int64_t n) const override;
  std::string where(std::int64_t n) const override;
  std::vector<std::string> notes() const override;

  std::int64_t pieces() const { return std::ssize(pieces_); }
  /// The documents that are longer than a sequence; those without any token; and others that have
  /// nothing to learn, at least in a piece.
  std::int64_t longer() const { return longer_; }
  std::int64_t empty() const { return empty_; }
  std::int64_t left_out() const { return left_out_; }
  /// The size of all pieces together.
  const Size& total() const { return total_; }

 private:
  struct Piece {
    std::int64_t document;
    std::int32_t begin, inputs, targets;  // begin: first token in the document
  };
  void cut(std::int64_t document);
  void pack();
  bool is_blanked(const Piece& piece) const;

  DocumentRange range_;
  std::int64_t seq_len_, vocab_;
  std::vector<Piece> pieces_;              // sequence after sequence
  std::vector<std::int64_t> first_piece_;  // of each sequence; then their number
  ExcessLength excess_;
  std::int64_t longer_ = 0, empty_ = 0, left_out_ = 0;
  Size total_{};
};

/// Shows the sequence of this number, one document per line, with learned tokens between « and ».
/// Throws UsageError if there is no such sequence.
std::string show_sequence(const Sequences& sequences, std::int64_t sequence,
                          const Tokenizer& tokenizer);

/// Describes packed documents, one fact per line, and shows a sequence of them.
std::string describe(const PackedDocuments& packed, std::int64_t seq_len,
                     const Tokenizer& tokenizer, std::int64_t sequence);

}  // namespace axonn
