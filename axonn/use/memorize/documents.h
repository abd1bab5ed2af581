#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "axonn/data/corpus/sequences.h"
#include "axonn/data/corpus/tokens/tokenize.h"
#include "axonn/data/text/tokenizer.h"

namespace axonn {

/// A document for testing whether a model can recite its end.
struct StudyDocument {
  std::string name;                  ///< "document 17 of wiki.jsonl"
  std::vector<std::int32_t> tokens;  ///< with begin-of-text, without end-of-text token
  /// Random bits that so many of its last tokens hold at least; 0 tokens: it is not known.
  double bits = 0;
  std::int64_t bits_of = 0;
};

/// Documents by number. Those of files are read from their tokens when they are asked for: one of
/// them needs 24 bytes of memory, whatever its length. Copies share what they refer to.
class StudyDocuments {
 public:
  /// Documents that are not in memory.
  class Source {
   public:
    virtual ~Source() = default;
    virtual std::int64_t count() const = 0;
    virtual std::int64_t length(std::int64_t n) const = 0;
    virtual std::string name(std::int64_t n) const = 0;
    virtual StudyDocument read(std::int64_t n) const = 0;
  };

  StudyDocuments() = default;
  /// The first `count` of them.
  StudyDocuments(std::shared_ptr<const std::vector<StudyDocument>> held, std::int64_t count)
      : held_(std::move(held)), count_(count) {}
  StudyDocuments(std::vector<StudyDocument> held)  // as good as the list itself
      : held_(std::make_shared<const std::vector<StudyDocument>>(std::move(held))),
        count_(std::ssize(*held_)) {}
  StudyDocuments(std::shared_ptr<const Source> source)
      : source_(std::move(source)), count_(source_->count()) {}
  /// These documents, then those.
  StudyDocuments(const StudyDocuments& first, const StudyDocuments& second);

  std::int64_t size() const { return count_; }
  bool empty() const { return count_ == 0; }
  StudyDocument operator[](std::int64_t n) const { return held_ ? held_->at(n) : source_->read(n); }
  /// Tokens of a document.
  std::int64_t length(std::int64_t n) const {
    return held_ ? std::ssize(held_->at(n).tokens) : source_->length(n);
  }
  std::string name(std::int64_t n) const { return held_ ? held_->at(n).name : source_->name(n); }
  /// Tokens of the longest one; at least 1.
  std::int64_t longest() const;

