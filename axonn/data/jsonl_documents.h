#pragma once

#include <memory>
#include <string>
#include <vector>

#include "axonn/data/documents.h"
#include "axonn/data/jsonl.h"
#include "axonn/data/tokenize.h"

namespace axonn {

/// What a JSONL file's first line is. Errors: UsageError, as parse_example(), or if it has none.
Example::Kind kind_of_examples(const std::string& file);

/// The documents of JSONL files, a line each, in order; empty lines are skipped. cache_folder:
/// where they are kept in a file and found again (as text is, token_cache.h); "": in memory. Lines
/// are encoded by all cores; memory: some times 8 MB a core. Errors: UsageError, with "FILE:LINE",
/// as parse_example() and ExampleEncoder::encode(), and where a line is of another kind than the
/// first.
std::shared_ptr<const Documents> encode_examples(const std::vector<std::string>& files,
                                                 const ExampleEncoder& encoder,
                                                 const std::string& cache_folder,
                                                 const TokenizeReport& report);

}  // namespace axonn
