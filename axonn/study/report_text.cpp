#include <algorithm>
#include <sstream>

#include <fmt/format.h>

#include "axonn/base/log.h"
#include "axonn/base/utf8.h"
#include "axonn/study/code_points.h"
#include "axonn/study/ranking.h"
#include "axonn/study/report.h"
#include "axonn/study/report_words.h"

namespace axonn {

namespace {

constexpr int kColumns = 100, kGap = 2;
constexpr int kMostLoss = 10, kMostGroup = 18;  // most columns of a name
constexpr int kPromptsAcross = 6;  // prompt lengths per table; more tables follow below
constexpr std::size_t kMostListed = 10;

using Row = std::vector<std::string>;

/// Lays out a table with columns as narrow as possible: the first `names` columns are aligned left,
/// the others right. No line ends with spaces.
std::string table(const std::vector<Row>& rows, std::size_t names) {
  std::vector<int> widths(rows.at(0).size());
  for (const Row& row : rows)
    for (std::size_t i = 0; i < row.size(); ++i)
      widths[i] = std::max(widths[i], columns_of(code_points(row[i])));
  std::string text;
  for (const Row& row : rows) {
    std::string line = "  ";
    for (std::size_t i = 0; i < row.size(); ++i) {
      const std::string blanks(widths[i] - columns_of(code_points(row[i])), ' ');
      line += i < names ? row[i] + blanks : blanks + row[i];
      line += std::string(kGap, ' ');
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + '\n';
  }
  return text;
}

std::string loss_name(const std::string& name) { return shortened(printable(name), kMostLoss); }
std::string group_name(const std::string& name) { return shortened(printable(name), kMostGroup); }

/// Wraps words into lines of at most kColumns, indented by `indent` spaces.
std::string wrapped(const std::string& words, int indent) {
  std::istringstream in(printable(words));
  std::string text, line;
  for (std::string word; in >> word;) {
    word = shortened(word, kColumns - indent);
    if (!line.empty() && indent + columns_of(code_points(line + ' ' + word)) > kColumns) {
      text += std::string(indent, ' ') + line + '\n';
      line.clear();
    }
    line += (line.empty() ? "" : " ") + word;
  }
  return line.empty() ? text : text + std::string(indent, ' ') + line + '\n';
}

/// The first columns of a row: the loss (not in an audit) and the group.
Row names_of(const MemorizationReport& report, const std::string& variant,
             const std::string& group) {
  return is_audit(report) ? Row{group_name(group)} : Row{loss_name(variant), group_name(group)};
}

std::string main_table(const MemorizationReport& report, const MemorizationSummary& summary) {
  const auto joined = [](Row row, const Row& more) {
    row.insert(row.end(), more.begin(), more.end());
    return row;
  };
  const std::string range = range_title(summary);
  const std::size_t blank = range.rfind(' ');
  std::vector<Row> rows = {
      joined(names_of(report, "", ""),
             {"", "exact", range.substr(0, blank), "longest", "tokens", "edit", "loss"}),
      joined(names_of(report, "loss", "group"),
             {"docs", "match %", range.substr(blank + 1), "run", "right %", "distance", "nats"})};
  for (const RecitationCell& cell : summary.cells) {
    if (cell.prompt != summary.longest_prompt()) continue;
    Row row = names_of(report, summary.variants[cell.variant].name, report.groups[cell.group]);
    row.push_back(format_count(cell.documents));
    rows.push_back(joined(row, figures_of(cell)));
  }
  return table(rows, names_of(report, "", "").size());
}

/// Exact matches by prompt length, in several tables if one would be too wide.
std::string prompt_tables(const MemorizationReport& report, const MemorizationSummary& summary) {
  std::string text = "\nexact match % by tokens of the prompt\n";
  for (std::size_t first = 0; first < summary.prompts.size(); first += kPromptsAcross) {
    const std::size_t end = std::min(summary.prompts.size(), first + kPromptsAcross);
    Row titles = names_of(report, "loss", "group");
    for (std::size_t i = first; i < end; ++i)
      titles.push_back(prompt_text(report.prompt_lengths[summary.prompts[i]]));
    std::vector<Row> rows = {titles};
    for (std::int64_t variant = 0; variant < std::ssize(summary.variants); ++variant)
      for (std::int64_t group = 0; group < std::ssize(report.groups); ++group) {
        Row row = names_of(report, summary.variants[variant].name, report.groups[group]);
        for (std::size_t i = first; i < end; ++i)
          row.push_back(percent_text(summary.at(variant, group, summary.prompts[i])));
        rows.push_back(row);
      }
    text += table(rows, names_of(report, "", "").size());
  }
  return text;
}

/// The figures of the runs by loss, without empty columns.
std::string runs_table(const MemorizationReport& report, const MemorizationSummary& summary) {
  std::vector<Row> rows = {
      {"loss", "trials", "validation loss", "tokens kept %", "training", "testing"}};
  for (const VariantSummary& variant : summary.variants) {
    const auto spread = [&](const std::optional<TrialSpread>& value, int digits) {
      return value ? spread_text(*value, digits) : "";
    };
    const auto duration = [](double seconds) {
      return seconds > 0 ? format_duration(seconds) : "";
    };
    rows.push_back({loss_name(variant.name), format_count(variant.trials),
                    spread(variant.validation_loss, 3), spread(variant.kept_percent, 1),
                    duration(variant.train_seconds), duration(variant.test_seconds)});
  }
  for (std::size_t i = rows[0].size(); i-- > 0;) {
    const bool empty =
        std::all_of(rows.begin() + 1, rows.end(), [&](const Row& row) { return row[i].empty(); });
    for (Row& row : rows)
      if (empty) row.erase(row.begin() + static_cast<std::ptrdiff_t>(i));
  }
  return "\n" + table(rows, is_audit(report) ? 0 : 1);
}

std::string listed(const MemorizationReport& report) {
  std::string text = "\nmost recited documents\n";
  const std::vector<RankedRecitation> ranked = most_recited(report, {.variant = ""});
  for (std::size_t i = 0; i < std::min(ranked.size(), kMostListed); ++i) {
    const Recitation& r = *ranked[i].recitation;
    const std::string facts =
        fmt::format("{} of {} tokens in a run{}", r.longest_run, report.suffix_tokens,
                    report.prompt_lengths.size() == 1
                        ? ""
                        : ", prompt: " + prompt_text(report.prompt_lengths[r.prompt]));
    const auto line = [](const char* what, const std::string& shown) {
      return fmt::format("      {:<9}{}\n", what, shortened(printable(shown), kColumns - 15));
    };
    text += fmt::format("  {:>2}  {}\n", i + 1,
                        shortened(printable(document_text(report, r.document)), kColumns - 6));
    text += fmt::format("      {}: {}\n", group_name(report.groups[r.group]), facts);
    text += line("truth", r.truth) + line("written", r.exact ? "the same" : r.written);
  }
  return text;
}

}  // namespace

std::string to_text(const MemorizationReport& report) {
  const MemorizationSummary summary = summarize(report);
  std::string text = wrapped(report.title + ": " + report.model, 0);
  for (const std::string& note : report.notes) text += wrapped(note, 2);
  text += '\n';
  if (summary.cells.empty()) return text + "Nothing was recited.\n";
  text += wrapped(headline(report, summary, {}), 0) + '\n';
  text += main_table(report, summary) + runs_table(report, summary);
  if (summary.prompts.size() > 1) text += prompt_tables(report, summary);
  return is_audit(report) ? text + listed(report) : text;
}

}  // namespace axonn
