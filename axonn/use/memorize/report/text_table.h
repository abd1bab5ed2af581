#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace axonn {

using TextRow = std::vector<std::string>;

inline constexpr int kTableColumns = 100;  ///< of the terminal

/// Lays out a table with columns as narrow as possible: the first `names` columns are aligned left,
/// the others right. No line ends with spaces. Rows must be equally long.
std::string text_table(const std::vector<TextRow>& rows, std::size_t names);
/// A table, or several, each with the first `names` columns, if one would be too wide.
std::string text_tables(const std::vector<TextRow>& rows, std::size_t names);

}  // namespace axonn
