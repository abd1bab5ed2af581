#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "axonn/base/check.h"
#include "axonn/base/files.h"
#include "axonn/data/token_source.h"
#include "axonn/data/tokenize.h"

namespace axonn {

/// The key of data made from files: a hash of `how`, which says how it is made, and of each file's
/// path, size and modification time.
std::string cache_key(const std::vector<std::string>& files, const std::string& how);

/// Returns open(), which reads the file at `path`. If there is no such file, or open() refuses it
/// as damaged, calls make(), which writes it. Several processes may do so at once: each writes its
/// own file, and the last one stays.
template <typename Open, typename Make>
auto open_cached(const std::string& path, const Open& open, const Make& make) {
  if (path_exists(path)) {
    try {
      return open();
    } catch (const UsageError&) {
      std::error_code ignored;
      std::filesystem::remove(path, ignored);
    }
  }
  make();
  return open();
}

/// Tokenises text files in memory.
std::shared_ptr<const TokenSource> tokenize_in_memory(const std::vector<std::string>& files,
                                                      const Tokenizer& tokenizer,
                                                      const TokenizeReport& report);

/// Opens the token file of these text files in `folder`; makes it first if it is missing or
/// damaged.
std::shared_ptr<const TokenSource> tokenize_cached(const std::vector<std::string>& files,
                                                   const Tokenizer& tokenizer,
                                                   const std::string& folder,
                                                   const TokenizeReport& report);

}  // namespace axonn
