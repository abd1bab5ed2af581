#include "axonn/data/sampler.h"

#include <algorithm>
#include <utility>

#include "axonn/base/check.h"

namespace axonn {

namespace {

std::vector<double> weights_of(const std::vector<TokenStream>& streams) {
  AXONN_CHECK(!streams.empty(), "a sampler needs at least one stream of tokens");
  std::vector<double> weights;
  for (const TokenStream& stream : streams) weights.push_back(stream.weight);
  return weights;
}

}  // namespace

Windows::Windows(std::vector<TokenStream> streams, std::int64_t seq_len, std::int64_t vocab)
    : streams_(std::move(streams)), seq_len_(seq_len), vocab_(vocab) {
  AXONN_CHECK(seq_len > 0, "training.seq_len is ", seq_len, "; it must be positive");
  AXONN_CHECK(!streams_.empty(), "windows need at least one stream of tokens");
  std::int64_t windows = 0;
  for (const TokenStream& stream : streams_) {
    AXONN_CHECK(stream.source && stream.begin >= 0 && stream.begin <= stream.end &&
                    stream.end <= stream.source->size(),
                "windows: tokens ", stream.begin, " to ", stream.end, " are not in the source");
    if (stream.size() <= seq_len)
      refuse(stream.source->name(), " has ", stream.size(), " tokens here (", stream.begin, " to ",
             stream.end, " of ", stream.source->size(), "), but one sample of training.seq_len ",
             seq_len, " needs ", seq_len + 1,
             "; give more text, a shorter seq_len, or another data.validation");
    ends_.push_back(windows += (stream.size() - 1) / seq_len);
  }
}

std::pair<const TokenStream*, std::int64_t> Windows::find(std::int64_t n) const {
  AXONN_CHECK(n >= 0 && n < count(), "window ", n, " of ", count(), " was asked for");
  const auto s = std::ranges::upper_bound(ends_, n) - ends_.begin();
  return {&streams_[s], streams_[s].begin + (n - (s > 0 ? ends_[s - 1] : 0)) * seq_len_};
}

void Windows::read(std::int64_t n, std::span<std::int32_t> tokens) const {
  const auto [stream, begin] = find(n);
  AXONN_CHECK(std::ssize(tokens) == seq_len_ + 1, "a window needs room for ", seq_len_ + 1,
              " tokens, got ", tokens.size());
  if (vocab_ > 0)
    stream->source->read_checked(begin, tokens, vocab_);
  else
    stream->source->read(begin, tokens);
}

void Windows::read(std::int64_t n, Sequence& to) const {
  to.targets.resize(seq_len_ + 1);
  read(n, std::span(to.targets));
  to.ids.assign(to.targets.begin(), to.targets.end() - 1);
  to.targets.erase(to.targets.begin());
  to.positions.clear();
  to.starts.clear();
}

std::string Windows::where(std::int64_t n) const {
  const auto [stream, begin] = find(n);
  return stream->source->where(begin);
}

std::int64_t shuffled(const Random& orders, std::int64_t n, std::int64_t count) {
  const auto bits = orders.bits(static_cast<std::uint64_t>(n / count));
  const std::uint64_t key = std::uint64_t{bits[0]} << 32 | bits[1];
  return static_cast<std::int64_t>(
      permute(static_cast<std::uint64_t>(n % count), static_cast<std::uint64_t>(count), key));
}

Sampler::Sampler(std::vector<TokenStream> streams, const SamplerOptions& options)
    : options_(options), blend_(weights_of(streams)) {
  for (std::size_t s = 0; s < streams.size(); ++s) {
    orders_.emplace_back(options.seed, concat("data/order/", s));
    windows_.push_back(std::make_unique<Windows>(std::vector{std::move(streams[s])},
                                                 options.seq_len, options.vocab));
  }
}

Sampler::Place Sampler::place(std::int64_t n) const {
  AXONN_CHECK(n >= 0, "sample ", n, " was asked for; samples count from 0");
  const auto [stream, earlier] = blend_.draw(n);
  const std::int64_t count = windows_[stream]->count();
  return {stream, earlier / count,
          options_.shuffle ? shuffled(orders_[stream], earlier, count) : earlier % count};
}

Sampler::Place Sampler::read(std::int64_t n, std::span<std::int32_t> tokens) const {
  const Place where = place(n);
  windows_[where.stream]->read(where.window, tokens);
  return where;
}

void Sampler::read(std::int64_t n, Sequence& to) const {
  const Place at = place(n);
  windows_[at.stream]->read(at.window, to);
}

std::int64_t Sampler::count() const {
  std::int64_t windows = 0;
  for (const auto& stream : windows_) windows += stream->count();
  return windows;
}

std::string Sampler::where(std::int64_t n) const {
  const Place at = place(n);
  return windows_[at.stream]->where(at.window);
}

}  // namespace axonn
