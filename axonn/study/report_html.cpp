#include <fmt/format.h>

#include "axonn/base/log.h"
#include "axonn/study/aligned_text.h"
#include "axonn/study/html_parts.h"
#include "axonn/study/html_text.h"
#include "axonn/study/report.h"
#include "axonn/study/report_words.h"

namespace axonn {

namespace {

std::string notes(const MemorizationReport& report) {
  if (report.notes.empty()) return "";
  std::string html = "<ul class=\"notes\">\n";
  for (const std::string& note : report.notes) html += "<li>" + escaped(note) + "</li>\n";
  return html + "</ul>\n";
}

std::string bars_section(const PageData& data) {
  std::string whiskers = range_title(data.summary) == "95 % interval"
                             ? "whiskers show the 95 % interval (Wilson) of the share"
                         : range_title(data.summary) == "range over trials"
                             ? "whiskers show the range over trials"
                             : "whiskers show the range over trials, or the 95 % interval (Wilson) "
                               "where there is one trial";
  std::string prompt;
  if (data.summary.prompts.size() > 1)
    prompt = fmt::format(" Shown for the longest prompt ({}).",
                         prompt_text(data.report.prompt_lengths[data.summary.longest_prompt()]));
  return fmt::format(
      "<section>\n<h2>Exact match</h2>\n<p class=\"hint\">Share of documents for which the "
      "model writes all {} tokens exactly. Bars are means over trials; {}.{}</p>\n"
      "<figure>\n{}</figure>\n</section>\n",
      format_count(data.report.suffix_tokens), whiskers, prompt, bars_svg(data));
}

std::string curves_section(const PageData& data) {
  if (data.summary.prompts.size() < 2) return "";
  std::string html =
      "<section>\n<h2>By prompt length</h2>\n<p class=\"hint\">Exact match in percent of the "
      "documents, by the number of prompt tokens.</p>\n<div class=\"curves\">\n";
  for (std::int64_t v = 0; v < data.losses(); ++v) {
    const std::string loss = loss_text(data.loss(v));
    html += "<figure>\n" +
            (loss.empty() ? "" : "<figcaption>" + escaped(loss) + "</figcaption>\n") +
            curves_svg(data, v) + "</figure>\n";
  }
  return html + "</div>\n</section>\n";
}

std::string figures_section(const PageData& data) {
  return fmt::format(
      "<section>\n<h2>All figures</h2>\n{}<p class=\"hint\">Means over documents and trials. "
      "Longest run: tokens of the longest common run, of {}. Tokens right: share of positions with "
      "equal tokens. Edit distance: tokens inserted, deleted or replaced. Loss: of the "
      "document\u2019s own tokens.</p>\n</section>\n<section>\n<h2>Runs</h2>\n{}</section>\n",
      cells_table(data), format_count(data.report.suffix_tokens), runs_table(data));
}

std::string passages_section(const PageData& data) {
  return fmt::format(
      "<section>\n<h2>Passages</h2>\n<p class=\"hint\">How each document continues and what the "
      "model writes, best recitations first. Of each document only the best recitation is shown. "
      "<mark>Marked and underlined</mark>: common text, in runs of {} characters or more.</p>\n{}"
      "</section>\n",
      kShortestCommonRun, passages(data));
}

}  // namespace

std::string html_page(const MemorizationReport& report) {
  const MemorizationSummary summary = summarize(report);
  const PageData data{.report = report, .summary = summary};
  std::string html = fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src "
      "'unsafe-inline'\">\n<title>{}: {}</title>\n<style>{}</style>\n</head>\n<body>\n"
      "<header>\n<h1>{}</h1>\n<p class=\"model\">{}</p>\n",
      escaped(report.title), escaped(report.model), html_style(), escaped(report.title),
      escaped(report.model));
  std::string lede = summary.cells.empty()
                         ? "Nothing was recited."
                         : headline(report, summary, {.open = "\u201c", .close = "\u201d"});
  for (std::size_t at = 0; (at = lede.find(" %", at)) != std::string::npos;)
    lede.replace(at, 1, "\u00a0");  // keeps a number and its % on one line
  html +=
      fmt::format("<p class=\"lede\">{}</p>\n{}</header>\n<main>\n", escaped(lede), notes(report));
  if (!summary.cells.empty())
    html +=
        bars_section(data) + curves_section(data) + figures_section(data) + passages_section(data);
  return html + "</main>\n</body>\n</html>\n";
}

}  // namespace axonn
