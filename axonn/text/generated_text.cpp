#include "axonn/text/generated_text.h"

#include <algorithm>
#include <utility>

#include "axonn/base/check.h"

namespace axonn {

namespace {

/// Returns the length of the longest suffix of text that is a proper prefix of `stop`.
std::size_t begun(const std::string& text, const std::string& stop) {
  for (std::size_t n = std::min(text.size(), stop.size() - 1); n > 0; --n)
    if (text.compare(text.size() - n, n, stop, 0, n) == 0) return n;
  return 0;
}

}  // namespace

GeneratedText::GeneratedText(const Tokenizer& tokenizer, std::vector<std::string> stops)
    : stops_(std::move(stops)), decoder_(tokenizer, {.skip_special = true, .continues = true}) {
  for (const std::string& stop : stops_)
    if (stop.empty()) refuse("a stop string is empty");
}

std::string GeneratedText::push(std::int32_t token) {
  if (stopped_) return {};
  held_ += decoder_.push(token);
  return take_ready();
}

std::string GeneratedText::take_ready() {
  std::size_t end = std::string::npos, back = 0;
  for (const std::string& stop : stops_) {
    end = std::min(end, held_.find(stop));
    back = std::max(back, begun(held_, stop));
  }
  stopped_ = end != std::string::npos;
  if (!stopped_) end = held_.size() - back;
  std::string ready = held_.substr(0, end);
  held_.erase(0, end);
  return ready;
}

std::string GeneratedText::finish() {
  if (stopped_) return {};
  held_ += decoder_.finish();
  std::string rest = take_ready();
  if (!stopped_) rest += std::exchange(held_, {});
  return rest;
}

}  // namespace axonn
