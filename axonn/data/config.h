#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace axonn {

/// The section [data]: what to learn from. Exactly one of text, tokens, jsonl and synthetic is
/// given.
struct DataConfig {
  /// Text files, folders (every .txt below, sorted) or patterns (*.txt), one after the other.
  std::vector<std::string> text = {};
  /// Token files: llm.c's .bin or Megatron's prefixes, or patterns of them, one after the other; or
  /// with weights, "w1 path1 w2 path2", in one string or several.
  std::vector<std::string> tokens = {};
  /// Files of fine-tuning data (jsonl.h), or patterns of them: examples, a line each, of one kind.
  /// Several lie in a sequence together (packing.h).
  std::vector<std::string> jsonl = {};
  /// How a conversation reads: "auto", or a name (find_chat_format()).
  std::string chat_template = "auto";
  /// Bytes of generated text (synthetic.h).
  std::int64_t synthetic = 0;
  /// "bytes", or a tokenizer's folder or file (make_tokenizer()). With token files it only serves
  /// to show text, and to read a validation text; it has to be the one that they were made with.
  std::string tokenizer = "bytes";
  /// A fraction, such as 0.1: all of the last 10 % of each source, which training then does not
  /// see. Or a file: text or tokens, or, beside jsonl, JSONL. Empty or 0: none.
  std::string validation = "0.1";
  /// Samples in an order of their own each epoch, or (false) as they lie in the files.
  bool shuffle = true;
};

}  // namespace axonn
