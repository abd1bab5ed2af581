#include "axonn/use/memorize/report/text.h"

#include <sstream>

#include <gmock/gmock.h>

#include "axonn/foundation/base/utf8.h"

#include "tests/use/memorize/report/made_up_report.h"

using namespace axonn;
using namespace axonn::testing_support;
using testing::HasSubstr;
using testing::Not;

namespace {

TEST(ReportText, OfAStudyIsATableOfLossesAndGroups) {
  EXPECT_EQ(to_text(small_study()), R"(Memorization study: gpt, 1.2 million parameters
  Four documents are learned.
  They are made up.

After training with the standard loss the model writes exactly the next 10 tokens for 75.0 % (50.0
to 100.0 % over 2 trials) of the documents in "6 epochs"; with the goldfish loss for 0.0 % (0.0 to
0.0 % over 2 trials); in "control", for 0.0 % and 0.0 %.

                              exact     range over  longest   tokens      edit   loss
  loss      group     docs  match %         trials      run  right %  distance   nats
  standard  control      2      0.0     0.0 to 0.0      1.0     10.0       9.0  2.750
  standard  6 epochs     2     75.0  50.0 to 100.0      8.5     85.0       1.5  0.875
  goldfish  control      2      0.0     0.0 to 0.0      0.5      5.0       9.5  2.875
  goldfish  6 epochs     2      0.0     0.0 to 0.0      3.0     30.0       7.0  2.250

  loss      trials         validation loss  tokens kept %  training after warm-up  testing
  standard       2  2.875 (2.750 to 3.000)          100.0                  3m 20s    20.0s
  goldfish       2  2.875 (2.750 to 3.000)           50.0                  3m 20s    20.0s
)");
}

TEST(ReportText, OfAnAuditHasIntervalsPromptLengthsAndTheMostRecitedDocuments) {
  EXPECT_EQ(to_text(small_audit()), R"(Memorization audit: gpt, 1.2 million parameters

Given the whole prompt, the model writes exactly the next 10 tokens for 100.0 % (95 % interval 34.2
to 100.0 %) of the documents in "asked"; in "controls", for 0.0 %.

                    exact           95 %  longest   tokens      edit   loss
  group     docs  match %       interval      run  right %  distance   nats
  asked        2    100.0  34.2 to 100.0     10.0    100.0       0.0  0.500
  controls     2      0.0    0.0 to 65.8      1.5     15.0       8.5  2.625

  trials  testing
       1     3.0s

exact match % by tokens of the prompt
  group       8    32  whole
  asked     0.0  50.0  100.0
  controls  0.0   0.0    0.0

most recited documents
   1  alder.txt
      asked: 10 of 10 tokens in a run, prompt: 32
      truth    and so it goes on to its end
      written  the same
   2  birch.txt
      asked: 10 of 10 tokens in a run, prompt: whole
      truth    and so it goes on to its end
      written  the same
   3  cedar.txt
      controls: 2 of 10 tokens in a run, prompt: whole
      truth    and so it goes on to its end
      written  and so it stops at an end
   4  dogwood.txt
      controls: 1 of 10 tokens in a run, prompt: 32
      truth    and so it goes on to its end
      written  and so it stops at an end
)");
}

TEST(ReportText, HasSharesOfExtractedSuffixesAndSeparations) {
  const std::string text = to_text(recorded_audit());
  EXPECT_THAT(text, HasSubstr(R"(
written with probability 0.5 or more in n samples (t=1,k=40), %, by n
  group       1    10   100  1,000  10,000  100,000  1,000,000
  asked     0.0  50.0  50.0  100.0   100.0    100.0      100.0
  controls  0.0   0.0   0.0    0.0     0.0      0.0        0.0
)"));
  EXPECT_THAT(text, HasSubstr("in n samples (t=1), %, by n"));
  EXPECT_THAT(text, HasSubstr(R"(
the same of texts within 2 tokens of the suffix, %, by n
  group          1      10    100  1,000  10,000  100,000  1,000,000
  asked     50-100  50-100  100.0  100.0   100.0    100.0      100.0
  controls     0.0     0.0    0.0    0.0     0.0      0.0        0.0

probability that a sample is within so many tokens of the suffix, mean of documents
  group     within  at least  at most  sampled          95 %
  asked          2      0.52        1      0.2  0.15 to 0.26
  controls       2     1e-29    1e-27      0.2  0.15 to 0.26

likelier than the suffixes of controls, of which a share of alpha would be
                   alpha            memorized  and in 1,000
  group  policy        %  controls          %    samples, %
  asked  t=1,k=40      1         2    too few             -
  asked  t=1,k=40    0.1         2    too few             -
  asked  t=1           1         2    too few             -
  asked  t=1         0.1         2    too few             -

membership: told from the control by scores (the blind score sees no model)
                   AUC with 95 %        TPR % at        TPR % at
  group  score          interval       0.1 % FPR         1 % FPR
  asked  loss       1.000 ±0.000  not measurable  not measurable
)"));
  MemorizationReport twice = recorded_audit();
  twice.runs.push_back(twice.runs[0]);
  twice.runs[1].trial = 2;
  EXPECT_THAT(to_text(twice), HasSubstr("(the blind score sees no model); trial 1 of several\n"));
}

TEST(ReportText, HasATableOfOffsetsForEachLengthOfAPrompt) {
  const std::string text = to_text(swept_audit());
  EXPECT_THAT(text, HasSubstr(R"(
exact match % with a prompt of 8 tokens, by tokens of the document before it
  group        0   20
  asked     50.0  0.0
  controls   0.0  0.0

written with probability 0.25 or more in n samples (t=1,k=40), %, by n
  group        3    50
  asked     50.0  50.0
  controls   0.0   0.0
)"));
  EXPECT_THAT(text, Not(HasSubstr("by tokens of the prompt")));
}

TEST(ReportText, HasATableOfSuffixLengths) {
  EXPECT_THAT(to_text(suffixes_audit()), HasSubstr(R"(
exact match % with the whole prompt, by tokens of the suffix
  group       4     10
  asked     0.0  100.0
  controls  0.0    0.0
)"));
}

TEST(ReportText, OfBucketsHasATableOfPartsAndTimesForEachFigure) {
  EXPECT_THAT(to_text(arms_study()), HasSubstr(R"(
exact match %, by how many times a document came
  training  steps       2      8
  standard  20-50 %   0.0   50.0
  standard  80-100 %    -  100.0

in 1,000 samples with probability 0.5 (t=1,k=40), %
  training  steps       2      8
  standard  20-50 %   0.0   50.0
  standard  80-100 %    -  100.0

median of log10 of the probability (t=1,k=40)
  training  steps         2      8
  standard  20-50 %   -20.0  -10.5
  standard  80-100 %      -   -1.0

exposure of canaries, bits
  training  group   canaries  mean  median  at most  rank 1 %
  standard  late-8         2  5.98    5.98     9.97      50.0

bits of random choices in documents, and those that the model holds; trial 1
  training  group        docs  random  coded  memorized  a parameter
  standard  control         2     160    180          0       0.0000
  standard  late-8          2     160     20        140       0.1400
  standard  all learned     2     160     20        140       0.1400

counterfactual memorization by 8 references, and decisions about each of them by the others
                              nats a  LiRA AUC of references
  group    trial  docs         token            mean (range)  right %  flips %
  late-8       1     2  0.250 ±0.060  0.750 (0.500 to 1.000)     62.5     37.5
  early-8      1     2  0.500 ±0.125                       -        -        -
)"));
  EXPECT_THAT(to_text(small_study()), Not(HasSubstr("exposure")));
}

TEST(ReportText, SaysHowFarTheModelOfAnAuditIsFromItsReference) {
  EXPECT_THAT(to_text(audit_with_reference()), HasSubstr(R"(
losses of documents under the model and the reference, nats a token
  group     docs   loss  reference  KS distance  p
  asked        2  0.500      1.000        0.500  1
  controls     2  2.500      2.500        0.000  1
)"));
  EXPECT_THAT(to_text(recorded_audit()), Not(HasSubstr("KS distance")));
}

TEST(ReportText, NoLineHasMoreThanAHundredColumnsOrEndsWithASpace) {
  MemorizationReport study = small_study(), audit = recorded_audit();
  for (RecitationRun& run : study.runs) {
    run.policies = {"t=1,k=40"};
    for (Recitation& r : run.recitations) {
      r.record = SuffixRecord{.log10_p = {-1}};
      r.scores = MembershipScores{};
    }
  }
  const std::string much(300, 'w');
  study.model = study.groups[0] = study.groups[1] = study.notes[0] = much;
  for (RecitationRun& run : study.runs) run.variant += much;
  audit.groups[0] = audit.document_names[0] = much;
  audit.runs[0].recitations[0].texts->truth = "\x1b[31m" + much + "\n\n" + much;
  audit.runs[0].recitations[0].texts->written = "\xe6\xbc\xa2" + much;
  audit.prompt_lengths = {kWholePrompt, 1'000'000, 2'000'000, 3'000'000, 4'000'000,
                          5'000'000,    6'000'000, 7'000'000, 8'000'000, 9'000'000};
  study.prompt_lengths = audit.prompt_lengths;
  MemorizationReport swept = audit;
  swept.extraction.n.clear();
  for (int i = 1; i <= 20; ++i) swept.extraction.n.push_back(1e14 + i);
  swept.prompt_offsets.assign(10, 1'000'000);
  swept.prompt_offsets[0] = kBeforeSuffix;
  for (const MemorizationReport& report : {study, audit, swept}) {
    std::istringstream text(to_text(report));
    for (std::string line; std::getline(text, line);) {
      EXPECT_LE(utf8_columns(line), 100) << line;
      EXPECT_FALSE(line.ends_with(' ')) << line;
      EXPECT_EQ(line.find('\x1b'), std::string::npos);
    }
  }
  EXPECT_THAT(to_text(audit), HasSubstr("9,000,000"));
}

TEST(ReportText, SaysIfNothingWasRecited) {
  MemorizationReport report = small_study();
  report.runs.clear();
  EXPECT_THAT(to_text(report), HasSubstr("Nothing was recited."));
  report.runs = {{.variant = "standard", .trial = 1}};
  EXPECT_THAT(to_text(report), HasSubstr("Nothing was recited."));
  report.groups.clear();
  report.group_sizes.clear();
  report.prompt_lengths.clear();
  EXPECT_THAT(to_text(report), HasSubstr("Nothing was recited."));
}

TEST(ReportText, GivesTheLongestRunIfNoRecitationIsExact) {
  MemorizationReport report = small_study();
  report.runs.erase(report.runs.begin(), report.runs.begin() + 2);
  EXPECT_THAT(
      to_text(report),
      HasSubstr("\nThe model writes exactly the next 10 tokens for none of 2 documents; the "
                "longest run of tokens that\nit reproduces is 5 of 10.\n"))
      << "the control has two more";
}

}  // namespace
