#pragma once

#include <memory>
#include <string>
#include <vector>

#include "axonn/data/token_source.h"
#include "axonn/data/tokenize.h"

namespace axonn {

/// Of what is made of files in a way that `how` says: a hash of it and of each file's path, size
/// and time of change.
std::string cache_key(const std::vector<std::string>& files, const std::string& how);

/// Errors: UsageError.
void make_cache_folder(const std::string& folder);

/// The tokens of text files, in memory.
std::shared_ptr<const TokenSource> tokenize_in_memory(const std::vector<std::string>& files,
                                                      const Tokenizer& tokenizer,
                                                      const TokenizeReport& report);

/// The tokens of text files from a token file in `folder`, which is made if it is not there yet or
/// is damaged. Several processes may do so at once: each writes its own and the last one stays.
std::shared_ptr<const TokenSource> tokenize_cached(const std::vector<std::string>& files,
                                                   const Tokenizer& tokenizer,
                                                   const std::string& folder,
                                                   const TokenizeReport& report);

}  // namespace axonn
