#include "axonn/data/corpus/sampler.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include "axonn/data/corpus/blanks.h"
#include "axonn/foundation/base/check.h"

namespace axonn {

namespace {

std::vector<double> weights_of(const std::vector<TokenStream>& streams) {
  std::vector<double> weights;
  for (const TokenStream& stream : streams) weights.push_back(stream.weight);
  return weights;
}

}  // namespace

void divide_documents(const TokenSource& source, std::int64_t begin, const DocumentRule& rule,
                      Sequence& to) {
  if (rule.mode == DocumentMode::joined) return;
  const auto rows = static_cast<std::int32_t>(std::ssize(to.ids));
  std::vector<std::int64_t> begins;  // first the source's, then those that the tokens show
  source.document_begins(begin + 1, begin + rows + 1, begins);
  for (std::int64_t& at : begins) at -= begin;
  for (std::int64_t row = 0; row < rows; ++row)
    if (to.ids[row] == rule.end_of_text) begins.push_back(row + 1);
  for (const std::int64_t row : begins) to.targets[row - 1] = -1;
  if (rule.mode != DocumentMode::separate) return;
  to.starts.assign(rows, 0);
  for (const std::int64_t row : begins)
    if (row < rows) to.starts[row] = static_cast<std::int32_t>(row);
  for (std::int32_t row = 0; row < rows; ++row) {
    if (row > 0 && to.starts[row] == 0) to.starts[row] = to.starts[row - 1];
    to.positions.push_back(row - to.starts[row]);
  }
}

Windows::Windows(std::vector<TokenStream> streams, std::int64_t seq_len, std::int64_t vocab,
                 const DocumentRule& documents)
    : streams_(std::move(streams)), seq_len_(seq_len), vocab_(vocab), documents_(documents) {
  AXONN_CHECK(seq_len > 0, "training.seq_len is ", seq_len, "; it must be positive");
  AXONN_CHECK(!streams_.empty(), "windows need at least one stream of tokens");
  for (const TokenStream& stream : streams_) {
    AXONN_CHECK(stream.source && stream.begin >= 0 && stream.begin <= stream.end &&
                    stream.end <= stream.source->size(),
                "windows: tokens ", stream.begin, " to ", stream.end, " are not in the source");
    if (stream.size() <= seq_len)
      refuse(stream.source->name(), " has ", stream.size(), " tokens here (", stream.begin, " to ",
             stream.end, " of ", stream.source->size(), "), but one sample of training.seq_len ",
             seq_len, " needs ", seq_len + 1,
             "; give more text, a shorter seq_len, or another data.validation");
    firsts_.push_back(count() + (stream.size() - 1) / seq_len);
  }
}

std::pair<const TokenStream*, std::int64_t> Windows::find(std::int64_t n) const {
  AXONN_CHECK(n >= 0 && n < count(), "window ", n, " of ", count(), " was asked for");
  const auto s = std::ranges::upper_bound(firsts_, n) - firsts_.begin() - 1;
  return {&streams_[s], streams_[s].begin + (n - firsts_[s]) * seq_len_};
}

void Windows::read(std::int64_t n, Sequence& to) const {
  const auto [stream, begin] = find(n);
  to.targets.resize(seq_len_ + 1);
  if (vocab_ > 0)
    stream->source->read_checked(begin, to.targets, vocab_);
  else
    stream->source->read(begin, to.targets);
  to.ids.assign(to.targets.begin(), to.targets.end() - 1);
  to.targets.erase(to.targets.begin());
  to.positions.clear();
  to.starts.clear();
  if (stream->blanks) blank_rows(*stream->blanks, begin, 0, seq_len_, to);
  divide_documents(*stream->source, begin, documents_, to);
}

bool Windows::counts_by_reading() const {
  return documents_.mode != DocumentMode::joined ||
         std::ranges::any_of(streams_, [](const TokenStream& stream) { return !!stream.blanks; });
}

bool Windows::forgets(std::int64_t n) const {
  const auto [stream, begin] = find(n);
  return stream->blanks && stream->blanks->touches(begin, begin + seq_len_ + 1);
}

std::string Windows::where(std::int64_t n) const {
  const auto [stream, begin] = find(n);
  return stream->source->where(begin);
}

Blend::Blend(std::span<const double> weights) : in_period_(weights.size()) {
  AXONN_CHECK(!weights.empty(), "a blend needs at least one source");
  for (double weight : weights)
    if (!(weight > 0) || !std::isfinite(weight))
      refuse("a blend's weights must be positive numbers; got ", weight);
  const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  if (!std::isfinite(sum)) refuse("a blend's weights are too large; their sum is not finite");
  const std::int64_t period = weights.size() == 1 ? 1 : kPeriod;
  for (std::int64_t n = 0; n < period; ++n) {
    const double drawn = static_cast<double>(std::max<std::int64_t>(n, 1));
    std::size_t most_behind = 0;
    double worst = -std::numeric_limits<double>::infinity();
    for (std::size_t s = 0; s < weights.size(); ++s) {
      const double behind = weights[s] / sum * drawn - static_cast<double>(in_period_[s]);
      if (behind > worst) {
        worst = behind;
        most_behind = s;
      }
    }
    source_.push_back(static_cast<std::int32_t>(most_behind));
    earlier_.push_back(static_cast<std::int32_t>(in_period_[most_behind]++));
  }
  for (std::size_t s = 0; s < weights.size(); ++s)
    if (weights[s] / sum * kPeriod < 1 || in_period_[s] == 0)
      refuse("the weight ", weights[s], " is too small a share of the sum ", sum,
             "; a source's share must be at least 1/", kPeriod);
}

Blend::Draw Blend::draw(std::int64_t n) const {
  const auto period = std::ssize(source_);
  const std::int64_t turn = n / period, slot = n % period;
  return {source_[slot], turn * in_period_[source_[slot]] + earlier_[slot]};
}

Sampler::Sampler(const std::vector<TokenStream>& streams, const SamplerOptions& options)
    : blend_(weights_of(streams)), shuffle_(options.shuffle) {
  for (const TokenStream& stream : streams)
    add(stream_sequences({stream}, options.seq_len, options.vocab, options.documents), options);
}

Sampler::Sampler(std::unique_ptr<const Sequences> sequences, const SamplerOptions& options)
    : blend_(std::array{1.0}), shuffle_(options.shuffle) {
  add(std::move(sequences), options);
}

void Sampler::add(std::unique_ptr<const Sequences> sequences, const SamplerOptions& options) {
  count_ += sequences->count();
  sources_.push_back(
      {std::move(sequences), Random(options.seed, concat("data/order/", sources_.size()))});
}

std::pair<const Sequences&, std::int64_t> Sampler::locate(std::int64_t n) const {
  AXONN_CHECK(n >= 0, "sample ", n, " was asked for; samples count from 0");
  const auto [source, earlier] = blend_.draw(n);
  const auto& [sequences, orders] = sources_[source];
  const std::int64_t count = sequences->count(), turn = earlier % count;
  if (!shuffle_) return {*sequences, turn};
  const auto bits = orders.bits(earlier / count);
  const std::uint64_t key = std::uint64_t{bits[0]} << 32 | bits[1];
  return {*sequences, permute(turn, count, key)};
}

void Sampler::read(std::int64_t n, Sequence& to) const {
  const auto [sequences, m] = locate(n);
  sequences.read(m, to);
}

std::int64_t Sampler::own_number(std::int64_t n) const { return locate(n).second; }

std::vector<std::string> Sampler::notes() const {
  std::vector<std::string> all;
  for (const Source& source : sources_)
    for (std::string& note : source.sequences->notes()) all.push_back(std::move(note));
  return all;
}

bool Sampler::counts_by_reading() const {
  return std::ranges::any_of(
      sources_, [](const Source& source) { return source.sequences->counts_by_reading(); });
}

bool Sampler::forgets(std::int64_t n) const {
  const auto [sequences, m] = locate(n);
  return sequences.forgets(m);
}

Sequences::Size Sampler::size(std::int64_t n) const {
  const auto [sequences, m] = locate(n);
  return sequences.size(m);
}

std::string Sampler::where(std::int64_t n) const {
  const auto [sequences, m] = locate(n);
  return sequences.where(m);
}

}  // namespace axonn
