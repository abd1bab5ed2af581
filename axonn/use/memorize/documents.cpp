#include "axonn/use/memorize/documents.h"

#include <algorithm>
#include <iterator>
#include <numeric>
#include <optional>
#include <unordered_set>

#include "axonn/data/corpus/synthetic/synthetic.h"
#include "axonn/data/corpus/tokens/tokenize.h"
#include "axonn/foundation/base/check.h"
#include "axonn/foundation/base/files.h"
#include "axonn/foundation/base/random.h"

namespace axonn {

namespace {

/// Those of documents, one after the other, that are long enough and no duplicates; counts all.
class UsableDocuments {
 public:
  UsableDocuments(const DocumentLimits& limits, FoundDocuments& found)
      : limits_(limits), found_(found) {}

  /// tokens: those of a document, once it is cut.
  bool keeps(std::span<const std::int32_t> tokens) {
    ++found_.found;
    const auto* bytes = reinterpret_cast<const char*>(tokens.data());
    if (std::ssize(tokens) < limits_.least)
      ++found_.too_short;
    else if (!hashes_.insert(hash_text({bytes, tokens.size_bytes()})).second)
      ++found_.repeated;
    else if (limits_.count == 0 || kept_ < limits_.count)
      return ++kept_ > 0;
    return false;
  }

 private:
  DocumentLimits limits_;
  FoundDocuments& found_;
  std::unordered_set<std::uint64_t> hashes_;
  std::int64_t kept_ = 0;
};

/// Documents, and windows of documents, of a source of tokens.
class DocumentsOfTokens : public StudyDocuments::Source {
 public:
  DocumentsOfTokens(std::shared_ptr<const TokenSource> source, std::string of,
                    std::shared_ptr<const Tokenizer> tokenizer)
      : source_(std::move(source)), of_(std::move(of)), tokenizer_(std::move(tokenizer)) {}

  /// Adds the usable ones. A document has no end-of-text token.
  void find(const DocumentLimits& limits, FoundDocuments& found) {
    std::vector<std::int64_t> begins;
    source_->document_begins(0, source_->size(), begins);
    begins.push_back(source_->size());
    const auto end = tokenizer_->end_of_text();
    UsableDocuments usable(limits, found);
    const auto add = [&](Window window) {
      if (usable.keeps(tokens_of(window))) windows_.push_back(window);
    };
    for (std::size_t d = 0; d + 1 < begins.size(); ++d) {
      Window window{.begin = begins[d], .document = static_cast<std::int32_t>(d + 1)};
      std::int64_t size = begins[d + 1] - window.begin;
      if (end && size > 0 && source_->at(begins[d + 1] - 1) == *end) --size;
      window.length = static_cast<std::int32_t>(std::min(size, limits.most));
      const bool whole = limits.stride == 0 || size <= limits.most;
      if (!whole) window.first = 0;
      add(window);
      if (whole) continue;
      window.length -= static_cast<std::int32_t>(std::ssize(tokenizer_->begin_of_text()));
      for (window.first = limits.stride; window.first + window.length <= size;
           window.first += limits.stride)
        add(window);
    }
  }

  std::int64_t count() const override { return std::ssize(windows_); }
  std::int64_t length(std::int64_t n) const override {
    const Window& window = windows_.at(n);
    return window.length + (window.first > 0 ? std::ssize(tokenizer_->begin_of_text()) : 0);
  }
  std::string name(std::int64_t n) const override {
    const auto& [begin, first, document, length] = windows_.at(n);
    const std::string name = concat("document ", document, " of ", of_);
    return first < 0 ? name : concat("tokens ", first + 1, " to ", first + length, " of ", name);
  }
  StudyDocument read(std::int64_t n) const override { return {name(n), tokens_of(windows_.at(n))}; }

 private:
  struct Window {
    std::int64_t begin = 0;   // of the document in the source
    std::int64_t first = -1;  // of a window, a token of the document; -1: its beginning, no window
    std::int32_t document = 1, length = 0;
  };

  /// A later window begins with a begin-of-text token.
  std::vector<std::int32_t> tokens_of(const Window& window) const {
    std::vector<std::int32_t> tokens;
    if (window.first > 0) {
      const auto begin = tokenizer_->begin_of_text();
      tokens.assign(begin.begin(), begin.end());
    }
    const std::size_t before = tokens.size();
    tokens.resize(before + window.length);
    source_->read(window.begin + std::max<std::int64_t>(window.first, 0),
                  std::span(tokens).subspan(before));
    return tokens;
  }

