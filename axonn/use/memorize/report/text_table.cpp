#include "axonn/use/memorize/report/text_table.h"

#include <algorithm>

#include "axonn/foundation/base/utf8.h"

namespace axonn {

namespace {

constexpr int kGap = 2;

}  // namespace

std::string text_table(const std::vector<TextRow>& rows, std::size_t names) {
  std::vector<int> widths(rows.at(0).size());
  for (const TextRow& row : rows)
    for (std::size_t i = 0; i < row.size(); ++i)
      widths[i] = std::max(widths[i], utf8_columns(row[i]));
  std::string text;
  for (const TextRow& row : rows) {
    std::string line = "  ";
    for (std::size_t i = 0; i < row.size(); ++i) {
      const std::string blanks(widths[i] - utf8_columns(row[i]), ' ');
      line += i < names ? row[i] + blanks : blanks + row[i];
      line += std::string(kGap, ' ');
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + '\n';
  }
  return text;
}

std::string text_tables(const std::vector<TextRow>& rows, std::size_t names) {
  const auto width = [&](std::size_t column) {
    int most = 0;
    for (const TextRow& row : rows) most = std::max(most, utf8_columns(row[column]));
    return most + kGap;
  };
  int left = kTableColumns;
  for (std::size_t i = 0; i < names; ++i) left -= width(i);
  std::string text;
  for (std::size_t first = names, end = 0; first < rows[0].size(); first = end) {
    end = first + 1;
    for (int used = width(first); end < rows[0].size() && used + width(end) <= left; ++end)
      used += width(end);
    std::vector<TextRow> part;
    for (const TextRow& row : rows) {
      part.emplace_back(row.begin(), row.begin() + static_cast<std::ptrdiff_t>(names));
      part.back().insert(part.back().end(), row.begin() + static_cast<std::ptrdiff_t>(first),
                         row.begin() + static_cast<std::ptrdiff_t>(end));
    }
    text += text_table(part, names);
  }
  return text;
}

}  // namespace axonn
