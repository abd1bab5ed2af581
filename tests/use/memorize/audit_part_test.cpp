#include "axonn/use/memorize/audit_part.h"

#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>

#include "axonn/foundation/base/check.h"

#include "tests/support/temporary_path.h"
#include "tests/use/memorize/made_up_report.h"

using namespace axonn;
using namespace axonn::testing_support;

TEST(AuditPart, HasWhatAnEarlierStartOfTheSameAuditMade) {
  test::TemporaryPath folder;
  std::filesystem::create_directories(folder / "");
  const std::string path = folder / "audit.json.part";
  const std::vector<Recitation> all = recorded_audit().runs[0].recitations;
  {
    AuditPart part(path, "an audit");
    EXPECT_TRUE(part.known().empty());
    part.append(0, std::span(all).first(2));
    part.append(2, std::span(all).subspan(2, 3));
  }
  std::ofstream(path, std::ios::app) << R"({"document": 5, "gro)";  // a kill cut it short
  {
    AuditPart part(path, "an audit");
    ASSERT_EQ(part.known().size(), 5u);
    for (std::size_t i = 0; i < 5; ++i) {
      EXPECT_EQ(part.known()[i].document, all[i].document);
      EXPECT_EQ(part.known()[i].truth, all[i].truth);
      EXPECT_EQ(part.known()[i].record->log10_p, all[i].record->log10_p);
      EXPECT_EQ(part.known()[i].scores.has_value(), all[i].scores.has_value());
    }
    part.append(5, std::span(all).subspan(5, 1));
  }
  EXPECT_EQ(AuditPart(path, "an audit").known().size(), 6u) << "the cut line is gone";
  AuditPart(path, "an audit").append(4, std::span(all).subspan(4, 4));
  const std::vector<Recitation> again = AuditPart(path, "an audit").known();
  ASSERT_EQ(again.size(), 8u) << "what a round that was cut short had made is not there twice";
  EXPECT_EQ(again[3].document, all[3].document);
  EXPECT_EQ(again[7].prompt, all[7].prompt);
  EXPECT_TRUE(AuditPart(path, "another audit").known().empty());
  EXPECT_TRUE(AuditPart(path, "an audit").known().empty()) << "it was begun anew";
  AuditPart(path, "an audit").remove();
  EXPECT_FALSE(std::filesystem::exists(path));
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