  std::shared_ptr<const TokenSource> source_;
  std::string of_;
  std::shared_ptr<const Tokenizer> tokenizer_;
  std::vector<Window> windows_;
};

/// Replaces tokens of a sequence of joined documents by those of a document, none of which is a
/// target. The last of them predicts the token of the sequence that follows.
void put_in(std::span<const std::int32_t> tokens, std::int64_t offset, Sequence& to) {
  for (std::int64_t i = 0; i < std::ssize(tokens); ++i) {
    const std::int64_t row = offset + i;
    if (row < std::ssize(to.ids)) to.ids[row] = tokens[i];
    if (row > 0) to.targets[row - 1] = -1;
  }
}

/// Documents of two kinds.
class JoinedDocuments : public StudyDocuments::Source {
 public:
  JoinedDocuments(StudyDocuments first, StudyDocuments second)
      : first_(std::move(first)), second_(std::move(second)) {}

  std::int64_t count() const override { return first_.size() + second_.size(); }
  std::int64_t length(std::int64_t n) const override {
    return n < first_.size() ? first_.length(n) : second_.length(n - first_.size());
  }
  std::string name(std::int64_t n) const override {
    return n < first_.size() ? first_.name(n) : second_.name(n - first_.size());
  }
  StudyDocument read(std::int64_t n) const override {
    return n < first_.size() ? first_[n] : second_[n - first_.size()];
  }