 private:
  std::shared_ptr<const std::vector<StudyDocument>> held_;  // or, if it is null:
  std::shared_ptr<const Source> source_;
  std::int64_t count_ = 0;
};

/// The usable documents, and counts of those left out by reason.
struct FoundDocuments {
  StudyDocuments documents;
  std::int64_t found = 0;
  std::int64_t too_short = 0, repeated = 0;
};

struct DocumentLimits {
  std::int64_t least = 1;  ///< tokens; shorter documents are left out
  std::int64_t most = 0;   ///< tokens; longer ones are cut
  /// Every so many tokens of a longer one a window of `most` tokens begins, which is a document of
  /// its own. A later window has a begin-of-text token first. 0: only the first window.
  std::int64_t stride = 0;
  std::int64_t count = 0;  ///< usable documents that are kept, the first; 0: all
};

/// Reads the documents of files of text, folders or patterns of them, in order: each file, or each
/// {"text": ...} of JSON lines and tables (tokenize()). A document that has the same tokens as an
/// earlier one is left out: otherwise it could be learned in one bucket and tested in another.
/// cache and report: as in tokenize_cached(). The documents read their tokens from the cache, whose
/// files must stay; without its folder, from memory. Throws UsageError as that does.
FoundDocuments read_documents(const std::vector<std::string>& files,
                              std::shared_ptr<const Tokenizer> tokenizer,
                              const DocumentLimits& limits, const TokenCache& cache,
                              const TokenizeReport& report);

/// The documents among the first `count` generated records (SyntheticRecords) that are long enough.
/// Of those that are not cut, `bits` are known of the last limits.least - 1 tokens.
FoundDocuments generated_documents(std::int64_t count, std::uint64_t seed,
                                   const Tokenizer& tokenizer, const DocumentLimits& limits);

/// Draws `count` different documents, in an order that depends on the seed. Throws UsageError if
/// there are fewer; the message says how many are needed and why others cannot be used.
std::vector<StudyDocument> draw_documents(const FoundDocuments& from, std::int64_t count,
                                          std::uint64_t seed);

/// The training steps into which a study's documents are injected.
struct InjectionPlan {
  std::int64_t steps = 0, warmup_steps = 0;  ///< nothing is injected in the warm-up
  std::int64_t batch = 0;                    ///< sequences of a step
  std::uint64_t seed = 1;
};

/// Plans the sequences after the warm-up: for each, the document injected there, or -1 for other
/// text. Document d occurs epochs[d] times, at positions drawn with the seed: one in each of
/// epochs[d] equal parts of the steps. All injected sequences are then spaced evenly in the order
/// of these, which shifts each by less than 1 / (mean of epochs[d] above 0) of the steps.
/// Throws UsageError if they do not fit; the message says how many steps are needed.
std::vector<std::int32_t> injections(const InjectionPlan& plan,
                                     std::span<const std::int64_t> epochs);

/// How a document stands in its sequence. Another place than the beginning, and a document of which
/// nothing is learned, need InjectedSlots::replaces, since they stand in the text that is replaced.
struct DocumentPlace {
  std::int64_t offset = 0;  ///< tokens of other text before it, which are learned
  bool learned = true;      ///< false: no token of it is a target, and other text follows
};

/// The sequences after the warm-up.
struct InjectedSlots {
  std::int64_t first = 0;                    ///< number of the first of them
  std::vector<std::int32_t> documents = {};  ///< the document injected in each, or -1
  std::vector<DocumentPlace> places = {};    ///< of each document; empty: all as usual
  /// Whether a document replaces other text, so that all other text is the same without it; if
  /// not, that text comes later.
  bool replaces = false;
};

/// The training sequences of a study: other sequences and, after the warm-up, documents among
/// them. A document is a sequence of its own that starts with its first token, or follows other
/// text, which is learned, too, with the document's first token as the next one. If the document is
/// not to be learned, the rest of that text follows, and the model learns it after the document.
class InjectedSequences : public Sequences {
 public:
  /// Documents must have 2 to seq_len + 1 tokens, less their offset.
  InjectedSequences(std::unique_ptr<const Sequences> others,
                    std::shared_ptr<const std::vector<StudyDocument>> documents,
                    InjectedSlots slots, std::int64_t seq_len);

  std::int64_t count() const override { return first_ + std::ssize(injected_); }
  void read(std::int64_t n, Sequence& to) const override;
  Size size(std::int64_t n) const override;
  std::string where(std::int64_t n) const override;
  bool counts_by_reading() const override { return reads_ || others_->counts_by_reading(); }

 private:
  /// The document that sequence n holds, or -1 and the sequence's index among the others.
  std::pair<std::int32_t, std::int64_t> locate(std::int64_t n) const;

  DocumentPlace place_of(std::int32_t document) const {
    return places_.empty() ? DocumentPlace() : places_.at(document);
  }

  std::unique_ptr<const Sequences> others_;
  std::shared_ptr<const std::vector<StudyDocument>> documents_;
  std::int64_t first_, seq_len_;
  bool packed_;                         // the other sequences hold positions and document starts
  std::vector<std::int32_t> injected_;  // from first_ on
  std::vector<DocumentPlace> places_;   // by document
  bool reads_;                          // some are not learned
  std::vector<std::int64_t> earlier_;   // number of other sequences before each of these
};

}  // namespace axonn
