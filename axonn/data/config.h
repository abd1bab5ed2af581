#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace axonn {

/// The section [data]: what to learn from. Exactly one of text, tokens and synthetic is given.
struct DataConfig {
  /// Text files, folders (every .txt below, sorted) or patterns (*.txt), one after the other.
  std::vector<std::string> text = {};
  /// Token files: llm.c's .bin or Megatron's prefixes, or patterns of them, one after the other; or
  /// with weights, "w1 path1 w2 path2", in one string or several.
  std::vector<std::string> tokens = {};
  /// Bytes of generated text (synthetic.h).
  std::int64_t synthetic = 0;
  /// "bytes", or a tokenizer's folder or file (make_tokenizer()). With token files it only serves
  /// to show text, and to read a validation text; it has to be the one that they were made with.
  std::string tokenizer = "bytes";
  /// A fraction, such as 0.1: all of the last 10 % of each source, which training then does not
  /// see. Or a text or token file. Empty or 0: none.
  std::string validation = "0.1";
  /// Samples in an order of their own each epoch, or (false) as they lie in the files.
  bool shuffle = true;
};

}  // namespace axonn
