#include <cmath>
#include <cstdlib>

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "axonn/foundation/base/files.h"
#include "axonn/use/memorize/report/json.h"

#include "tests/support/build_paths.h"
#include "tests/support/temporary_path.h"
#include "tests/use/memorize/report/made_up_report.h"

using namespace axonn;
using namespace axonn::testing_support;
using nlohmann::json;
using testing::HasSubstr;
using testing::Not;

namespace {

std::size_t count_of(const std::string& text, const std::string& part) {
  std::size_t count = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1))
    ++count;
  return count;
}

/// The report that the page's script reads.
json report_in(const std::string& page) {
  const std::string open = "<script type=\"application/json\" id=\"report\">";
  const std::size_t begin = page.find(open) + open.size();
  return json::parse(page.substr(begin, page.find("</script>", begin) - begin));
}

/// A report whose texts would be markup.
MemorizationReport evil_report() {
  const std::string evil = "</title></style></script><script>x</script>\"'&<!--\xff\x01\x1b]]>";
  MemorizationReport report = small_study();
  report.title = report.model = evil;
  report.notes = {evil};
  report.origin = {evil, evil, evil, evil, evil};
  for (std::string& name : report.groups) name = evil;
  for (std::string& name : report.document_names) name = evil;
  for (RecitationRun& run : report.runs) {
    run.variant += evil;
    for (Recitation& r : run.recitations) {
      r.texts->before = evil + r.texts->before;
      r.texts->truth += evil;
      r.texts->written += "<b>" + evil;
    }
  }
  return report;
}

/// A study with untested groups, two groups of the same name, ten variants, and one long text.
MemorizationReport odd_study() {
  MemorizationReport report = small_study();
  report.groups.emplace_back("never tested");
  report.groups.emplace_back("6 epochs");
  report.group_sizes.resize(4, 0);
  report.group_epochs = {0, 6, 1, 6};
  report.controls = {0, 0, 0, 0};
  for (int i = 0; i < 8; ++i) {
    report.runs.push_back(report.runs[0]);
    report.runs.back().variant = "variant" + std::to_string(i);
  }
  report.runs[0].recitations.push_back(recited(0, 3, 10));
  report.runs[0].recitations.back().loss = NAN;
  report.runs[0].recitations.back().texts->truth = std::string(5000, 'w');
  report.runs[0].seed = ~std::uint64_t{0};
  report.document_names.clear();
  return report;
}

/// An audit of 120 more documents.
MemorizationReport large_audit(std::int64_t more = 120) {
  MemorizationReport report = small_audit();
  report.prompt_lengths = {kWholePrompt};
  report.runs[0].recitations.clear();
  for (std::int64_t i = 0; i < more; ++i) {
    report.document_names.push_back("more");
    report.runs[0].recitations.push_back(recited(4 + i, 0, i % 10));
  }
  return report;
}

TEST(Page, HoldsTheReportAsJson) {
  for (const MemorizationReport& report :
       {small_study(), small_audit(), recorded_audit(), evil_report()}) {
    json shown = report_in(html_page(report)), all = json::parse(to_json(report));
    for (const char* key :
         {"title",         "model",          "notes",      "headline",          "groups",
          "suffix_tokens", "prompt_lengths", "variants",   "summary",           "extraction",
          "near",          "near_mass",      "exposure",   "capacity",          "matched",
          "membership",    "references",     "influences", "against_reference", "origin"})
      EXPECT_EQ(shown.at(key), all.at(key)) << key;
    for (std::size_t i = 0; i < report.runs.size(); ++i) {
      json run = all.at("runs").at(i);
      run.erase("recitations");
      run.erase("readings");
      run["seed"] = std::to_string(report.runs[i].seed);
      EXPECT_EQ(shown.at("runs").at(i), run);
    }
  }
}

TEST(Page, HoldsThePassagesOfEachVariantAndGroupMostRecitedFirst) {
  const json report = report_in(html_page(small_study()));
  ASSERT_EQ(report.at("passages").size(), 4u);
  const json& learned = report.at("passages").at(1);
  ASSERT_EQ(learned.size(), 2u);
  EXPECT_EQ(learned.at(0).at("name"), "Cedar");
  EXPECT_EQ(learned.at(1).at("trial"), 2);
  const json large = report_in(html_page(large_audit())).at("passages").at(0);
  EXPECT_EQ(large.size(), 120u);
}

