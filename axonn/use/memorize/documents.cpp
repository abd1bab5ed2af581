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

/// Of documents, one after the other, without their end-of-text tokens, those that are long enough
/// and no duplicates, cut if they are too long.
class UsableDocuments {
 public:
  UsableDocuments(const Tokenizer& tokenizer, const DocumentLimits& limits)
      : begin_(tokenizer.begin_of_text()), end_(tokenizer.end_of_text()), limits_(limits) {}

  void add(StudyDocument one) {
    if (end_ && !one.tokens.empty() && one.tokens.back() == *end_) one.tokens.pop_back();
    if (limits_.stride > 0 && std::ssize(one.tokens) > limits_.most)
      add_windows(one);
    else
      keep(std::move(one));
  }
  FoundDocuments take() { return std::move(found_); }

 private:
  void add_windows(const StudyDocument& one) {
    const std::int64_t size = std::ssize(one.tokens);
    for (std::int64_t first = 0, length = limits_.most; first + length <= size;
         first += limits_.stride, length = limits_.most - std::ssize(begin_)) {
      StudyDocument window{concat("tokens ", first + 1, " to ", first + length, " of ", one.name),
                           {}};
      window.tokens.reserve(limits_.most);
      if (first > 0) window.tokens.assign(begin_.begin(), begin_.end());
      const auto from = one.tokens.begin() + first;
      window.tokens.insert(window.tokens.end(), from, from + length);
      keep(std::move(window));
    }
  }

  void keep(StudyDocument one) {
    ++found_.found;
    std::vector<std::int32_t>& tokens = one.tokens;
    if (std::ssize(tokens) > limits_.most) {
      tokens.resize(limits_.most);
      tokens.shrink_to_fit();
      one.bits_of = 0;
    }
    const auto* bytes = reinterpret_cast<const char*>(tokens.data());
    if (std::ssize(tokens) < limits_.least)
      ++found_.too_short;
    else if (!hashes_.insert(hash_text({bytes, tokens.size() * sizeof tokens[0]})).second)
      ++found_.repeated;
    else if (limits_.count == 0 || std::ssize(found_.documents) < limits_.count)
      found_.documents.push_back(std::move(one));
  }

  std::span<const std::int32_t> begin_;
  std::optional<std::int32_t> end_;
  DocumentLimits limits_;
  std::unordered_set<std::uint64_t> hashes_;
  FoundDocuments found_;
};

}  // namespace

FoundDocuments read_documents(const std::vector<std::string>& files,
                              std::shared_ptr<const Tokenizer> tokenizer,
                              const DocumentLimits& limits, const TokenCache& cache,
                              const TokenizeReport& report) {
  const std::vector<std::string> paths = text_files(files);
  const TokenizeOptions how{.report = report};
  const auto source = cache.folder.empty() ? tokenize_in_memory(paths, *tokenizer, how)
                                           : tokenize_cached(paths, *tokenizer, cache, how);
  std::vector<std::int64_t> begins;
  source->document_begins(0, source->size(), begins);
  begins.push_back(source->size());
  const std::string more = paths.size() > 1 ? concat(" and ", paths.size() - 1, " more") : "";
  UsableDocuments usable(*tokenizer, limits);
  for (std::size_t d = 0; d + 1 < begins.size(); ++d) {
    StudyDocument one{concat("document ", d + 1, " of ", paths.front(), more), {}};
    one.tokens.resize(static_cast<std::size_t>(begins[d + 1] - begins[d]));
    source->read(begins[d], one.tokens);
    usable.add(std::move(one));
  }
  return usable.take();
}

FoundDocuments generated_documents(std::int64_t count, std::uint64_t seed,
                                   const Tokenizer& tokenizer, const DocumentLimits& limits) {
  const SyntheticRecords records(seed);
  UsableDocuments usable(tokenizer, limits);
  for (std::int64_t i = 0; i < count; ++i)
    usable.add({.name = concat("record ", i + 1),
                .tokens = tokenizer.encode_prompt(records.text(i)),
                .bits = records.surprise(i, limits.least - 1),
                .bits_of = limits.least - 1});
  return usable.take();
}

std::vector<StudyDocument> draw_documents(FoundDocuments from, std::int64_t count,
                                          std::uint64_t seed) {
  std::vector<StudyDocument>& all = from.documents;
  if (std::ssize(all) < count)
    refuse("the buckets need ", count, " documents, but of the ", from.found, " found only ",
           all.size(), " can be used (", from.too_short, " are too short, ", from.repeated,
           " are duplicates); give more memorize.documents, or lower memorize.bucket_size");
  const auto bits = Random(seed, "study/buckets").bits(0);
  const std::uint64_t key = std::uint64_t{bits[0]} << 32 | bits[1];
  std::vector<StudyDocument> drawn;
  for (std::int64_t i = 0; i < count; ++i)
    drawn.push_back(std::move(all[permute(i, all.size(), key)]));
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
      offsets_(std::move(slots.offsets)) {
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
  const bool behind = std::ranges::any_of(offsets_, [](std::int64_t one) { return one > 0; });
  AXONN_CHECK(!behind || (slots.replaces && !packed_),
              "injected sequences: documents follow text only in its place, in joined documents");
}

std::pair<std::int32_t, std::int64_t> InjectedSequences::place(std::int64_t n) const {
  AXONN_CHECK(n >= 0 && n < count(), "sequence ", n, " is out of range: there are ", count(),
              " sequences");
  if (n < first_) return {-1, n};
  return {injected_[n - first_], earlier_[n - first_]};
}

void InjectedSequences::read(std::int64_t n, Sequence& to) const {
  const auto [document, other] = place(n);
  if (document < 0) return others_->read(other, to);
  const std::vector<std::int32_t>& tokens = (*documents_)[document].tokens;
  const std::int64_t offset = offset_of(document);
  if (offset > 0) others_->read(other, to);
  AXONN_CHECK(std::ssize(tokens) + offset <= seq_len_ + 1, "injected sequences: ", tokens.size(),
              " tokens behind ", offset, " others; a sequence has ", seq_len_);
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
  const auto [document, other] = place(n);
  if (document < 0) return others_->size(other);
  const std::int64_t inputs = std::ssize((*documents_)[document].tokens) - 1 + offset_of(document);
  return {inputs, inputs};
}

std::string InjectedSequences::where(std::int64_t n) const {
  const auto [document, other] = place(n);
  return document < 0 ? others_->where(other) : (*documents_)[document].name;
}

}  // namespace axonn
