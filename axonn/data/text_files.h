#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace axonn {

/// The files that the paths name, in order: a file is itself, a folder is every .txt below it and
/// a pattern (* ? [) whatever it matches, both sorted by name.
/// Errors: UsageError if a path names nothing.
std::vector<std::string> text_files(const std::vector<std::string>& paths);

/// The files or prefixes that a path with a pattern matches, sorted; a path without one is itself.
/// Errors: UsageError if the pattern matches nothing.
std::vector<std::string> expand_pattern(const std::string& path);

enum class CutAt { space, space_or_newline };

/// Where text may be cut, at or behind `wanted`, so that most tokenizers give the pieces the tokens
/// of the whole (Tokenizer::cut() knows): between two visible ASCII characters with one space or
/// newline between them, the space with what follows it and the newline with what it ends.
/// text.size() if there is no place.
std::size_t safe_cut(std::string_view text, std::size_t wanted, CutAt at = CutAt::space_or_newline);

}  // namespace axonn
