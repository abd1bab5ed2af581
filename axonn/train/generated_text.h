#pragma once

#include <memory>
#include <string>
#include <vector>

#include "axonn/data/tokenizer.h"

namespace axonn {

/// The text of tokens as they are generated, up to the first stop string. What may be the beginning
/// of one is held back until it is known not to be, so that a stop is never shown, whatever tokens
/// it is spread over.
class GeneratedText {
 public:
  /// Errors: UsageError if a stop string is empty. The tokenizer outlives it.
  GeneratedText(const Tokenizer& tokenizer, std::vector<std::string> stops);

  /// What can be shown now.
  std::string push(std::int32_t token);
  /// The rest, when no token comes any more: nothing if it has stopped.
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
