#pragma once

#include <memory>
#include <string>
#include <vector>

#include "axonn/data/documents.h"
#include "axonn/data/jsonl.h"
#include "axonn/data/tokenize.h"

namespace axonn {

/// The kind of a JSONL file's first example. Throws UsageError as parse_example() does, or if there
/// is no example.
Example::Kind kind_of_examples(const std::string& file);

/// Encodes the lines of JSONL files as documents, one per line, in order; skips empty lines.
/// cache_folder: a folder whose files keep the documents for later runs, as for text
/// (token_cache.h);
/// "": in memory. Encodes with all cores; memory: a few times 8 MB per core. Throws UsageError,
/// with "FILE:LINE", as parse_example() and ExampleEncoder::encode() do, and if a line is of
/// another kind than the first.
std::shared_ptr<const Documents> encode_examples(const std::vector<std::string>& files,
                                                 const ExampleEncoder& encoder,
                                                 const std::string& cache_folder,
                                                 const TokenizeReport& report);

}  // namespace axonn