 private:
  StudyDocuments first_, second_;
};

}  // namespace

StudyDocuments::StudyDocuments(const StudyDocuments& first, const StudyDocuments& second)
    : StudyDocuments(std::make_shared<const JoinedDocuments>(first, second)) {}

std::int64_t StudyDocuments::longest() const {
  std::int64_t longest = 1;
  for (std::int64_t n = 0; n < count_; ++n) longest = std::max(longest, length(n));
  return longest;
}

FoundDocuments read_documents(const std::vector<std::string>& files,
                              std::shared_ptr<const Tokenizer> tokenizer,
                              const DocumentLimits& limits, const TokenCache& cache,
                              const TokenizeReport& report) {
  const std::vector<std::string> paths = text_files(files);
  const TokenizeOptions how{.report = report};
  auto source = cache.folder.empty() ? tokenize_in_memory(paths, *tokenizer, how)
                                     : tokenize_cached(paths, *tokenizer, cache, how);
  const std::string more = paths.size() > 1 ? concat(" and ", paths.size() - 1, " more") : "";
  const auto documents = std::make_shared<DocumentsOfTokens>(
      std::move(source), concat(paths.front(), more), std::move(tokenizer));
  FoundDocuments found;
  documents->find(limits, found);
  found.documents = StudyDocuments(documents);
  return found;
}

FoundDocuments generated_documents(std::int64_t count, std::uint64_t seed,
                                   const Tokenizer& tokenizer, const DocumentLimits& limits) {
  const SyntheticRecords records(seed);
  const auto end = tokenizer.end_of_text();
  FoundDocuments found;
  UsableDocuments usable(limits, found);
  std::vector<StudyDocument> kept;
  for (std::int64_t i = 0; i < count; ++i) {
    StudyDocument one{.name = concat("record ", i + 1),
                      .tokens = tokenizer.encode_prompt(records.text(i))};
    if (end && !one.tokens.empty() && one.tokens.back() == *end) one.tokens.pop_back();
    if (std::ssize(one.tokens) > limits.most) {
      one.tokens.resize(limits.most);
    } else {
      one.bits = records.surprise(i, limits.least - 1);
      one.bits_of = limits.least - 1;
    }
    if (usable.keeps(one.tokens)) kept.push_back(std::move(one));
  }
  found.documents = std::move(kept);
  return found;
}

std::vector<StudyDocument> draw_documents(const FoundDocuments& from, std::int64_t count,
                                          std::uint64_t seed) {
  const StudyDocuments& all = from.documents;
  if (all.size() < count)
    refuse("the buckets need ", count, " documents, but of the ", from.found, " found only ",
           all.size(), " can be used (", from.too_short, " are too short, ", from.repeated,
           " are duplicates); give more memorize.documents, or lower memorize.bucket_size");
  const auto bits = Random(seed, "study/buckets").bits(0);
  const std::uint64_t key = std::uint64_t{bits[0]} << 32 | bits[1];
  std::vector<StudyDocument> drawn;
  for (std::int64_t i = 0; i < count; ++i) drawn.push_back(all[permute(i, all.size(), key)]);
  return drawn;
}

std::vector<std::int32_t> injections(const InjectionPlan& plan,
                                     std::span<const std::int64_t> epochs) {
  const std::int64_t slots = (plan.steps - plan.warmup_steps) * plan.batch,
                     wanted = std::accumulate(epochs.begin(), epochs.end(), std::int64_t{0});
  if (wanted > slots)
    refuse("the documents of all epochs need ", wanted, " sequences, but the ",
           plan.steps - plan.warmup_steps, " steps after the warm-up have ", slots,
           "; set training.steps to ", plan.warmup_steps + (wanted + plan.batch - 1) / plan.batch,
           " or more, or lower memorize.bucket_size or memorize.epochs");
  struct Visit {
    double time;  // in [0, 1)
    std::int32_t document;
  };
  std::vector<Visit> visits;
  const Random random(plan.seed, "study/injections");
  for (std::size_t d = 0; d < epochs.size(); ++d)
    for (std::int64_t e = 0; e < epochs[d]; ++e)
      visits.push_back({(static_cast<double>(e) + random.uniform(visits.size())) /
                            static_cast<double>(epochs[d]),
                        static_cast<std::int32_t>(d)});
  std::ranges::stable_sort(visits, {}, &Visit::time);
  std::vector<std::int32_t> injected(static_cast<std::size_t>(slots), -1);
  for (std::int64_t i = 0; i < wanted; ++i) injected[i * slots / wanted] = visits[i].document;
  return injected;
}

InjectedSequences::InjectedSequences(std::unique_ptr<const Sequences> others,
                                     std::shared_ptr<const std::vector<StudyDocument>> documents,
                                     InjectedSlots slots, std::int64_t seq_len)
    : others_(std::move(others)),
      documents_(std::move(documents)),
      first_(slots.first),
      seq_len_(seq_len),
      injected_(std::move(slots.documents)),
      places_(std::move(slots.places)),
      reads_(std::ranges::any_of(places_, [](const auto& one) { return !one.learned; })) {
  std::int64_t others_before = first_;
  for (const std::int32_t document : injected_) {
    AXONN_CHECK(document < std::ssize(*documents_), "injected sequences: document ", document,
                " of ", documents_->size());
    earlier_.push_back(others_before);
    others_before += slots.replaces || document < 0;
  }
  Sequence sample;
  others_->read(0, sample);
  packed_ = !sample.starts.empty();
  const bool among =
      reads_ || std::ranges::any_of(places_, [](const auto& one) { return one.offset > 0; });
  AXONN_CHECK(
      !among || (slots.replaces && !packed_),
      "injected sequences: documents stand in text only if they replace it, in joined documents");
}

std::pair<std::int32_t, std::int64_t> InjectedSequences::locate(std::int64_t n) const {
  AXONN_CHECK(n >= 0 && n < count(), "sequence ", n, " is out of range: there are ", count(),
              " sequences");
  if (n < first_) return {-1, n};
  return {injected_[n - first_], earlier_[n - first_]};
}

void InjectedSequences::read(std::int64_t n, Sequence& to) const {
  const auto [document, other] = locate(n);
  if (document < 0) return others_->read(other, to);
  const std::vector<std::int32_t>& tokens = (*documents_)[document].tokens;
  const auto [offset, learned] = place_of(document);
  if (offset > 0 || !learned) others_->read(other, to);
  AXONN_CHECK(std::ssize(tokens) + offset <= seq_len_ + 1, "injected sequences: ", tokens.size(),
              " tokens behind ", offset, " others; a sequence has ", seq_len_);
  if (!learned) return put_in(tokens, offset, to);
  to.ids.resize(offset);
  to.targets.resize(offset);
  if (offset > 0) to.targets.back() = tokens.front();
  to.ids.insert(to.ids.end(), tokens.begin(), tokens.end() - 1);
  to.targets.insert(to.targets.end(), tokens.begin() + 1, tokens.end());
  to.ids.resize(seq_len_, 0);
  to.targets.resize(seq_len_, -1);
  to.positions.clear();
  to.starts.clear();
  if (!packed_) return;
  to.positions.resize(seq_len_);
  std::iota(to.positions.begin(), to.positions.end(), 0);
  to.starts.assign(seq_len_, 0);
}

Sequences::Size InjectedSequences::size(std::int64_t n) const {
  const auto [document, other] = locate(n);
  if (document < 0) return others_->size(other);
  const DocumentPlace place = place_of(document);
  if (!place.learned) return others_->size(other);  // at most
  const std::int64_t inputs = std::ssize((*documents_)[document].tokens) - 1 + place.offset;
  return {inputs, inputs};
}

std::string InjectedSequences::where(std::int64_t n) const {
  const auto [document, other] = locate(n);
  return document < 0 ? others_->where(other) : (*documents_)[document].name;
}

}  // namespace axonn
