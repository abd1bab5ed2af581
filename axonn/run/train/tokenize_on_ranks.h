#pragma once

#include <string>
#include <vector>

#include "axonn/data/corpus/tokens/tokenize.h"
#include "axonn/ranks/comm/communicator.h"

namespace axonn {

/// tokenize_files() by all ranks of world: each encodes one of the parts of TokenizeOptions::part
/// into a file of its own beside the output, then rank 0 joins these. The output has the same bytes
/// for any number of ranks. Returns the same on all ranks; rank 0 reports progress. Collective.
///
/// The folder of the output must be on a file system that the ranks share. If a rank fails, all
/// throw AgreedError, and no temporary file is left. Faults in the arguments are UsageErrors.
TokenizeProgress tokenize_on_ranks(Communicator& world, const std::string& tokenizer,
                                   const std::vector<std::string>& text, const std::string& output,
                                   const TokenizeOptions& options = {});

}  // namespace axonn
