#include <algorithm>

#include <fmt/format.h>

#include "axonn/base/log.h"
#include "axonn/study/html_parts.h"
#include "axonn/study/html_text.h"
#include "axonn/study/report_words.h"

namespace axonn {

namespace {

std::string head(const std::vector<std::string>& titles, std::size_t names) {
  std::string row = "<thead><tr>";
  for (std::size_t i = 0; i < titles.size(); ++i)
    row +=
        fmt::format("<th scope=\"col\"{}>{}</th>", i < names ? " class=\"name\"" : "", titles[i]);
  return row + "</tr></thead>\n";
}

std::string cells(const std::vector<std::string>& values) {
  std::string row;
  for (const std::string& value : values) row += fmt::format("<td>{}</td>", value);
  return row;
}

std::string row_of(const PageData& data, const RecitationCell& cell) {
  std::string row = fmt::format("<tr><th scope=\"row\"><a href=\"#{}\">{}</a></th>",
                                passages_id(cell.group), escaped(data.report.groups[cell.group]));
  if (data.summary.prompts.size() > 1)
    row += cells({prompt_text(data.report.prompt_lengths[cell.prompt])});
  return row + cells({format_count(cell.documents)}) + cells(figures_of(cell)) + "</tr>\n";
}

}  // namespace

std::string cells_table(const PageData& data) {
  const bool prompts = data.summary.prompts.size() > 1;
  std::vector<std::string> titles = {
      "Group",       "Documents",           "Exact match\u00a0%", range_title(data.summary),
      "Longest run", "Tokens right\u00a0%", "Edit distance",      "Loss, nats a\u00a0token"};
  titles[3][0] = titles[3][0] == 'r' ? 'R' : titles[3][0];
  if (prompts) titles.insert(titles.begin() + 1, "Prompt");
  std::string html = "<div class=\"wide\"><table>\n" + head(titles, 1);
  for (std::int64_t v = 0; v < data.losses(); ++v) {
    html += "<tbody>\n";
    if (!data.loss(v).empty())
      html += fmt::format("<tr><th class=\"loss\" scope=\"rowgroup\" colspan=\"{}\">{}</th></tr>\n",
                          titles.size(), escaped(loss_text(data.loss(v))));
    for (std::int64_t group = 0; group < data.groups(); ++group)
      for (const std::int64_t prompt : data.summary.prompts)
        html += row_of(data, data.summary.at(v, group, prompt));
    html += "</tbody>\n";
  }
  return html + "</table></div>\n";
}

std::string runs_table(const PageData& data) {
  std::vector<std::vector<std::string>> rows = {
      {"Loss", "Trial", "Seed", "Validation loss", "Tokens kept %", "Training", "Testing"}};
  for (const RecitationRun& run : data.report.runs) {
    const auto duration = [](double seconds) {
      return seconds > 0 ? format_duration(seconds) : "";
    };
    rows.push_back({escaped(run.variant), format_count(run.trial), fmt::to_string(run.seed),
                    run.validation_loss ? fmt::format("{:.3f}", *run.validation_loss) : "",
                    run.kept_fraction ? fmt::format("{:.1f}", 100 * *run.kept_fraction) : "",
                    duration(run.train_seconds), duration(run.test_seconds)});
  }
  for (std::size_t i = rows[0].size(); i-- > 0;)  // drops columns without values
    if (std::all_of(rows.begin() + 1, rows.end(), [&](auto& row) { return row[i].empty(); }))
      for (auto& row : rows) row.erase(row.begin() + static_cast<std::ptrdiff_t>(i));
  const bool named = rows[0].front() == "Loss";
  std::string html =
      "<div class=\"wide\"><table class=\"runs\">\n" + head(rows[0], 1) + "<tbody>\n";
  for (std::size_t i = 1; i < rows.size(); ++i) {
    const std::vector<std::string> rest(rows[i].begin() + 1, rows[i].end());
    html += fmt::format("<tr><th scope=\"row\">{}{}</th>{}</tr>\n", rows[i][0],
                        named ? " loss" : "", cells(rest));
  }
  return html + "</tbody></table></div>\n";
}

}  // namespace axonn
