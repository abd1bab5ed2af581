#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "axonn/data/text/tokenizer.h"

namespace axonn {

/// The length of the longest suffix of the text with which `pattern` may begin, but not all of it.
std::size_t begun_suffix(std::string_view text, std::string_view pattern);

/// Decodes tokens one by one, for display, up to the first stop string. Holds back a UTF-8
/// character that is spread over several tokens until it is complete, and text that may be the
/// beginning of a stop string until it is known not to be; so a stop string is never shown. Without
/// stop strings, all results of push() and finish() together equal decode() of all tokens.
class StreamDecoder {
 public:
  /// Throws UsageError if a stop string is empty. The tokenizer must outlive it.
  explicit StreamDecoder(const Tokenizer& tokenizer, const DecodeOptions& options = {},
                         std::vector<std::string> stops = {});

  /// Takes the next token and returns the text that can be shown after it.
  std::string push(std::int32_t token);
  /// Returns the remaining text after the last token, with bytes that never became a character; ""
  /// after a stop.
  std::string finish();
  bool stopped() const { return !stop_.empty(); }
  /// The stop string that ended the text; "" before.
  const std::string& stop() const { return stop_; }

 private:
  std::string take_ready(std::size_t whole);

  const Tokenizer& tokenizer_;
  DecodeOptions options_;
  std::vector<std::string> stops_;
  std::string held_, stop_;
};

}  // namespace axonn
