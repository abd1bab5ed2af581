#include "axonn/study/report_words.h"

#include <algorithm>

#include <fmt/format.h>

#include "axonn/base/log.h"

namespace axonn {

namespace {

/// The tested cells of one group at the longest prompt, one per variant.
std::vector<RecitationCell> cells_of(const MemorizationSummary& summary, std::int64_t group) {
  std::vector<RecitationCell> cells;
  for (const RecitationCell& cell : summary.cells)
    if (cell.group == group && cell.prompt == summary.longest_prompt() && cell.trials > 0)
      cells.push_back(cell);
  return cells;
}

double most_of(const std::vector<RecitationCell>& cells) {
  double most = 0;
  for (const RecitationCell& cell : cells) most = std::max(most, cell.exact_percent.mean);
  return most;
}

/// "47.0 % (42.0 to 51.5 % over 3 trials)".
std::string share(const RecitationCell& cell) {
  const std::string range = cell.trials > 1
                                ? fmt::format("{} % over {} trials", range_text(cell), cell.trials)
                                : fmt::format("95 % interval {} %", range_text(cell));
  return fmt::format("{} % ({})", percent_text(cell), range);
}

std::string next_tokens(const MemorizationReport& report) {
  return report.suffix_tokens == 1
             ? "exactly the next token"
             : fmt::format("exactly the next {} tokens", format_count(report.suffix_tokens));
}

/// "Given 64 tokens of a document, "; "" if the whole prompt is the only length.
std::string given(const MemorizationReport& report, const MemorizationSummary& summary) {
  const std::int64_t length = report.prompt_lengths.at(summary.longest_prompt());
  if (length == kWholePrompt) return summary.prompts.size() == 1 ? "" : "Given the whole prompt, ";
  return fmt::format("Given {} token{} of a document, ", format_count(length),
                     length == 1 ? "" : "s");
}

std::string begun(std::string sentence) {
  if (sentence[0] >= 'a' && sentence[0] <= 'z') sentence[0] += 'A' - 'a';
  return sentence;
}

std::string none_recited(const MemorizationReport& report, const MemorizationSummary& summary) {
  std::int64_t documents = 0, longest = 0;
  for (std::int64_t group = 0; group < std::ssize(report.groups); ++group) {
    std::int64_t most = 0;
    for (const RecitationCell& cell : cells_of(summary, group))
      most = std::max(most, cell.documents);
    documents += most;
  }
  for (const RecitationRun& run : report.runs)
    for (const Recitation& r : run.recitations) longest = std::max(longest, r.longest_run);
  if (documents == 0) return "Nothing was recited.";
  return begun(given(report, summary) +
               fmt::format("the model writes {} for none of {} documents; the longest run of "
                           "tokens that it reproduces is {} of {}.",
                           next_tokens(report), format_count(documents), longest,
                           report.suffix_tokens));
}

}  // namespace

std::string percent_text(const RecitationCell& cell) {
  return cell.trials > 0 ? fmt::format("{:.1f}", cell.exact_percent.mean) : "-";
}

Interval range_of(const RecitationCell& cell) {
  if (cell.trials == 1) return cell.exact_interval;
  return {.low = cell.exact_percent.minimum, .high = cell.exact_percent.maximum};
}

std::string range_text(const RecitationCell& cell) {
  if (cell.trials == 0) return "-";
  return fmt::format("{:.1f} to {:.1f}", range_of(cell).low, range_of(cell).high);
}

std::string range_title(const MemorizationSummary& summary) {
  const auto once = std::ranges::count(summary.cells, 1, &RecitationCell::trials),
             none = std::ranges::count(summary.cells, 0, &RecitationCell::trials);
  if (once == 0) return "range over trials";
  return once + none == std::ssize(summary.cells) ? "95 % interval" : "range or interval";
}

std::vector<std::string> figures_of(const RecitationCell& cell) {
  if (cell.trials == 0) return {"-", "-", "-", "-", "-", "-"};
  return {percent_text(cell),
          range_text(cell),
          fmt::format("{:.1f}", cell.longest_run),
          fmt::format("{:.1f}", 100 * cell.token_accuracy),
          fmt::format("{:.1f}", cell.edit_distance),
          fmt::format("{:.3f}", cell.loss)};
}

std::string spread_text(const TrialSpread& spread, int digits) {
  const auto text = [&](double value) { return fmt::format("{:.{}f}", value, digits); };
  const std::string least = text(spread.minimum), most = text(spread.maximum);
  if (least == most) return text(spread.mean);
  return fmt::format("{} ({} to {})", text(spread.mean), least, most);
}

std::string prompt_text(std::int64_t length) {
  return length == kWholePrompt ? "whole" : format_count(length);
}

std::string loss_text(const std::string& variant) {
  return variant.empty() ? "" : variant + " loss";
}

bool is_audit(const MemorizationReport& report) {
  return std::ranges::all_of(report.runs,
                             [](const RecitationRun& run) { return run.variant.empty(); });
}

std::string document_text(const MemorizationReport& report, std::int64_t document) {
  const bool named =
      document < std::ssize(report.document_names) && !report.document_names[document].empty();
  return named ? report.document_names[document] : fmt::format("document {}", document);
}

std::string headline(const MemorizationReport& report, const MemorizationSummary& summary,
                     const Quotes& quotes) {
  std::vector<RecitationCell> most, least;  // groups with recitations
  for (std::int64_t group = 0; group < std::ssize(report.groups); ++group) {
    const std::vector<RecitationCell> cells = cells_of(summary, group);
    if (cells.empty()) continue;
    if (most.empty() || most_of(cells) > most_of(most)) most = cells;
    if (least.empty() || most_of(cells) < most_of(least)) least = cells;
  }
  if (most_of(most) == 0) return none_recited(report, summary);
  const auto group = [&](const std::vector<RecitationCell>& cells) {
    return quotes.open + report.groups[cells.front().group] + quotes.close;
  };
  const auto name = [&](const RecitationCell& cell) { return summary.variants[cell.variant].name; };
  std::string text = given(report, summary);
  if (!name(most[0]).empty())
    text += fmt::format("after training with the {} loss ", name(most[0]));
  text += fmt::format("the model writes {} for {} of the documents in {}", next_tokens(report),
                      share(most[0]), group(most));
  for (std::size_t i = 1; i < most.size(); ++i)
    text += fmt::format("; with the {} loss for {}", name(most[i]), share(most[i]));
  if (least[0].group != most[0].group) {
    text += fmt::format("; in {}, for ", group(least));
    for (std::size_t i = 0; i < least.size(); ++i)
      text += fmt::format("{}{} %",
                          i == 0                  ? ""
                          : i + 1 == least.size() ? " and "
                                                  : ", ",
                          percent_text(least[i]));
  }
  return begun(text + ".");
}

}  // namespace axonn
