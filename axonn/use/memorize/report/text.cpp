#include "axonn/use/memorize/report/text.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <iterator>
#include <map>
#include <set>
#include <span>
#include <sstream>

#include <fmt/format.h>

#include "axonn/foundation/base/log.h"
#include "axonn/foundation/base/utf8.h"
#include "axonn/use/memorize/report/text_names.h"
#include "axonn/use/memorize/report/text_scores.h"
#include "axonn/use/memorize/report/text_table.h"

namespace axonn {

namespace {

constexpr int kColumns = kTableColumns;
constexpr std::size_t kMostListed = 10;

using Row = TextRow;

/// "47.0", or "-" for a cell without recitations.
std::string percent_text(const RecitationCell& cell) {
  return cell.trials > 0 ? fmt::format("{:.1f}", cell.exact_percent.mean) : "-";
}

/// The range over several trials, or the 95 % interval of one trial.
PercentRange range_of(const RecitationCell& cell) {
  if (cell.trials == 1) return cell.exact_interval;
  return {.low = cell.exact_percent.minimum, .high = cell.exact_percent.maximum};
}

/// "42.0 to 51.5".
std::string range_text(const RecitationCell& cell) {
  if (cell.trials == 0) return "-";
  return fmt::format("{:.1f} to {:.1f}", range_of(cell).low, range_of(cell).high);
}

/// The title of a column of range_text(): "range over trials", "95 % interval", or "range or
/// interval" if the cells differ.
std::string range_title(const MemorizationSummary& summary) {
  const auto once = std::ranges::count(summary.cells, 1, &RecitationCell::trials),
             none = std::ranges::count(summary.cells, 0, &RecitationCell::trials);
  if (once == 0) return "range over trials";
  return once + none == std::ssize(summary.cells) ? "95 % interval" : "range or interval";
}

/// A row of figures: exact match, its range, longest run, token accuracy in percent, edit distance
/// and loss.
Row figures_of(const RecitationCell& cell) {
  if (cell.trials == 0) return {"-", "-", "-", "-", "-", "-"};
  return {percent_text(cell),
          range_text(cell),
          fmt::format("{:.1f}", cell.longest_run),
          fmt::format("{:.1f}", 100 * cell.token_accuracy),
          fmt::format("{:.1f}", cell.edit_distance),
          fmt::format("{:.3f}", cell.loss)};
}

/// "2.875", or "2.875 (2.750 to 3.000)" if trials differ.
std::string spread_text(const TrialSpread& spread, int digits) {
  const auto text = [&](double value) { return fmt::format("{:.{}f}", value, digits); };
  const std::string least = text(spread.minimum), most = text(spread.maximum);
  if (least == most) return text(spread.mean);
  return fmt::format("{} ({} to {})", text(spread.mean), least, most);
}

/// "64", or "whole" for kWholePrompt.
std::string prompt_text(std::int64_t length) {
  return length == kWholePrompt ? "whole" : format_count(length);
}

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

std::string none_recited(const MemorizationReport& report, const MemorizationSummary& summary,
                         const std::vector<std::vector<RecitationCell>>& groups) {
  std::int64_t documents = 0, longest = 0;
  const bool others = groups.size() > 1;  // than the control
  for (const auto& cells : groups)
    if (!others || !report.is_control(cells.front().group))
      documents += std::ranges::max(cells, {}, &RecitationCell::documents).documents;
  for (const RecitationRun& run : report.runs)
    for (const Recitation& r : run.recitations)
      if ((!others || !report.is_control(r.group)) &&
          report.suffix_of(r.prompt) == report.suffix_tokens)
        longest = std::max(longest, r.longest_run);
  return begun(given(report, summary) +
               fmt::format("the model writes {} for none of {} documents; the longest run of "
                           "tokens that it reproduces is {} of {}.",
                           next_tokens(report), format_count(documents), longest,
                           report.suffix_tokens));
}

/// Wraps words into lines of at most kColumns, indented by `indent` spaces.
std::string wrapped(const std::string& words, int indent) {
  std::istringstream in(printable(words));
  std::string text, line;
  for (std::string word; in >> word;) {
    word = shortened(word, kColumns - indent);
    if (!line.empty() && indent + utf8_columns(line + ' ' + word) > kColumns) {
      text += std::string(indent, ' ') + line + '\n';
      line.clear();
    }
    line += (line.empty() ? "" : " ") + word;
  }
  return line.empty() ? text : text + std::string(indent, ' ') + line + '\n';
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
  return text_table(rows, names_of(report, "", "").size());
}

/// Exact matches by prompts, each of which has a title.
std::string prompt_tables(const MemorizationReport& report, const MemorizationSummary& summary,
                          std::span<const std::int64_t> prompts, const Row& titles) {
  std::vector<Row> rows{names_of(report, "loss", "group")};
  std::ranges::copy(titles, std::back_inserter(rows[0]));
  for (std::int64_t variant = 0; variant < std::ssize(summary.variants); ++variant)
    for (std::int64_t group = 0; group < std::ssize(report.groups); ++group) {
      Row& row =
          rows.emplace_back(names_of(report, summary.variants[variant].name, report.groups[group]));
      for (const std::int64_t prompt : prompts)
        row.push_back(percent_text(summary.at(variant, group, prompt)));
    }
  return text_tables(rows, names_of(report, "", "").size());
}

/// "with a prompt of 32 tokens, by tokens of the suffix".
std::string sweep_title(const MemorizationReport& report, const PromptSweep& sweep) {
  const std::int64_t prompt = sweep.prompts.front(), length = report.prompt_lengths[prompt];
  if (sweep.by == PromptSweep::By::length) return "by tokens of the prompt";
  const std::string with = length == kWholePrompt
                               ? "with the whole prompt"
                               : fmt::format("with a prompt of {} tokens", format_count(length));
  if (sweep.by == PromptSweep::By::suffix) return with + ", by tokens of the suffix";
  const std::int64_t suffix = report.suffix_of(prompt);
  return with +
         (suffix == report.suffix_tokens
              ? ""
              : fmt::format(" and a suffix of {}", format_count(suffix))) +
         ", by tokens of the document before it";
}

/// Exact matches by lengths of prompts and suffixes, and by offsets.
std::string sweep_tables(const MemorizationReport& report, const MemorizationSummary& summary) {
  std::string text;
  for (const PromptSweep& sweep : summary.sweeps) {
    Row titles;
    for (const std::int64_t prompt : sweep.prompts)
      titles.push_back(sweep.by == PromptSweep::By::length
                           ? prompt_text(report.prompt_lengths[prompt])
                           : format_count(sweep.by == PromptSweep::By::suffix
                                              ? report.suffix_of(prompt)
                                              : report.offset_of(prompt)));
    text += "\nexact match % " + sweep_title(report, sweep) + "\n" +
            prompt_tables(report, summary, sweep.prompts, titles);
  }
  return text;
}

/// The figures of the runs by variant, without empty columns.
std::string runs_table(const MemorizationReport& report, const MemorizationSummary& summary) {
  std::vector<Row> rows = {{report.by_loss ? "loss" : "training", "trials", "validation loss",
                            "tokens kept %", "training after warm-up", "testing"}};
  for (const VariantSummary& variant : summary.variants) {
    const auto spread = [&](const std::optional<TrialSpread>& value, int digits) {
      return value ? spread_text(*value, digits) : "";
    };
    const auto duration = [](double seconds) {
      return seconds > 0 ? format_duration(seconds) : "";
    };
    rows.push_back({variant_name(variant.name, kMostTraining), format_count(variant.trials),
                    spread(variant.validation_loss, 3), spread(variant.kept_percent, 1),
                    duration(variant.train_seconds), duration(variant.test_seconds)});
  }
  for (std::size_t i = rows[0].size(); i-- > 0;) {
    const bool empty =
        std::all_of(rows.begin() + 1, rows.end(), [&](const Row& row) { return row[i].empty(); });
    for (Row& row : rows)
      if (empty) row.erase(row.begin() + static_cast<std::ptrdiff_t>(i));
  }
  return "\n" + text_table(rows, is_audit(report) ? 0 : 1);
}

/// The first columns of a table by the number of samples, and a title for each of these.
Row tries_titles(const MemorizationReport& report) {
  Row titles = names_of(report, "loss", "group");
  for (const double n : report.extraction.n)
    titles.push_back(format_count(static_cast<std::int64_t>(n)));
  return titles;
}

/// The shares of suffixes that are extracted with a chance in n tries, a table for each policy.
/// Empty without records.
std::string extraction_tables(const MemorizationReport& report,
                              const MemorizationSummary& summary) {
  const double chance = report.extraction.shown_p();
  std::map<std::string, std::vector<Row>> of_policy;
  std::vector<std::string> order;
  for (const ExtractionRate& rate :
       extraction_rates(suffix_probabilities(report, summary), report.extraction)) {
    if (rate.p != chance || rate.prompt != summary.longest_prompt()) continue;
    std::vector<Row>& rows = of_policy[rate.policy];
    if (rows.empty()) {
      order.push_back(rate.policy);
      rows.push_back(tries_titles(report));
    }
    if (rate.n == report.extraction.n.front())
      rows.push_back(
          names_of(report, summary.variants[rate.variant].name, report.groups[rate.group]));
    rows.back().push_back(fmt::format("{:.1f}", 100 * static_cast<double>(rate.extractable) /
                                                    static_cast<double>(rate.suffixes)));
  }
  std::string text;
  for (const std::string& policy : order)
    text += fmt::format("\nwritten with probability {} or more in n samples ({}), %, by n\n{}",
                        chance, printable(policy),
                        text_tables(of_policy[policy], names_of(report, "", "").size()));
  return text;
}

/// Bounds of the shares of suffixes of which n samples hold a text within a distance with a chance,
/// a table for each distance. Empty if none was asked for.
std::string near_tables(const MemorizationReport& report, const MemorizationSummary& summary) {
  std::map<std::int64_t, std::vector<Row>> of_distance;
  for (const NearRate& rate : near_rates(report, summary)) {
    if (rate.p != report.extraction.shown_p()) continue;
    std::vector<Row>& rows = of_distance[rate.epsilon];
    if (rows.empty()) rows.push_back(tries_titles(report));
    if (rate.n == report.extraction.n.front())
      rows.push_back(
          names_of(report, summary.variants[rate.variant].name, report.groups[rate.group]));
    const auto percent = [&](std::int64_t count) {
      return 100 * static_cast<double>(count) / static_cast<double>(rate.suffixes);
    };
    rows.back().push_back(
        rate.at_least == rate.at_most
            ? fmt::format("{:.1f}", percent(rate.at_least))
            : fmt::format("{:.0f}-{:.0f}", percent(rate.at_least), percent(rate.at_most)));
  }
  std::string text;
  for (const auto& [epsilon, rows] : of_distance)
    text +=
        fmt::format("\nthe same of texts within {} token{} of the suffix, %, by n\n{}", epsilon,
                    epsilon == 1 ? "" : "s", text_tables(rows, names_of(report, "", "").size()));
  return text;
}

/// How probable a text within a distance of a suffix is, the mean of each group. Empty if none was
/// asked for.
std::string near_mass_table(const MemorizationReport& report, const MemorizationSummary& summary) {
  std::vector<Row> rows{names_of(report, "loss", "group")};
  for (const char* title : {"within", "at least", "at most", "sampled", "95 %"})
    rows[0].push_back(title);
  for (const NearMass& mass : near_masses(report, summary)) {
    Row row = names_of(report, summary.variants[mass.variant].name, report.groups[mass.group]);
    const auto number = [](double value) { return fmt::format("{:.2g}", value); };
    row.insert(row.end(), {format_count(mass.epsilon), number(mass.low), number(mass.high)});
    const bool drawn = mass.samples > 0;
    row.push_back(
        drawn ? number(static_cast<double>(mass.found) / static_cast<double>(mass.samples)) : "-");
    row.push_back(drawn ? fmt::format("{:.2g} to {:.2g}", mass.interval.low, mass.interval.high)
                        : "-");
    rows.push_back(std::move(row));
  }
  if (rows.size() == 1) return "";
  return "\nprobability that a sample is within so many tokens of the suffix, mean of documents\n" +
         text_table(rows, names_of(report, "", "").size());
}

/// The shares of suffixes that are likelier than matched controls. Empty without controls.
std::string matched_table(const MemorizationReport& report, const MemorizationSummary& summary) {
  std::vector<Row> rows{names_of(report, "", ""), names_of(report, "loss", "group")};
  for (const char* title : {"", "alpha", "", "memorized", "and in 1,000"}) rows[0].push_back(title);
  for (const char* title : {"policy", "%", "controls", "%", "samples, %"}) rows[1].push_back(title);
  for (const MatchedRate& rate : matched_rates(report, summary)) {
    if (rate.prompt != summary.longest_prompt()) continue;
    Row row = names_of(report, summary.variants[rate.variant].name, report.groups[rate.group]);
    const auto percent = [&](std::int64_t count) {
      return fmt::format("{:.1f}",
                         100 * static_cast<double>(count) / static_cast<double>(rate.suffixes));
    };
    const bool measured = rate.memorized.has_value();
    row.insert(row.end(),
               {shortened(printable(rate.policy), kMostGroup), fmt::format("{}", 100 * rate.alpha),
                format_count(rate.controls), measured ? percent(*rate.memorized) : "too few",
                measured ? percent(rate.extractable) : "-"});
    rows.push_back(std::move(row));
  }
  if (rows.size() == 2) return "";
  return "\nlikelier than the suffixes of controls, of which a share of alpha would be\n" +
         text_table(rows, names_of(report, "", "").size() + 1);
}

/// "80-100 %, 3 paraphrases": how a group comes.
std::string part_text(const GroupDesign& design) {
  const std::string form = design.form();
  return fmt::format("{:.0f}-{:.0f} %{}", 100 * design.from, 100 * design.to,
                     form.empty() ? "" : ", " + form);
}

/// A figure of each group by variant and part of the steps, with a column for each number of times.
/// of: the text of a figure by the numbers of variant and group.
std::string dose_table(const MemorizationReport& report, const MemorizationSummary& summary,
                       const std::function<std::string(std::int64_t, std::int64_t)>& of) {
  std::set<std::int64_t> doses;
  std::vector<std::string> parts;
  const auto learned = [&](std::int64_t group) { return !report.is_control(group); };
  for (std::int64_t group = 0; group < std::ssize(report.groups); ++group) {
    if (!learned(group)) continue;
    doses.insert(report.group_epochs.at(group));
    const std::string part = part_text(report.group_designs.at(group));
    if (std::ranges::count(parts, part) == 0) parts.push_back(part);
  }
  std::vector<Row> rows{{"training", "steps"}};
  for (const std::int64_t dose : doses) rows[0].push_back(format_count(dose));
  for (std::int64_t variant = 0; variant < std::ssize(summary.variants); ++variant)
    for (const std::string& part : parts) {
      Row& row =
          rows.emplace_back(Row{variant_name(summary.variants[variant].name, kMostTraining), part});
      for (const std::int64_t dose : doses) {
        std::string text;
        for (std::int64_t group = 0; group < std::ssize(report.groups); ++group)
          if (learned(group) && report.group_epochs[group] == dose &&
              part_text(report.group_designs[group]) == part)
            text += (text.empty() ? "" : " / ") + of(variant, group);
        row.push_back(text.empty() ? "-" : text);
      }
    }
  return text_table(rows, 2);
}

/// Exact matches, and what samples contain, by part of the steps and number of times.
std::string dose_tables(const MemorizationReport& report, const MemorizationSummary& summary) {
  const std::int64_t prompt = summary.longest_prompt();
  std::string text = "\nexact match %, by how many times a document came\n" +
                     dose_table(report, summary, [&](std::int64_t variant, std::int64_t group) {
                       return percent_text(summary.at(variant, group, prompt));
                     });
  const auto suffixes = suffix_probabilities(report, summary);
  if (suffixes.empty()) return text;
  const std::string& policy = suffixes.front().policy;
  const auto of = [&](std::int64_t variant, std::int64_t group) -> const SuffixProbabilities& {
    return *std::ranges::find_if(suffixes, [&](const SuffixProbabilities& one) {
      return one.variant == variant && one.group == group && one.prompt == prompt &&
             one.policy == policy;
    });
  };
  const double least = least_log10_p(static_cast<double>(kMatchedBudget), 0.5);
  text += fmt::format("\nin 1,000 samples with probability 0.5 ({}), %\n", printable(policy));
  text += dose_table(report, summary, [&](std::int64_t variant, std::int64_t group) {
    const std::vector<double>& all = of(variant, group).log10_p;
    const auto found = std::ranges::count_if(all, [&](double one) { return one >= least; });
    return fmt::format("{:.1f}", 100 * static_cast<double>(found) / std::ssize(all));
  });
  text += fmt::format("\nmedian of log10 of the probability ({})\n", printable(policy));
  return text + dose_table(report, summary, [&](std::int64_t variant, std::int64_t group) {
           return fmt::format("{:.1f}", median_of(of(variant, group).log10_p));
         });
}

std::string listed(const MemorizationReport& report) {
  std::string text = "\nmost recited documents\n";
  const std::vector<RankedRecitation> ranked = most_recited(report, "");
  for (std::size_t i = 0; i < std::min(ranked.size(), kMostListed); ++i) {
    const Recitation r = with_texts(*ranked[i].run, *ranked[i].recitation);
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
    text += line("truth", r.texts->truth);
    text += line("written", r.exact ? "the same" : r.texts->written);
  }
  return text;
}

}  // namespace

std::string document_text(const MemorizationReport& report, std::int64_t document) {
  if (document < report.documents.size()) return report.documents.name(document);
  const bool named =
      document < std::ssize(report.document_names) && !report.document_names[document].empty();
  return named ? report.document_names[document] : fmt::format("document {}", document);
}

std::string headline(const MemorizationReport& report, const MemorizationSummary& summary) {
  std::vector<std::vector<RecitationCell>> groups;  // those with recitations
  for (std::int64_t group = 0; group < std::ssize(report.groups); ++group)
    if (auto cells = cells_of(summary, group); !cells.empty()) groups.push_back(std::move(cells));
  if (groups.empty()) return "Nothing was recited.";
  const std::vector<RecitationCell>&most = *std::ranges::max_element(groups, {}, most_of),
        &least = *std::ranges::min_element(groups, {}, most_of);
  if (most_of(most) == 0) return none_recited(report, summary, groups);
  const auto group = [&](const std::vector<RecitationCell>& cells) {
    return '"' + report.groups[cells.front().group] + '"';
  };
  const auto name = [&](const RecitationCell& cell) { return summary.variants[cell.variant].name; };
  const auto phrase = [&](const std::string& variant) {
    return report.by_loss ? fmt::format("the {} loss", variant) : '"' + variant + '"';
  };
  std::string text = given(report, summary);
  if (!name(most[0]).empty()) text += fmt::format("after training with {} ", phrase(name(most[0])));
  text += fmt::format("the model writes {} for {} of the documents in {}", next_tokens(report),
                      share(most[0]), group(most));
  for (std::size_t i = 1; i < most.size(); ++i)
    text += fmt::format("; with {} for {}", phrase(name(most[i])), share(most[i]));
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

std::string to_text(const MemorizationReport& report) {
  const MemorizationSummary summary = summarize(report);
  std::string text = wrapped(report.title + ": " + report.model, 0);
  for (const std::string& note : report.notes) text += wrapped(note, 2);
  text += '\n';
  if (summary.cells.empty()) return text + "Nothing was recited.\n";
  text += wrapped(headline(report, summary), 0) + '\n';
  if (!report.group_designs.empty())
    return text + dose_tables(report, summary) + exposure_table(report, summary) +
           capacity_table(report) + (has_references(report) ? membership_table(report) : "") +
           references_table(report) + runs_table(report, summary) +
           "\nall other figures are in the report's page and in its JSON\n";
  text += main_table(report, summary) + runs_table(report, summary);
  text += sweep_tables(report, summary) + extraction_tables(report, summary) +
          near_tables(report, summary) + near_mass_table(report, summary) +
          matched_table(report, summary) + membership_table(report) + distance_table(report) +
          references_table(report) + capacity_table(report);
  return is_audit(report) ? text + listed(report) : text;
}

}  // namespace axonn
