#pragma once

#include <memory>
#include <string>
#include <vector>

#include "axonn/text/tokenizer.h"

namespace axonn {

/// Turns generated tokens into text, up to the first stop string. Text that may be the beginning of
/// a stop string is held back until it is known not to be, so a stop string is never shown, even if
/// it spans several tokens.
class GeneratedText {
 public:
  /// Throws UsageError if a stop string is empty. The tokenizer must outlive it.
  GeneratedText(const Tokenizer& tokenizer, std::vector<std::string> stops);

  /// Returns the text that can be shown after this token.
  std::string push(std::int32_t token);
  /// Returns the remaining text after the last token; "" after a stop.
  std::string finish();
  bool stopped() const { return stopped_; }

 private:
  std::string take_ready();

  std::vector<std::string> stops_;
  StreamDecoder decoder_;
  std::string held_;
  bool stopped_ = false;
};

}  // namespace axonn
