#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace axonn {

/// The section [data]: where tokens come from. Plain data; exactly one of text, tokens and
/// synthetic is set.
struct DataConfig {
  std::vector<std::string> text;    ///< text files or folders
  std::vector<std::string> tokens;  ///< token files, or a blend "w1 prefix1 w2 prefix2"
  std::int64_t synthetic = 0;       ///< bytes of generated text
  std::string tokenizer = "bytes";  ///< "bytes", or a folder with vocab.json and merges.txt
  std::string validation;           ///< a fraction of the data, taken from its end, or a file
  bool shuffle = true;              ///< false: consecutive windows in file order

  bool operator==(const DataConfig&) const = default;
};

}  // namespace axonn
