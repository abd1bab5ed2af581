#include "axonn/use/memorize/report/json.h"

#include <cmath>

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "axonn/foundation/base/check.h"

#include "tests/use/memorize/report/made_up_report.h"

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
  EXPECT_EQ(a.texts->before, b.texts->before);
  EXPECT_EQ(a.texts->truth, b.texts->truth);
  EXPECT_EQ(a.texts->written, b.texts->written);
  ASSERT_EQ(a.record.has_value(), b.record.has_value());
  if (a.record) {
    EXPECT_EQ(a.record->log10_p, b.record->log10_p);
    EXPECT_EQ(a.record->greedy_exact, b.record->greedy_exact);
    EXPECT_EQ(a.record->greedy_accuracy, b.record->greedy_accuracy);
    EXPECT_EQ(a.record->extraction_strength, b.record->extraction_strength);
  }
  ASSERT_EQ(a.scores.has_value(), b.scores.has_value());
  for (const auto& [name, score] : kScores) {
    const double one = a.scores ? (*a.scores).*score : 0, other = b.scores ? (*b.scores).*score : 0;
    EXPECT_TRUE(one == other || (std::isnan(one) && std::isnan(other))) << name;
  }
}

void expect_same(const RecitationRun& a, const RecitationRun& b) {
  EXPECT_EQ(a.variant, b.variant);
  EXPECT_EQ(a.trial, b.trial);
  EXPECT_EQ(a.seed, b.seed);
  EXPECT_EQ(a.validation_loss, b.validation_loss);
  EXPECT_EQ(a.kept_fraction, b.kept_fraction);
  EXPECT_EQ(a.train_seconds, b.train_seconds);
  EXPECT_EQ(a.test_seconds, b.test_seconds);
  EXPECT_EQ(a.policies, b.policies);
  ASSERT_EQ(a.recitations.size(), b.recitations.size());
  for (std::size_t i = 0; i < a.recitations.size(); ++i)
    expect_same(a.recitations[i], b.recitations[i]);
}

