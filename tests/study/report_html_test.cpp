#include <algorithm>
#include <array>
#include <cmath>

#include <gmock/gmock.h>

#include "axonn/base/utf8.h"
#include "axonn/study/html_parts.h"
#include "axonn/study/html_text.h"
#include "axonn/study/report.h"
#include "axonn/study/report_words.h"

#include "tests/study/made_up_report.h"

using namespace axonn;
using namespace axonn::testing_support;
using testing::HasSubstr;
using testing::Not;

namespace {

std::size_t count_of(const std::string& text, const std::string& part) {
  std::size_t count = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1))
    ++count;
  return count;
}

/// The first error in the tags, quotes and references of a page; "" if there is none.
std::string fault_of(const std::string& html) {
  constexpr std::array<std::string_view, 2> kEmpty = {"meta", "!DOCTYPE"};
  std::vector<std::string> open;
  if (valid_utf8_prefix(html) != html.size()) return "invalid UTF-8";
  for (std::size_t i = 0; i < html.size(); ++i) {
    const auto c = static_cast<unsigned char>(html[i]);
    if ((c < 0x20 && c != '\n' && c != '\t') || c == 0x7f) return "a control character";
    const bool style = !open.empty() && open.back() == "style";
    if (c == '&') {
      const std::size_t end = html.find(';', i);
      if (end == std::string::npos || end - i > 7) return "a bare & at " + html.substr(i, 20);
    }
    if (c == '>' && !style) return "a bare > before " + html.substr(i, 20);
    if (c != '<') continue;
    std::size_t end = i;
    for (bool quoted = false; quoted || html[end] != '>'; ++end) {
      if (end + 1 >= html.size()) return "a tag without an end: " + html.substr(i, 20);
      if (html[end] == '"') quoted = !quoted;
      if (end > i && html[end] == '<') return "a < in " + html.substr(i, 20);
    }
    const std::string tag = html.substr(i + 1, end - i - 1),
                      name = tag.substr(tag[0] == '/', tag.find(' ') - (tag[0] == '/'));
    if (tag[0] == '/') {
      if (open.empty() || open.back() != name) return "</" + name + "> closes nothing";
      open.pop_back();
    } else if (!tag.ends_with('/') && std::ranges::count(kEmpty, name) == 0) {
      open.push_back(name);
    }
    i = end;
  }
  return open.empty() ? "" : "<" + open.back() + "> is not closed";
}

TEST(HtmlText, EscapesMarkup) {
  EXPECT_EQ(escaped(R"(<script>alert("1" & '2')</script>)"),
            "&lt;script&gt;alert(&quot;1&quot; &amp; &#39;2&#39;)&lt;/script&gt;");
}

TEST(HtmlText, ReplacesControlCharactersAndInvalidUtf8) {
  EXPECT_EQ(escaped("a\xff"
                    "b\xed\xa0\x80"),
            "a\ufffd"
            "b\ufffd\ufffd\ufffd");
  EXPECT_EQ(escaped(std::string("\0\x1b[0m\x7f\r", 7)), "\u2400\u241b[0m\u2421\u240d");
  EXPECT_EQ(escaped("\n\t"), "\n\t");
  EXPECT_EQ(escaped("\xc2\x85\xef\xbf\xbf"), "\ufffd\ufffd");
  EXPECT_EQ(escaped("\u00e9\u6f22\U0001f600"), "\u00e9\u6f22\U0001f600");
}

TEST(HtmlPage, IsWellFormed) {
  EXPECT_EQ(fault_of(html_page(small_study())), "");
  EXPECT_EQ(fault_of(html_page(small_audit())), "");
  EXPECT_NE(fault_of("<p><b></p></b>"), "");
  EXPECT_NE(fault_of("<p>"), "");
  EXPECT_NE(fault_of("<p>a & b</p>"), "");
}

TEST(HtmlPage, NoTextOfAReportIsReadAsMarkup) {
  const std::string evil = "</title></style><script>x</script>\"'&<!--\xff\x01\x1b]]>";
  for (MemorizationReport report : {small_study(), small_audit()}) {
    report.title = report.model = evil;
    report.notes = {evil};
    for (std::string& name : report.groups) name = evil;
    for (std::string& name : report.document_names) name = evil;
    for (RecitationRun& run : report.runs) {
      if (!run.variant.empty()) run.variant += evil;
      for (Recitation& r : run.recitations) {
        r.before = evil + r.before;
        r.truth += evil;
        r.written += "<b>" + evil;
      }
    }
    const std::string html = html_page(report);
    EXPECT_EQ(fault_of(html), "");
    EXPECT_EQ(count_of(html, "<script"), 0U);
    EXPECT_EQ(count_of(html, "<!--"), 0U);
  }
}

TEST(HtmlPage, LoadsNoExternalFiles) {
  const std::string html = html_page(small_audit());
  for (const char* part : {"http:", "https:", "src=", "@import", "<link", "<script", "href=\"/"})
    EXPECT_THAT(html, Not(HasSubstr(part)));
}

TEST(HtmlPage, HasEveryGroupAndEveryDocument) {
  for (const MemorizationReport& report : {small_study(), small_audit()}) {
    const std::string html = html_page(report);
    for (std::size_t i = 0; i < report.groups.size(); ++i) {
      EXPECT_THAT(html, HasSubstr("<h3 id=\"group-" + std::to_string(i) + "\">" + report.groups[i] +
                                  "</h3>"));
      EXPECT_THAT(html, HasSubstr("href=\"#group-" + std::to_string(i) + "\""));
    }
    for (const std::string& name : report.document_names)
      EXPECT_THAT(html, HasSubstr("<h5>" + name + "</h5>"));
  }
}

