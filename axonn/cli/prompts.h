#pragma once

#include <string>
#include <vector>

namespace axonn {

/// The prompts that a command was given: those of `texts`, "-" standing for all of the standard
/// input, then those of `file`, if one is named: JSON objects with "prompt" or "text", one a line,
/// where it ends in .jsonl, else a prompt a line. Empty lines are passed over.
/// Errors: UsageError names the file and the line.
std::vector<std::string> read_prompts(std::vector<std::string> texts, const std::string& file);

}  // namespace axonn