/// The error message of parse_run(), or "" if there is none.
std::string fault(const std::string& text) {
  try {
    parse_run(text, "run.json");
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

/// The JSON of a small run with one value changed.
std::string changed(const char* pointer, const nlohmann::ordered_json& value) {
  auto json = nlohmann::ordered_json::parse(to_json(small_study().runs[1]));
  json[nlohmann::ordered_json::json_pointer(pointer)] = value;
  return json.dump();
}

TEST(ReportJson, HasEverythingOfTheReport) {
  const MemorizationReport report = small_audit();
  const auto json = nlohmann::json::parse(to_json(report));
  EXPECT_EQ(json.at("title"), report.title);
  EXPECT_EQ(json.at("model"), report.model);
  EXPECT_EQ(json.at("notes"), report.notes);
  EXPECT_EQ(json.at("groups").at(1),
            (nlohmann::json{{"name", "controls"}, {"documents", 2}, {"control", true}}));
  EXPECT_EQ(json.at("document_names"), report.document_names);
  EXPECT_EQ(json.at("suffix_tokens"), report.suffix_tokens);
  EXPECT_EQ(json.at("prompt_lengths"), report.prompt_lengths);
  EXPECT_THAT(json.at("headline").get<std::string>(), StartsWith("Given the whole prompt, "));
  expect_same(parse_run(json.at("runs").at(0).dump(), "x"), report.runs[0]);
}

TEST(ReportJson, KeepsTheRecordsOfRecitations) {
  const MemorizationReport report = recorded_audit();
  const std::string text = to_json(report.runs[0]);
  expect_same(parse_run(text, "x"), report.runs[0]);
  auto json = nlohmann::ordered_json::parse(text);
  EXPECT_EQ(json.at("policies"), report.runs[0].policies);
  const auto& first = json.at("recitations").at(0);
  EXPECT_EQ(first.at("log10_p").at(1), nullptr) << "a probability of 0";
  EXPECT_TRUE(first.at("greedy_exact"));
  EXPECT_EQ(first.at("score_min_k_pp"), report.runs[0].recitations[0].scores->min_k_pp);
  json["policies"] = {"t=1"};
  EXPECT_THAT(fault(json.dump()), HasSubstr("2 log10_p, but there are 1 policies"));
}

TEST(ReportJson, ReadsRunsOfVersionsWithoutRecords) {
  auto json = nlohmann::ordered_json::parse(to_json(small_study().runs[0]));
  json.erase("policies");
  const RecitationRun run = parse_run(json.dump(), "x");
  EXPECT_TRUE(run.policies.empty());
  EXPECT_FALSE(run.recitations.at(0).record || run.recitations[0].scores);
}

TEST(ReportJson, HasExposuresAndReadsThem) {
  const MemorizationReport report = arms_study();
  const auto json = nlohmann::json::parse(to_json(report));
  ASSERT_EQ(json.at("exposure").size(), 1u);
  const auto& late = json.at("exposure").at(0);
  EXPECT_EQ(late.at("group"), "late-8");
  EXPECT_EQ(late.at("canaries"), 2);
  EXPECT_EQ(late.at("candidates"), 1000);
  EXPECT_EQ(late.at("rank_1"), 1);
  EXPECT_DOUBLE_EQ(late.at("most_bits"), std::log2(1000));
  EXPECT_DOUBLE_EQ(late.at("mean_bits"), std::log2(1000) - std::log2(250) / 2);
  const auto& recitations = json.at("runs").at(0).at("recitations");
  EXPECT_DOUBLE_EQ(recitations.at(7).at("exposure"), 2);
  EXPECT_FALSE(recitations.at(0).contains("exposure"));
  const RecitationRun read = parse_run(to_json(report.runs[0]), "x");
  EXPECT_FALSE(read.recitations[5].exposure);
  EXPECT_EQ(read.recitations[7].exposure->rank, 250);
  EXPECT_EQ(read.recitations[7].exposure->candidates, 1000);
}

TEST(ReportJson, HasWhatReferencesSay) {
  const auto json = nlohmann::json::parse(to_json(arms_study()));
  const auto& groups = json.at("references");
  ASSERT_EQ(groups.size(), 2u);
  const nlohmann::json want{
      {"trial", 1},           {"group", "late-8"},     {"documents", 2},
      {"references", 8},      {"memorized_nats", .25}, {"memorized_error", .06},
      {"lira_auc_mean", .75}, {"lira_auc_min", .5},    {"lira_auc_max", 1.0},
      {"lira_right", .625},   {"lira_flips", .375}};
  EXPECT_EQ(groups.at(0), want);
  EXPECT_TRUE(groups.at(1).at("lira_flips").is_null()) << "too few";
  EXPECT_EQ(json.at("counterfactual").at(0).at("document"), 6);
  EXPECT_EQ(json.at("influences").at(0).at("name"), "g");
  EXPECT_EQ(json.at("influences").at(0).at("on_name"), "h");
  EXPECT_EQ(json.at("influences").at(0).at("deviations"), 3);
  for (const char* key : {"references", "counterfactual", "influences", "against_reference"})
    EXPECT_TRUE(nlohmann::json::parse(to_json(small_study())).at(key).empty()) << key;
}

TEST(ReportJson, HasTheDistanceOfAnAuditsModelFromItsReference) {
  const auto json = nlohmann::json::parse(to_json(audit_with_reference()));
  const nlohmann::json want{{"group", "asked"},      {"documents", 2},    {"loss", .5},
                            {"reference_loss", 1.0}, {"ks_distance", .5}, {"ks_p", 1.0}};
  ASSERT_EQ(json.at("against_reference").size(), 2u);
  EXPECT_EQ(json.at("against_reference").at(0), want);
}

TEST(ReportJson, HasTheBitsThatAreMemorizedAndReadsThem) {
  const MemorizationReport report = arms_study();
  const auto json = nlohmann::json::parse(to_json(report));
  EXPECT_EQ(json.at("parameters"), 1000);
  ASSERT_EQ(json.at("capacity").size(), 3u);
  EXPECT_EQ(json.at("capacity").at(0).at("memorized_bits"), 0) << "more than their bits are coded";
  const auto& all = json.at("capacity").at(2);
  EXPECT_TRUE(all.at("group").is_null());
  EXPECT_EQ(all.at("documents"), 2) << "without the control";
  EXPECT_EQ(all.at("random_bits"), 160);
  EXPECT_EQ(all.at("coded_bits"), 20);
  EXPECT_EQ(all.at("memorized_bits"), 140);
  EXPECT_DOUBLE_EQ(all.at("bits_per_parameter"), 0.14);
  const RecitationRun read = parse_run(to_json(report.runs[0]), "x");
  EXPECT_FALSE(read.recitations[5].information);
  EXPECT_EQ(read.recitations[7].information->coded, 20);
  EXPECT_TRUE(nlohmann::json::parse(to_json(small_study())).at("capacity").empty());
}

TEST(ReportJson, HasTheOffsetsOfPromptsAndTheRatesOfItsOwnNumbers) {
  const auto json = nlohmann::json::parse(to_json(swept_audit()));
  EXPECT_EQ(json.at("prompt_offsets"), (nlohmann::json{-1, 20, 0}));
  EXPECT_EQ(json.at("n"), (nlohmann::json{3, 50}));
  EXPECT_EQ(json.at("p"), (nlohmann::json{0.25}));
  ASSERT_EQ(json.at("extraction").size(), 2u * 3 * 2 * 2);  // groups, prompts, policies, n
  ASSERT_EQ(json.at("near").size(), 2u * 2);
  EXPECT_EQ(json.at("near").at(1).at("n"), 50);
  const auto& cells = json.at("summary");
  ASSERT_EQ(cells.size(), 6u);
  EXPECT_FALSE(cells.at(0).contains("offset"));
  EXPECT_EQ(cells.at(1).at("offset"), 20);
  EXPECT_EQ(cells.at(1).at("prompt_tokens"), 8);
}

TEST(ReportJson, HasTheSuffixesOfPrompts) {
  const auto json = nlohmann::json::parse(to_json(suffixes_audit()));
  EXPECT_EQ(json.at("prompt_suffixes"), (nlohmann::json{10, 4, 10}));
  const auto& cells = json.at("summary");
  EXPECT_FALSE(cells.at(0).contains("suffix_tokens"));
  EXPECT_EQ(cells.at(1).at("suffix_tokens"), 4);
  EXPECT_EQ(json.at("membership").size(), 4u) << "only with the whole prompt and suffix";
}

TEST(ReportJson, HasRatesOfExtractionAndSeparations) {
  const MemorizationReport report = recorded_audit();
  const auto json = nlohmann::json::parse(to_json(report));
  const auto& rates = json.at("extraction");
  ASSERT_EQ(rates.size(), 2u * 3u * 2u * 7u * 4u);
  const auto rate = [&](const char* group, const char* policy, double n, double p) {
    for (const auto& one : rates)
      if (one.at("group") == group && one.at("policy") == policy && one.at("n") == n &&
          one.at("p") == p && one.at("prompt_tokens") == 0)
        return one.at("percent").get<double>();
    return -1.0;
  };
  // log10 p of the two documents with the whole prompt: -0.5 and -2.5.
  EXPECT_EQ(rate("asked", "t=1,k=40", 1, 0.5), 0);
  EXPECT_EQ(rate("asked", "t=1,k=40", 10, 0.5), 50);
  EXPECT_EQ(rate("asked", "t=1,k=40", 1000, 0.5), 100);
  EXPECT_EQ(rate("asked", "t=1", 1e6, 0.999), 0) << "probability 0";
  EXPECT_EQ(rate("controls", "t=1,k=40", 1e6, 0.1), 0);
  const auto& separations = json.at("membership");
  ASSERT_EQ(separations.size(), 4u) << "without the blind score, which is not set";
  EXPECT_EQ(separations.at(0).at("score"), "loss");
  EXPECT_EQ(separations.at(0).at("group"), "asked");
  EXPECT_EQ(separations.at(0).at("auc"), 1);
  EXPECT_EQ(separations.at(0).at("non_members"), 2);
  EXPECT_EQ(separations.at(0).at("at_false_positive_rates"), nlohmann::json::array());
}

TEST(ReportJson, CountsSuffixesLikelierThanMatchedControls) {
  MemorizationReport report = recorded_audit();
  RecitationRun& run = report.runs[0];
  const Recitation control = run.recitations[2];  // log10 p of -30
  for (int i = 0; i < 97; ++i) run.recitations.push_back(control);
  const auto matched = [&] { return nlohmann::json::parse(to_json(report)).at("matched"); };
  ASSERT_EQ(matched().size(), 3u * 2u * 2u) << "prompts, policies and alphas";
  EXPECT_EQ(matched().at(0).at("controls"), 99);
  EXPECT_EQ(matched().at(0).at("memorized"), 2);
  EXPECT_EQ(matched().at(0).at("memorized_and_extractable"), 2);
  EXPECT_EQ(matched().at(1).at("alpha"), 0.001);
  EXPECT_EQ(matched().at(1).at("memorized"), nullptr) << "needs 999";
  EXPECT_EQ(matched().at(2).at("memorized"), 0) << "of probability 0, as all controls";
  run.recitations.back().record->log10_p[0] = -1;  // likelier than the second document
  EXPECT_EQ(matched().at(0).at("memorized"), 1);
  run.recitations.pop_back();
  EXPECT_EQ(matched().at(0).at("memorized"), nullptr) << "98 are too few";
}

TEST(ReportJson, SaysWhereTheReportComesFrom) {
  const auto json = nlohmann::json::parse(to_json(small_study()));
  const auto& origin = json.at("origin");
  EXPECT_EQ(origin.at("program"), "axonn 1.2.3");
  EXPECT_EQ(origin.at("command"), "axonn memorize 'a study.toml'");
  EXPECT_EQ(origin.at("date"), "2026-11-21 18:02:11 UTC");
  EXPECT_EQ(origin.at("machine"), "2 ranks on node7: a processor, 2 cores");
  EXPECT_EQ(origin.at("config"), "[model]\nlayers = 4\n");
  EXPECT_EQ(
      json.at("groups").at(1),
      (nlohmann::json{{"name", "6 epochs"}, {"documents", 2}, {"epochs", 6}, {"control", false}}));
}

TEST(ReportJson, NumbersAreReadBackBitForBit) {
  RecitationRun run = small_study().runs[0];
  run.seed = ~std::uint64_t{0};
  run.validation_loss = 1.0 / 3;
  run.recitations[0].loss = 0.1 + 0.2;
  run.train_seconds = 5e-324;
  expect_same(parse_run(to_json(run), "x"), run);
}

TEST(ReportJson, ARunIsReadBackUnchanged) {
  for (const RecitationRun& run : {small_study().runs[2], small_audit().runs[0]})
    expect_same(parse_run(to_json(run), "x"), run);
}

TEST(ReportJson, HasCurvesAndWhatTheySayOfDocuments) {
  const MemorizationReport report = arms_study();
  const auto json = nlohmann::json::parse(to_json(report));
  ASSERT_EQ(json.at("curves").size(), 8u) << "two steps, four groups";
  EXPECT_EQ(json.at("curves").at(7), (nlohmann::json{{"variant", "standard"},
                                                     {"trial", 1},
                                                     {"group", "late-8"},
                                                     {"step", 20},
                                                     {"documents", 2},
                                                     {"loss", 4.0},
                                                     {"loss_error", 0.0},
                                                     {"median_log10_p", -8.0},
                                                     {"exact_percent", 100.0},
                                                     {"validation_loss", nullptr}}));
  ASSERT_EQ(json.at("documents").size(), 6u) << "those that came";
  EXPECT_EQ(json.at("documents").at(4), (nlohmann::json{{"variant", "standard"},
                                                        {"trial", 1},
                                                        {"group", "late-8"},
                                                        {"document", 6},
                                                        {"exposures", 1},
                                                        {"last_exposure", 18},
                                                        {"first_learned", 20},
                                                        {"forgotten", 0},
                                                        {"half_life", nullptr}}));
  EXPECT_EQ(json.at("groups").at(3).at("from"), 0.8);
  EXPECT_EQ(json.at("groups").at(3).at("form"), "");
  const RecitationRun read = parse_run(to_json(report.runs[0]), "x");
  ASSERT_EQ(read.curve.size(), 2u);
  EXPECT_EQ(read.curve[1].exact, report.runs[0].curve[1].exact);
  EXPECT_EQ(to_json(read), to_json(report.runs[0]));
}

TEST(ReportJson, HasTheTokensOfReadings) {
  const RecitationRun run = recorded_audit().runs[0], read = parse_run(to_json(run), "x");
  ASSERT_EQ(read.readings.size(), 1u);
  const Reading &got = read.readings[0], &want = run.readings[0];
  EXPECT_EQ(got.document, 0);
  EXPECT_EQ(got.tokens, want.tokens);
  EXPECT_EQ(got.rank, want.rank);
  EXPECT_EQ(got.log_q, want.log_q);
  EXPECT_EQ(got.extracted, want.extracted);
  for (std::size_t i = 0; i < 3; ++i) EXPECT_NEAR(got.log_p[i], want.log_p[i], 5e-7);
  EXPECT_EQ(to_json(read), to_json(run));
}

TEST(ReportJson, HasErrorsOfMeans) {
  EXPECT_NEAR(*error_of_mean(std::vector{1.0, 2.0, 4.0}), std::sqrt(7.0 / 3 / 3), 1e-12);
  EXPECT_FALSE(error_of_mean(std::vector{1.0}));
  const auto json = nlohmann::json::parse(to_json(arms_study()));
  EXPECT_EQ(json.at("curves")[0].at("loss_error"), 0) << "all have the same loss";
  for (const auto& cell : json.at("summary")) EXPECT_TRUE(cell.at("loss_error").is_number());
}

TEST(ReportJson, HasBoundsOfNearVerbatimProbabilities) {
  MemorizationReport report = arms_study();
  for (Recitation& r : report.runs[0].recitations)
    if (r.group == 3) r.near = {{1, -INFINITY, -0.5}, {5, -0.5, -0.25, 100, 50}};
  const RecitationRun read = parse_run(to_json(report.runs[0]), "x");
  ASSERT_EQ(read.recitations[7].near.size(), 2u);
  EXPECT_EQ(read.recitations[7].near[0].log10_low, -INFINITY);
  EXPECT_EQ(read.recitations[7].near[1].log10_high, -0.25);
  EXPECT_EQ(read.recitations[7].near[0].samples, 0);
  EXPECT_EQ(read.recitations[7].near[1].found, 50);
  const auto masses = nlohmann::json::parse(to_json(report)).at("near_mass");
  ASSERT_EQ(masses.size(), 2u);
  EXPECT_EQ(masses[0].at("mean_low"), 0);
  EXPECT_TRUE(masses[0].at("sampled").is_null());
  EXPECT_EQ(masses[1].at("documents"), 2);
  EXPECT_NEAR(masses[1].at("mean_low").get<double>(), std::pow(10, -0.5), 1e-12);
  EXPECT_EQ(masses[1].at("samples"), 200);
  EXPECT_EQ(masses[1].at("sampled"), 0.5);
  EXPECT_NEAR(masses[1].at("sampled_low").get<double>(), 0.4287, 1e-4);
  const auto near = nlohmann::json::parse(to_json(report)).at("near");
  ASSERT_EQ(near.size(), 2u * 7 * 4);
  // With p = 0.5 in one sample, 10^-0.25 = 0.56 is enough and 10^-0.5 = 0.32 is not.
  for (const auto& rate : near) {
    EXPECT_EQ(rate.at("group"), "late-8");
    if (rate.at("n") != 1 || rate.at("p") != 0.5) continue;
    EXPECT_EQ(rate.at("suffixes"), 2);
    EXPECT_EQ(rate.at("extractable_at_least"), 0);
    EXPECT_EQ(rate.at("extractable_at_most"), rate.at("epsilon") == 5 ? 2 : 0);
  }
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
  const auto& goldfish = json.at("variants").at(1);
  EXPECT_EQ(goldfish.at("name"), "goldfish");
  EXPECT_EQ(goldfish.at("kept_percent").at("mean"), 50);
  EXPECT_EQ(goldfish.at("validation_loss").at("max"), 3);
}

TEST(ReportJson, InvalidUtf8IsReplacedAndControlCharactersStay) {
  RecitationRun run = small_audit().runs[0];
  run.recitations[0].texts->written =
      "a\xff"
      "b\xc3";
  run.recitations[0].texts->truth = std::string("\0\x1b\"\n", 4);
  const RecitationRun read = parse_run(to_json(run), "x");
  EXPECT_EQ(read.recitations[0].texts->written,
            "a\xef\xbf\xbd"
            "b\xef\xbf\xbd");
  EXPECT_EQ(read.recitations[0].texts->truth, run.recitations[0].texts->truth);
}

TEST(ReportJson, ALossThatIsNotFiniteIsReadBackAsNan) {
  RecitationRun run = small_audit().runs[0];
  run.recitations[0].loss = INFINITY;
  EXPECT_TRUE(std::isnan(parse_run(to_json(run), "x").recitations[0].loss));
}

TEST(ReportJson, DamagedTextIsRefusedAndItsFileNamed) {
  const std::string whole = to_json(small_study().runs[0]);
  EXPECT_THAT(fault(""), StartsWith("run.json: "));
  EXPECT_EQ(fault("[]"), "run.json is not an object");
  EXPECT_EQ(fault("{}"), "run.json: 'variant' is missing");
  for (std::size_t length = 0; length + 1 < whole.size(); length += 31)
    EXPECT_THAT(fault(whole.substr(0, length)), StartsWith("run.json: ")) << length;
}

TEST(ReportJson, AValueOfTheWrongKindIsNamed) {
  EXPECT_THAT(fault(changed("/variant", 3)), Eq("run.json: variant is not a text"));
  EXPECT_THAT(fault(changed("/recitations/2/exact", 1)),
              HasSubstr("run.json: recitations[2].exact is not true or false"));
  EXPECT_THAT(fault(changed("/trial", 1.5)), HasSubstr("trial is not a whole"));
  EXPECT_THAT(fault(changed("/trial", ~std::uint64_t{0})), HasSubstr("trial is not a whole"));
  EXPECT_THAT(fault(changed("/seed", -1)), HasSubstr("seed"));
  EXPECT_THAT(fault(changed("/recitations/0/loss", "3")), HasSubstr("loss is not a number"));
  EXPECT_THAT(fault(changed("/recitations/0", "control")),
              HasSubstr("recitations[0] is not an object"));
  EXPECT_THAT(fault(changed("/recitations", nullptr)), HasSubstr("not a list"));
}

TEST(ReportJson, AMissingValueIsNamed) {
  auto json = nlohmann::ordered_json::parse(to_json(small_study().runs[1]));
  json["recitations"][1].erase("truth");
  EXPECT_THAT(fault(json.dump()), HasSubstr("recitations[1]: 'truth' is missing"));
}

}  // namespace
