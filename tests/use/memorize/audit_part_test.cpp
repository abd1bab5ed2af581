#include "axonn/use/memorize/audit_part.h"

#include <cmath>
#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>

#include "axonn/foundation/base/check.h"

#include "tests/support/temporary_path.h"
#include "tests/use/memorize/report/made_up_report.h"

using namespace axonn;
using namespace axonn::testing_support;

TEST(AuditPart, HasWhatAnEarlierStartOfTheSameAuditMade) {
  test::TemporaryPath folder;
  std::filesystem::create_directories(folder / "");
  const std::string path = folder / "audit.json.part";
  const std::vector<Recitation> all = recorded_audit().runs[0].recitations;
  {
    AuditPart part(path, "an audit");
    EXPECT_EQ(part.counts().recitations, 0);
    part.append(0, std::span(all).first(2));
    part.append(2, std::span(all).subspan(2, 3));
  }
  std::ofstream(path, std::ios::app) << R"({"document": 5, "gro)";  // a kill cut it short
  {
    AuditPart part(path, "an audit");
    ASSERT_EQ(part.counts().recitations, 5);
    for (std::size_t i = 0; i < 5; ++i) {
      const Recitation known = part.recitation(i);
      EXPECT_EQ(known.document, all[i].document);
      EXPECT_EQ(known.texts->truth, all[i].texts->truth);
      EXPECT_EQ(known.record->log10_p, all[i].record->log10_p);
      EXPECT_EQ(known.scores.has_value(), all[i].scores.has_value());
    }
    part.append(5, std::span(all).subspan(5, 1));
  }
  const auto count = [&](const char* audit) { return AuditPart(path, audit).counts().recitations; };
  EXPECT_EQ(count("an audit"), 6) << "the cut line is gone";
  AuditPart(path, "an audit").append(4, std::span(all).subspan(4, 4));
  const AuditPart again(path, "an audit");
  ASSERT_EQ(again.counts().recitations, 8)
      << "what a round that was cut short had made is not there twice";
  EXPECT_EQ(again.recitation(7).prompt, all[7].prompt);
  EXPECT_EQ(again.recitation(3).document, all[3].document) << "in any order";
  EXPECT_EQ(count("another audit"), 0);
  EXPECT_EQ(count("an audit"), 0) << "it was begun anew";
  AuditPart(path, "an audit").remove();
  EXPECT_FALSE(std::filesystem::exists(path));
}

TEST(AuditPart, HasValuesAfterTheRecitations) {
  test::TemporaryPath folder;
  std::filesystem::create_directories(folder / "");
  const std::string path = folder / "audit.json.part";
  const std::vector<Recitation> all = recorded_audit().runs[0].recitations;
  const std::vector<std::vector<double>> values{{-1.0 / 3, 1e-300}, {-INFINITY, 2}, {4, 5}};
  {
    AuditPart part(path, "an audit");
    part.append(0, std::span(all).first(3));
    part.append_values(0, values);
  }
  std::ofstream(path, std::ios::app) << "[1,";  // a kill cut it short
  AuditPart part(path, "an audit");
  EXPECT_EQ(part.counts(), (AuditCounts{3, 3}));
  for (std::int64_t n = 0; n < 3; ++n) EXPECT_EQ(part.values(n), values[n]) << "to the last bit";
  EXPECT_EQ(part.recitation(2).texts->truth, all[2].texts->truth);
  part.append_values(1, std::span(values).last(1));
  EXPECT_EQ(AuditPart(path, "an audit").counts(), (AuditCounts{3, 2}));
  EXPECT_EQ(AuditPart(path, "an audit").values(1), values[2]);
  part.append(2, std::span(all).subspan(2, 1));
  EXPECT_EQ(AuditPart(path, "an audit").counts(), (AuditCounts{3, 0})) << "which come later";
}

TEST(AuditPart, NamesADamagedLine) {
  test::TemporaryPath folder;
  std::filesystem::create_directories(folder / "");
  std::ofstream(folder / "part") << "an audit\nrubbish\n";
  try {
    AuditPart(folder / "part", "an audit");
    FAIL();
  } catch (const UsageError& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("part line 2"));
  }
}
