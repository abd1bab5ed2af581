#include <cmath>

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "axonn/base/check.h"
#include "axonn/study/report.h"

#include "tests/study/made_up_report.h"

using namespace axonn;
using namespace axonn::testing_support;
using testing::Eq;
using testing::HasSubstr;
using testing::StartsWith;

namespace {

void expect_same(const Recitation& a, const Recitation& b) {
  EXPECT_EQ(a.document, b.document);
  EXPECT_EQ(a.group, b.group);
  EXPECT_EQ(a.prompt, b.prompt);
  EXPECT_EQ(a.exact, b.exact);
  EXPECT_EQ(a.longest_run, b.longest_run);
  EXPECT_EQ(a.token_accuracy, b.token_accuracy);
  EXPECT_EQ(a.edit_distance, b.edit_distance);
  EXPECT_EQ(a.loss, b.loss);
  EXPECT_EQ(a.before, b.before);
  EXPECT_EQ(a.truth, b.truth);
  EXPECT_EQ(a.written, b.written);
}

void expect_same(const RecitationRun& a, const RecitationRun& b) {
  EXPECT_EQ(a.variant, b.variant);
  EXPECT_EQ(a.trial, b.trial);
  EXPECT_EQ(a.seed, b.seed);
  EXPECT_EQ(a.validation_loss, b.validation_loss);
  EXPECT_EQ(a.kept_fraction, b.kept_fraction);
  EXPECT_EQ(a.train_seconds, b.train_seconds);
  EXPECT_EQ(a.test_seconds, b.test_seconds);
  ASSERT_EQ(a.recitations.size(), b.recitations.size());
  for (std::size_t i = 0; i < a.recitations.size(); ++i)
    expect_same(a.recitations[i], b.recitations[i]);
}

void expect_same(const MemorizationReport& a, const MemorizationReport& b) {
  EXPECT_EQ(a.title, b.title);
  EXPECT_EQ(a.model, b.model);
  EXPECT_EQ(a.notes, b.notes);
  EXPECT_EQ(a.groups, b.groups);
  EXPECT_EQ(a.group_sizes, b.group_sizes);
  EXPECT_EQ(a.document_names, b.document_names);
  EXPECT_EQ(a.suffix_tokens, b.suffix_tokens);
  EXPECT_EQ(a.prompt_lengths, b.prompt_lengths);
  ASSERT_EQ(a.runs.size(), b.runs.size());
  for (std::size_t i = 0; i < a.runs.size(); ++i) expect_same(a.runs[i], b.runs[i]);
}

/// The error message of parse_report(), or "" if there is none.
std::string fault(const std::string& text) {
  try {
    parse_report(text, "study.json");
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

/// The small study's JSON with one value changed.
std::string changed(const char* pointer, const nlohmann::ordered_json& value) {
  auto json = nlohmann::ordered_json::parse(to_json(small_study()));
  json[nlohmann::ordered_json::json_pointer(pointer)] = value;
  return json.dump();
}

TEST(ReportJson, IsReadBackUnchanged) {
  for (const MemorizationReport& report : {small_study(), small_audit()})
    expect_same(parse_report(to_json(report), "x"), report);
}

TEST(ReportJson, NumbersAreReadBackBitForBit) {
  MemorizationReport report = small_study();
  report.runs[0].seed = ~std::uint64_t{0};
  report.runs[0].validation_loss = 1.0 / 3;
  report.runs[0].recitations[0].loss = 0.1 + 0.2;
  report.runs[0].train_seconds = 5e-324;
  expect_same(parse_report(to_json(report), "x"), report);
}

TEST(ReportJson, ARunIsReadBackUnchanged) {
  for (const RecitationRun& run : {small_study().runs[2], small_audit().runs[0]})
    expect_same(parse_run(to_json(run), "x"), run);
}

TEST(ReportJson, HasTheFiguresOfTheSummary) {
  const auto json = nlohmann::json::parse(to_json(small_study()));
  ASSERT_EQ(json.at("summary").size(), 4U);
  const auto& learned = json.at("summary").at(1);
  EXPECT_EQ(learned.at("variant"), "standard");
  EXPECT_EQ(learned.at("group"), "6 epochs");
  EXPECT_EQ(learned.at("exact"), 3);
  EXPECT_EQ(learned.at("exact_percent"), 75);
  EXPECT_EQ(learned.at("exact_percent_min"), 50);
  EXPECT_EQ(learned.at("longest_run"), 8.5);
}

TEST(ReportJson, InvalidUtf8IsReplacedAndControlCharactersStay) {
  RecitationRun run = small_audit().runs[0];
  run.recitations[0].written =
      "a\xff"
      "b\xc3";
  run.recitations[0].truth = std::string("\0\x1b\"\n", 4);
  const RecitationRun read = parse_run(to_json(run), "x");
  EXPECT_EQ(read.recitations[0].written,
            "a\xef\xbf\xbd"
            "b\xef\xbf\xbd");
  EXPECT_EQ(read.recitations[0].truth, run.recitations[0].truth);
}

TEST(ReportJson, ALossThatIsNotFiniteIsReadBackAsNan) {
  RecitationRun run = small_audit().runs[0];
  run.recitations[0].loss = INFINITY;
  EXPECT_TRUE(std::isnan(parse_run(to_json(run), "x").recitations[0].loss));
}

TEST(ReportJson, DamagedTextIsRefusedAndItsFileNamed) {
  const std::string whole = to_json(small_study());
  EXPECT_THAT(fault(""), StartsWith("study.json: "));
  EXPECT_EQ(fault("[]"), "study.json is not an object");
  EXPECT_EQ(fault("{}"), "study.json: 'title' is missing");
  for (std::size_t length = 0; length + 1 < whole.size(); length += 101)
    EXPECT_THAT(fault(whole.substr(0, length)), StartsWith("study.json: ")) << length;
}

TEST(ReportJson, AValueOfTheWrongKindIsNamed) {
  EXPECT_THAT(fault(changed("/title", 3)), Eq("study.json: title is not a text"));
  EXPECT_THAT(fault(changed("/runs/1/recitations/2/exact", 1)),
              HasSubstr("study.json: runs[1].recitations[2].exact is not true or false"));
  EXPECT_THAT(fault(changed("/runs/0/trial", 1.5)), HasSubstr("runs[0].trial is not a whole"));
  EXPECT_THAT(fault(changed("/runs/0/seed", -1)), HasSubstr("runs[0].seed"));
  EXPECT_THAT(fault(changed("/runs/0/recitations/0/loss", "3")), HasSubstr("loss is not a number"));
  EXPECT_THAT(fault(changed("/groups/0", "control")), HasSubstr("groups[0] is not an object"));
  EXPECT_THAT(fault(changed("/prompt_lengths", nullptr)), HasSubstr("not a list"));
}

TEST(ReportJson, AMissingValueIsNamed) {
  auto json = nlohmann::ordered_json::parse(to_json(small_study()));
  json["runs"][1].erase("seed");
  EXPECT_THAT(fault(json.dump()), HasSubstr("runs[1]: 'seed' is missing"));
}

TEST(ReportJson, IndicesOfGroupsDocumentsAndPromptsAreChecked) {
  EXPECT_THAT(fault(changed("/runs/0/recitations/0/group", 2)), HasSubstr("group is not a whole"));
  EXPECT_THAT(fault(changed("/runs/0/recitations/0/document", 4)), HasSubstr("0 to below 4"));
  EXPECT_THAT(fault(changed("/runs/0/recitations/0/prompt", 1)), HasSubstr("prompt"));
}

}  // namespace
