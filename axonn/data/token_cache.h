#pragma once

#include <memory>
#include <string>
#include <vector>

#include "axonn/data/token_source.h"
#include "axonn/data/tokenize.h"

namespace axonn {

/// The key of data made from files: a hash of `how`, which says how it is made, and of each file's
/// path, size and modification time.
std::string cache_key(const std::vector<std::string>& files, const std::string& how);

/// Tokenises text files in memory.
std::shared_ptr<const TokenSource> tokenize_in_memory(const std::vector<std::string>& files,
                                                      const Tokenizer& tokenizer,
                                                      const TokenizeReport& report);

/// Opens the token file of these text files in `folder`; makes it first if it is missing or
/// damaged. Several processes may do so at once: each writes its own file, and the last one stays.
std::shared_ptr<const TokenSource> tokenize_cached(const std::vector<std::string>& files,
                                                   const Tokenizer& tokenizer,
                                                   const std::string& folder,
                                                   const TokenizeReport& report);

}  // namespace axonn