TEST(HtmlPage, HasTheSummarysNumbersInItsTableAndItsBars) {
  const MemorizationReport report = small_study();
  const MemorizationSummary summary = summarize(report);
  const std::string html = html_page(report), bars = html.substr(html.find("<svg"));
  for (const RecitationCell& cell : summary.cells) {
    std::string row;
    for (const std::string& figure : figures_of(cell)) row += "<td>" + figure + "</td>";
    EXPECT_THAT(html, HasSubstr(row));
    EXPECT_THAT(bars, HasSubstr("<title>" + report.groups[cell.group] + ", " +
                                summary.variants[cell.variant].name + " loss: " +
                                percent_text(cell) + " % (" + range_text(cell) + ")</title>"));
  }
  EXPECT_THAT(html, HasSubstr("<td>75.0</td><td>50.0 to 100.0</td><td>8.5</td><td>85.0</td>"
                              "<td>1.5</td><td>0.875</td>"));
  EXPECT_THAT(html, HasSubstr("for 75.0\u00a0% (50.0 to 100.0\u00a0% over 2 trials) of the "
                              "documents in \u201c6 epochs\u201d"));
}

TEST(HtmlPage, BarLengthsAreProportionalToTheShares) {
  // The axis ends at 100 %; 75 % is three quarters of it, whiskers go from its middle to its end.
  const std::string html = html_page(small_study());
  const auto number_after = [&](const std::string& mark, std::size_t from) {
    return std::stod(html.substr(html.find(mark, from) + mark.size()));
  };
  const std::size_t bar = html.find("<title>6 epochs, standard loss: 75.0 %");
  const double left = number_after(" x=\"", bar), width = number_after(" width=\"", bar),
               low = number_after("d=\"M", bar), high = number_after("H", html.find("d=\"M", bar));
  EXPECT_NEAR((low - left) / width, 50.0 / 75, 1e-3);
  EXPECT_NEAR((high - left) / width, 100.0 / 75, 1e-3);
}

TEST(HtmlPage, HasACurvePerGroupIfThereAreSeveralPromptLengths) {
  EXPECT_EQ(count_of(html_page(small_study()), "<polyline"), 0U);
  const std::string html = html_page(small_audit());
  EXPECT_EQ(count_of(html, "<polyline"), 2U);
  EXPECT_THAT(html, HasSubstr("asked: 0.0 % with 8, 50.0 % with 32, 100.0 % with whole"));
  EXPECT_THAT(html, HasSubstr("<title>asked, 32 tokens: 50.0 %</title>"));
}

TEST(HtmlPage, MarksCommonText) {
  const std::string html = html_page(small_audit());
  EXPECT_THAT(html, HasSubstr("<mark>and so it goes on to its end</mark>"));
  EXPECT_THAT(html, HasSubstr("<mark>and so it </mark>stops at an<mark> end</mark>"));
}

TEST(HtmlPage, FoldsAllButTheFirstPassagesOfAGroup) {
  MemorizationReport report = small_audit();
  report.prompt_lengths = {kWholePrompt};
  report.runs[0].recitations.clear();
  for (std::int64_t i = 0; i < 60; ++i) {
    report.document_names.push_back("more");
    report.runs[0].recitations.push_back(recited(4 + i, 0, i % 10));
  }
  const std::string html = html_page(report);
  const std::size_t fold = html.find("<details>");
  ASSERT_NE(fold, std::string::npos);
  EXPECT_EQ(count_of(html.substr(0, fold), "<article"), 6U);
  EXPECT_EQ(count_of(html.substr(fold), "<article"), 44U);
  EXPECT_THAT(html, HasSubstr("<summary>44 more of 60 documents</summary>"));
}

TEST(HtmlPage, OfAnySizeIsWellFormed) {
  MemorizationReport report = small_study();
  report.runs.clear();
  EXPECT_EQ(fault_of(html_page(report)), "");
  EXPECT_THAT(html_page(report), HasSubstr("Nothing was recited."));
  report = small_study();
  report.groups.emplace_back("never tested");
  report.group_sizes.push_back(0);
  for (int i = 0; i < 9; ++i) {
    report.runs.push_back(report.runs[0]);
    report.runs.back().variant = "loss" + std::to_string(i);
    report.groups.push_back("group" + std::to_string(i));
    report.group_sizes.push_back(0);
  }
  report.runs[0].recitations[0].loss = NAN;
  report.runs[0].recitations[0].truth = std::string(5000, 'w');
  EXPECT_EQ(fault_of(html_page(report)), "");
  EXPECT_THAT(html_page(report), HasSubstr("not tested"));
  report.document_names.clear();
  EXPECT_THAT(html_page(report), HasSubstr("<h5>document 3</h5>"));
}

TEST(HtmlPage, IsTheSameTwice) { EXPECT_EQ(html_page(small_study()), html_page(small_study())); }

TEST(PercentAxis, EndsOnATickJustAboveTheMaximum) {
  const auto axis = [](double most) {
    const PercentAxis a = percent_axis(most);
    return std::pair(a.top, a.step);
  };
  EXPECT_EQ(axis(0), std::pair(5.0, 1.0));
  EXPECT_EQ(axis(5.1), std::pair(6.0, 2.0));
  EXPECT_EQ(axis(47), std::pair(50.0, 10.0));
  EXPECT_EQ(axis(78), std::pair(80.0, 20.0));
  EXPECT_EQ(axis(100), std::pair(100.0, 20.0));
}

}  // namespace
