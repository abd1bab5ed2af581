#include "axonn/data/text/word_splits.h"

namespace axonn {

namespace {

/// Whether a match that begins somewhere always begins a word there.
bool begins_words(const WordSplit& split) {
  switch (split.behavior) {
    case SplitBehavior::isolated:
    case SplitBehavior::removed:
      return true;
    case SplitBehavior::merged_with_previous:
      return split.inverted;
    case SplitBehavior::merged_with_next:
      return !split.inverted;
    case SplitBehavior::contiguous:
      break;
  }
  return false;
}

}  // namespace

WordSplits::WordSplits(const std::vector<WordSplit>& splits, const std::string& where) {
  for (const WordSplit& split : splits) {
    Compiled& made = all_.emplace_back(Compiled{split, nullptr, nullptr});
    if (split.pattern.empty()) continue;
    made.pattern = std::make_unique<WordPattern>(split.pattern, where);
    made.borders = std::make_unique<PatternBorders>(to_pcre2(split.pattern, where));
  }
}

bool WordSplits::always(std::string_view left, std::string_view right) const {
  for (const Compiled& each : all_)
    if (!each.split.spacing.empty()) return false;  // which may depend on what is before a word
  for (const Compiled& each : all_) {
    if (begins_words(each.split) && each.borders->always(left, right)) return true;
    if (!each.borders->apart(left, right)) return false;
  }
  return false;
}

WordSplits::Matcher::Matcher(const WordSplits& splits) : splits_(splits) {
  for (const Compiled& each : splits.all_)
    levels_.push_back(
        {each.pattern ? std::make_unique<WordPattern::Matcher>(*each.pattern) : nullptr});
}

void WordSplits::Matcher::start() {
  for (const Level& level : levels_)
    if (level.matcher) level.matcher->start();
}

bool WordSplits::Matcher::joins(SplitBehavior behavior, bool last, bool match) {
  switch (behavior) {
    case SplitBehavior::contiguous:
      return match == last;
    case SplitBehavior::merged_with_previous:
      return match && !last;
    case SplitBehavior::merged_with_next:
      return last && !match;
    case SplitBehavior::isolated:
    case SplitBehavior::removed:
      break;
  }
  return false;
}

}  // namespace axonn
