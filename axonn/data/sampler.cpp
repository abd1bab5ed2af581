#include "axonn/data/sampler.h"

#include <algorithm>
#include <utility>

#include "axonn/base/check.h"
#include "axonn/data/repeated.h"

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
  return {&streams_[s], streams_[s].begin + (n - first(s)) * seq_len_};
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
}

std::string Windows::where(std::int64_t n) const {
  const auto [stream, begin] = find(n);
  return stream->source->where(begin);
}

Sampler::Sampler(std::vector<TokenStream> streams, const SamplerOptions& options)
    : blend_(weights_of(streams)),
      windows_(std::move(streams), options.seq_len, options.vocab),
      shuffle_(options.shuffle) {
  for (std::int64_t s = 0; windows_.first(s) < count(); ++s)
    orders_.emplace_back(options.seed, concat("data/order/", s));
}

std::int64_t Sampler::window(std::int64_t n) const {
  AXONN_CHECK(n >= 0, "sample ", n, " was asked for; samples count from 0");
  const auto [stream, earlier] = blend_.draw(n);
  const std::int64_t first = windows_.first(stream), count = windows_.first(stream + 1) - first;
  return first + (shuffle_ ? shuffled(orders_[stream], earlier, count) : earlier % count);
}

}  // namespace axonn