TEST(Page, HoldsTheBestPassagesOfManyDocuments) {
  const json page = report_in(html_page(large_audit(700)));
  const json& shown = page.at("passages").at(0);
  ASSERT_EQ(std::ssize(shown), kMostPassages);
  EXPECT_EQ(shown.at(0).at("longest_run"), 9);
  EXPECT_EQ(shown.at(kMostPassages - 1).at("longest_run"), 2) << "70 of each length from 9 down";
  EXPECT_EQ(page.at("summary").at(0).at("documents"), 700);
  EXPECT_FALSE(shown.at(0).contains("score_loss"));
}

TEST(Page, HoldsTheProbabilitiesOfSuffixesLargestFirst) {
  const json suffixes = report_in(html_page(recorded_audit())).at("suffixes");
  ASSERT_EQ(suffixes.size(), 2u * 2u) << "groups and policies, with the whole prompt";
  EXPECT_EQ(
      suffixes.at(0),
      (json{{"variant", 0}, {"group", 0}, {"policy", "t=1,k=40"}, {"log10_p", {-0.5, -2.5}}}));
  EXPECT_EQ(suffixes.at(3).at("log10_p"), (json{nullptr, nullptr}));
  EXPECT_TRUE(report_in(html_page(small_study())).at("suffixes").empty());
}

TEST(Page, HasCellsWithoutRecitationsToo) {
  const json cells = report_in(html_page(odd_study())).at("summary");
  ASSERT_EQ(cells.size(), 10u * 4u);
  EXPECT_EQ(cells.at(2).at("trials"), 0);
  EXPECT_EQ(cells.at(3).at("exact"), 1);
}

TEST(Page, NoTextOfAReportIsReadAsMarkup) {
  const std::string page = html_page(evil_report()), plain = html_page(small_study());
  for (const char* part : {"<script", "</script>", "</style>", "</title>", "<!--", "<b>"})
    EXPECT_EQ(count_of(page, part), count_of(plain, part)) << part;
  EXPECT_EQ(count_of(plain, "<!--"), 1U) << "the comment of the template";
}

TEST(Page, LoadsNoExternalFiles) {
  std::string page = html_page(small_audit());
  const std::string name = "http://www.w3.org/2000/svg";  // of elements, which is not loaded
  page.erase(page.find(name), name.size());
  for (const char* part : {"http:", "https:", "src=", "@import", "<link", "href=\"", "innerHTML"})
    EXPECT_THAT(page, Not(HasSubstr(part)));
}

TEST(Page, IsTheSameTwice) { EXPECT_EQ(html_page(small_study()), html_page(small_study())); }

TEST(Page, OfAReportWithoutRunsHasNoFigures) {
  MemorizationReport report = small_study();
  report.runs.clear();
  const json shown = report_in(html_page(report));
  EXPECT_EQ(shown.at("headline"), "Nothing was recited.");
  EXPECT_TRUE(shown.at("summary").empty());
}

// Runs page_script_test.js, which draws these pages without a browser.
TEST(Page, TheScriptDrawsTheReport) {
  if (std::system("command -v node >/dev/null") != 0)
    GTEST_SKIP() << "node was not found (Debian package nodejs)";
  test::TemporaryPath folder;
  make_folders(folder / "");
  MemorizationReport empty = small_study();
  empty.runs.clear();
  const std::pair<const char*, MemorizationReport> pages[] = {
      {"study", small_study()},       {"audit", small_audit()},
      {"evil", evil_report()},        {"odd", odd_study()},
      {"arms", arms_study()},         {"large", large_audit()},
      {"huge", large_audit(700)},     {"empty", empty},
      {"recorded", recorded_audit()}, {"swept", swept_audit()},
      {"suffixes", suffixes_audit()}, {"beside", audit_with_reference()}};
  for (const auto& [name, report] : pages)
    write_file_atomically(folder / (std::string(name) + ".html"), html_page(report));
  const std::string command = "node " + test::source_folder() +
                              "/tests/use/memorize/report/page_script_test.js '" + (folder / "") +
                              "' 2>&1";
  EXPECT_EQ(std::system(command.c_str()), 0);
}

}  // namespace
