#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace axonn {

/// The files that the paths name, in order. A folder stands for every .txt file in it and below, a
/// pattern (* ? [) for its matches; both are sorted by name.
/// Throws UsageError if a path names nothing.
std::vector<std::string> text_files(const std::vector<std::string>& paths);

/// The files or prefixes that a pattern matches, sorted; for a path without a pattern, the path.
/// Throws UsageError if the pattern matches nothing.
std::vector<std::string> expand_pattern(const std::string& path);

enum class CutAt { space, space_or_newline };

/// The first place at or after `wanted` where most tokenizers can cut the text without changing its
/// tokens (Tokenizer::cut() is exact): between two visible ASCII characters that are separated by
/// one space or newline. A space goes to the piece after the cut, a newline to the piece before it.
/// Returns text.size() if there is no such place.
std::size_t safe_cut(std::string_view text, std::size_t wanted, CutAt at = CutAt::space_or_newline);

}  // namespace axonn
