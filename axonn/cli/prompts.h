#pragma once

#include <string>
#include <vector>

namespace axonn {

/// Returns the prompts in `texts`, with "-" replaced by all of standard input, followed by those in
/// `file`, if its name is not empty. A .jsonl file has one JSON object with "prompt" or "text" per
/// line, any other file one prompt per line. Skips empty lines.
/// Throws UsageError, naming the file and the line.
std::vector<std::string> read_prompts(std::vector<std::string> texts, const std::string& file);

}  // namespace axonn
