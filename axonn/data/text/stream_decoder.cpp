#include "axonn/data/text/stream_decoder.h"

#include <algorithm>
#include <utility>

#include "axonn/foundation/base/check.h"
#include "axonn/foundation/base/utf8.h"

namespace axonn {

std::size_t begun_suffix(std::string_view text, std::string_view pattern) {
  for (std::size_t n = std::min(text.size(), pattern.size() - 1); n > 0; --n)
    if (text.ends_with(pattern.substr(0, n))) return n;
  return 0;
}

StreamDecoder::StreamDecoder(const Tokenizer& tokenizer, const DecodeOptions& options,
                             std::vector<std::string> stops)
    : tokenizer_(tokenizer), options_(options), stops_(std::move(stops)) {
  for (const std::string& stop : stops_)
    if (stop.empty()) refuse("a stop string is empty");
}

std::string StreamDecoder::push(std::int32_t token) {
  if (stopped()) return {};
  held_ += tokenizer_.shown(token, options_);
  return take_ready(held_.size() - incomplete_utf8_suffix(held_));
}

/// Takes the text that can be shown from the first `whole` bytes that are held.
std::string StreamDecoder::take_ready(std::size_t whole) {
  const std::string_view text = std::string_view(held_).substr(0, whole);
  std::size_t end = text.npos, back = 0;
  for (const std::string& stop : stops_) {
    if (const std::size_t found = text.find(stop); found < end) {
      end = found;
      stop_ = stop;
    }
    back = std::max(back, begun_suffix(text, stop));
  }
  std::string ready(text.substr(0, stopped() ? end : whole - back));
  held_.erase(0, ready.size());
  return ready;
}

std::string StreamDecoder::finish() {
  if (stopped()) return {};
  std::string rest = take_ready(held_.size());
  if (!stopped()) rest += std::exchange(held_, {});
  return rest;
}

}  // namespace axonn
