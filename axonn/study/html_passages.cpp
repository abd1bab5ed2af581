#include <algorithm>

#include <fmt/format.h>

#include "axonn/base/log.h"
#include "axonn/study/aligned_text.h"
#include "axonn/study/code_points.h"
#include "axonn/study/html_parts.h"
#include "axonn/study/html_text.h"
#include "axonn/study/ranking.h"
#include "axonn/study/report_words.h"

namespace axonn {

namespace {

// Passages per group and loss, shown open and folded. The JSON report has all.
constexpr std::size_t kOpen = 6, kFolded = 44;
// Most characters shown; 50 tokens are about 250. Aligning costs time and memory by the square.
constexpr std::size_t kMostBefore = 240, kMostShown = 2000;

std::string marked(const std::vector<TextPiece>& pieces, bool cut) {
  std::string html;
  for (const TextPiece& piece : pieces)
    html += piece.common ? "<mark>" + escaped(piece.points) + "</mark>" : escaped(piece.points);
  return html + (cut ? " \u2026" : "");
}

/// The end of the prompt; starts at a word if it had to be cut.
std::string end_of(const std::string& before) {
  std::u32string points = code_points(before);
  points.erase(0, points.find_first_not_of(U' '));
  if (points.size() <= kMostBefore) return escaped(points);
  points.erase(0, points.size() - kMostBefore);
  const std::size_t blank = points.find(U' ');
  if (blank < kMostBefore / 4) points.erase(0, blank + 1);
  return "\u2026\u00a0" + escaped(points);
}

std::string facts(const PageData& data, const RankedRecitation& one) {
  const Recitation& r = *one.recitation;
  const std::string plain =
      r.exact
          ? fmt::format("<strong class=\"exact\">\u2713 all {} tokens</strong>",
                        format_count(data.report.suffix_tokens))
          : fmt::format(
                "<strong>{} of {} tokens in a run</strong> \u00b7 {:.0f} % of tokens "
                "right \u00b7 edit distance {}",
                r.longest_run, data.report.suffix_tokens, 100 * r.token_accuracy, r.edit_distance);
  std::string html = plain + fmt::format(" \u00b7 loss {:.3f}", r.loss);
  if (data.summary.prompts.size() > 1)
    html += " \u00b7 prompt: " + prompt_text(data.report.prompt_lengths[r.prompt]);
  const bool trials = std::ranges::any_of(
      data.summary.variants, [](const VariantSummary& variant) { return variant.trials > 1; });
  return html + (trials ? fmt::format(" \u00b7 trial {}", one.run->trial) : "");
}

std::string passage(const PageData& data, const RankedRecitation& one) {
  const Recitation& r = *one.recitation;
  std::u32string truth = code_points(r.truth), written = code_points(r.written);
  if (truth.starts_with(U' ') && written.starts_with(U' ')) {  // the space before the first word
    truth.erase(0, 1);
    written.erase(0, 1);
  }
  const bool truth_cut = truth.size() > kMostShown, written_cut = written.size() > kMostShown;
  truth.resize(std::min(truth.size(), kMostShown));
  written.resize(std::min(written.size(), kMostShown));
  const AlignedTexts texts = aligned(truth, written);
  return fmt::format(
      "<article class=\"passage\">\n<header><h5>{}</h5><p class=\"facts\">{}</p></header>\n"
      "<div class=\"before\"><p class=\"what\">End of the prompt</p><p class=\"text\" "
      "dir=\"auto\">{}</p></div>\n<div class=\"pair\"><div><p class=\"what\">The document</p><p "
      "class=\"text\" dir=\"auto\">{}</p></div><div><p class=\"what\">The model</p><p "
      "class=\"text\" dir=\"auto\">{}</p></div></div>\n</article>\n",
      escaped(document_text(data.report, r.document)), facts(data, one), end_of(r.before),
      marked(texts.first, truth_cut), marked(texts.second, written_cut));
}

std::string passages_of(const PageData& data, const RankingOptions& options) {
  const std::vector<RankedRecitation> ranked = most_recited(data.report, options);
  if (ranked.empty()) return "<p class=\"soft\">No document was tested.</p>\n";
  std::string html;
  const std::size_t open = std::min(ranked.size(), kOpen),
                    all = std::min(ranked.size(), kOpen + kFolded);
  for (std::size_t i = 0; i < open; ++i) html += passage(data, ranked[i]);
  if (all == open) return html;
  html += fmt::format("<details><summary>{} more of {} documents</summary>\n", all - open,
                      format_count(std::ssize(ranked)));
  for (std::size_t i = open; i < all; ++i) html += passage(data, ranked[i]);
  return html + "</details>\n";
}

}  // namespace

std::string passages_id(std::int64_t group) { return fmt::format("group-{}", group); }

std::string passages(const PageData& data) {
  std::string html;
  for (std::int64_t group = 0; group < data.groups(); ++group) {
    html += fmt::format("<section class=\"group\">\n<h3 id=\"{}\">{}</h3>\n", passages_id(group),
                        escaped(data.report.groups[group]));
    for (std::int64_t v = 0; v < data.losses(); ++v) {
      const RecitationCell& cell = data.longest(v, group);
      const std::string loss = loss_text(data.loss(v));
      const std::string share =
          cell.trials == 0
              ? ""
              : fmt::format("<span class=\"share\">{} % exact</span>", percent_text(cell));
      html += fmt::format("<h4>{} {}</h4>\n",
                          loss.empty() ? "Most recited documents" : escaped(loss), share) +
              passages_of(data, {.variant = data.loss(v), .group = group});
    }
    html += "</section>\n";
  }
  return html;
}

}  // namespace axonn
