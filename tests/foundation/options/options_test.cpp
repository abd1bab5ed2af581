#include "axonn/foundation/options/options.h"

#include <array>
#include <bit>
#include <cmath>
#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <unistd.h>

#include "axonn/foundation/base/check.h"
#include "axonn/foundation/base/numbers.h"
#include "axonn/foundation/base/random.h"
#include "axonn/foundation/options/options_text.h"

using namespace axonn;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::StartsWith;

namespace {

enum class Shape { round, square };
constexpr std::array<std::string_view, 2> kShapes = {"round", "square"};

struct Settings {
  int sides = 4;
  std::int64_t area = 0;
  double edge = 0.5, scale = 1;
  bool filled = true;
  std::string label = "none";
  std::string share;
  std::vector<std::string> colors;
  std::vector<std::int64_t> layers = {1};
  int depth = 0;
  Shape shape = Shape::round;
};

OptionList list_of(Settings& settings) {
  OptionList list;
  list.section("figure", "What is drawn");
  list.add("sides", &settings.sides, {.help = "number of sides", .min = 3, .max = 99});
  list.add("area", &settings.area, {.help = "how large", .unit = "bytes", .min = 0});
  list.add("edge", &settings.edge,
           {.help = "length of one", .min = 0, .below = 1, .also = "side_length"});
  list.add("scale_by", &settings.scale, {.help = "how much larger"});
  list.add("shape", settings.shape, kShapes, {.help = "its form"});
  list.section("paint", "How it is coloured");
  list.add("filled", &settings.filled, {.help = "whether it is filled"});
  list.add("label", &settings.label, {.help = "its name"});
  list.add("share", &settings.share, {.help = "how much of it", .or_number = true});
  list.add("colors", &settings.colors, {.help = "its colours"});
  list.add("layers", &settings.layers, {.help = "where it lies", .min = 0});
  list.add("glaze.depth", &settings.depth, {.help = "how thick the glaze is", .min = 0});
  return list;
}

/// The message of the UsageError that `run` throws.
template <typename Run>
std::string error_of(Run&& run) {
  try {
    run();
  } catch (const UsageError& error) {
    return error.what();
  }
  return "no error";
}

/// The same of reading `text`.
std::string toml_error(std::string_view text) {
  return error_of([&] {
    Settings settings;
    Origins origins;
    read_toml_text(list_of(settings), text, "a.toml", origins);
  });
}

std::string flag_error(const std::vector<std::string>& arguments) {
  return error_of([&] {
    Settings settings;
    Origins origins;
    read_flags(list_of(settings), arguments, origins);
  });
}

}  // namespace

TEST(ReadToml, SetsEveryKindOfValueAndRecordsItsPlace) {
  Settings settings;
  Origins origins;
  read_toml_text(list_of(settings),
                 "[figure]\nsides = 6\n  area = \"2KiB\"\nedge = 0\nshape = \"square\"\n"
                 "[paint]\nfilled = false\nlabel = \"a\\tb\"\ncolors = [\"red\", \"blue\"]\n",
                 "a.toml", origins);
  EXPECT_EQ(settings.sides, 6);
  EXPECT_EQ(settings.area, 2048);
  EXPECT_EQ(settings.edge, 0.0);
  EXPECT_EQ(settings.shape, Shape::square);
  EXPECT_FALSE(settings.filled);
  EXPECT_EQ(settings.label, "a\tb");
  EXPECT_THAT(settings.colors, ElementsAre("red", "blue"));
  EXPECT_EQ(origins.of("figure.area"), "a.toml:3:3");
}

TEST(ReadToml, TakesOneStringForAListANumberForAStringAndLeavesOtherKeysAlone) {
  Settings settings;
  Origins origins;
  read_toml_text(list_of(settings), "[paint]\ncolors = \"red,blue\"\nshare = 0.25", "a.toml",
                 origins);
  EXPECT_THAT(settings.colors, ElementsAre("red,blue"));
  EXPECT_EQ(settings.share, "0.25") << "the option also accepts a number";
  EXPECT_EQ(settings.label, "none");
  EXPECT_EQ(origins.of("paint.label"), "default");
}

TEST(ReadToml, TakesIntegersInListsAndKeysInTablesOfASection) {
  for (const char* text : {"[paint]\nlayers = [4, 16]\nglaze = {depth = 2}\n",
                           "[paint]\nlayers = [4, 16]\nglaze.depth = 2\n",
                           "[paint]\nlayers = [4, 16]\n[paint.glaze]\ndepth = 2\n"}) {
    Settings settings;
    Origins origins;
    read_toml_text(list_of(settings), text, "a.toml", origins);
    EXPECT_THAT(settings.layers, ElementsAre(4, 16));
    EXPECT_EQ(settings.depth, 2);
    EXPECT_TRUE(origins.is_set("paint.glaze.depth"));
  }
  Settings settings;
  Origins origins;
  read_toml_text(list_of(settings), "[paint]\nlayers = []\n", "a.toml", origins);
  EXPECT_THAT(settings.layers, testing::IsEmpty());
  read_toml_text(list_of(settings), "[paint]\nlayers = 7\n", "a.toml", origins);
  EXPECT_THAT(settings.layers, ElementsAre(7));
  EXPECT_THAT(toml_error("[paint]\nglaze = {width = 2}"), HasSubstr("no key 'glaze.width'"));
  EXPECT_THAT(toml_error("[paint]\nglaze = {}"), HasSubstr("no key 'glaze'"));
}

TEST(ReadToml, NamesAnUnknownKeyWithItsPlaceAndASuggestion) {
  EXPECT_EQ(toml_error("[figure]\n\n  sidse = 3"),
            "[figure] has no key 'sidse' (a.toml:3:3); did you mean 'sides'?");
  EXPECT_EQ(toml_error("[figure]\ncolors = 3"),
            "[figure] has no key 'colors' (a.toml:2:1); did you mean [paint] colors?");
  EXPECT_EQ(toml_error("[paint]\nside_length = 3"),
            "[paint] has no key 'side_length' (a.toml:2:1); did you mean [figure] edge?");
  EXPECT_EQ(toml_error("[paint]\nwater = 3"),
            "[paint] has no key 'water' (a.toml:2:1); its keys are filled, label, share, colors, "
            "layers, glaze.depth");
}

TEST(ReadToml, NamesAnUnknownSection) {
  EXPECT_EQ(toml_error("[figrue]\nsides = 3"),
            "there is no section [figrue] (a.toml:1:2); did you mean [figure]?");
  EXPECT_EQ(toml_error("[oven]\nsides = 3"),
            "there is no section [oven] (a.toml:1:2); the sections are [figure], [paint]");
  EXPECT_EQ(toml_error("sides = 3"),
            "'sides' is outside any section (a.toml:1:1); did you mean [figure] sides?");
  EXPECT_THAT(toml_error("[[figure]]\nsides = 3"), StartsWith("[figure] is a section (a.toml:1:"));
}

TEST(ReadToml, NamesTheExpectedTypeAndTheValue) {
  EXPECT_EQ(toml_error("[figure]\nsides = \"ten\""),
            "[figure] sides wants an integer from 3 to 99, got the string \"ten\" (a.toml:2:1)");
  EXPECT_THAT(toml_error("[figure]\nsides = 3.0"), HasSubstr("got 3.0 (a.toml:2:1)"));
  EXPECT_THAT(toml_error("[figure]\nedge = true"),
              HasSubstr("edge wants a number of at least 0 and below 1, got true"));
  EXPECT_THAT(toml_error("[figure]\nshape = 1"), HasSubstr("wants one of round, square, got 1"));
  EXPECT_THAT(toml_error("[figure]\narea = \"2 acres\""), HasSubstr("wants a size in bytes"));
  EXPECT_THAT(toml_error("[paint]\nfilled = \"yes\""),
              HasSubstr("wants true or false, got the string \"yes\""));
  EXPECT_THAT(toml_error("[paint]\nlabel = [\"a\"]"), HasSubstr("wants a string, got a list"));
  EXPECT_THAT(toml_error("[paint]\ncolors = [1]"), HasSubstr("a list of strings, got [1]"));
  EXPECT_THAT(toml_error("[paint]\ncolors = [1, \"a\"]"),
              HasSubstr("element that is not a string"));
  EXPECT_THAT(toml_error("[paint]\nlayers = [\"a\"]"), HasSubstr("wants a list of integers"));
  EXPECT_THAT(toml_error("[paint]\nlayers = [3, -1]"),
              HasSubstr("a list of integers, each of at least 0, got [3, -1]"));
  EXPECT_THAT(toml_error("[paint.label]\na = 1"), HasSubstr("wants a string, got a table"));
  EXPECT_THAT(toml_error("[paint]\nlabel = 2026-01-01"), HasSubstr("got a date or a time"));
}

TEST(ReadToml, RefusesValuesOutOfRange) {
  EXPECT_EQ(toml_error("[figure]\nsides = 2"),
            "[figure] sides wants an integer from 3 to 99, got 2 (a.toml:2:1)");
  for (const char* text : {"sides = 100", "sides = 4294967300", "area = -1", "edge = 1",
                           "edge = -0.1", "scale_by = nan", "scale_by = -inf"})
    EXPECT_THAT(toml_error(std::string("[figure]\n") + text), HasSubstr("wants a")) << text;
  EXPECT_EQ(toml_error("[figure]\nedge = 0.999"), "no error");
}

TEST(ReadToml, ListsTheChoicesAndSuggestsTheClosest) {
  EXPECT_EQ(toml_error("[figure]\nshape = \"sqare\""),
            "[figure] shape wants one of round, square; got 'sqare' (a.toml:2:1); did you mean "
            "'square'?");
}

namespace {

struct Stage {
  std::string name;
  std::int64_t from = 1;
};

void list_stage(Stage& stage, OptionList& list) {
  list.section("stage", "A part");
  list.add("name", &stage.name, {.help = "its name", .required = true});
  list.add("from", &stage.from, {.help = "where it begins", .min = 1});
}

/// A list with a repeated section between others.
OptionList list_of(Settings& settings, std::vector<Stage>& stages) {
  OptionList list = list_of(settings);
  list.repeated("stage", "A part, as often as you like", stages, list_stage);
  return list;
}

}  // namespace

TEST(RepeatedSection, IsReadAndWrittenEntryByEntry) {
  Settings settings;
  std::vector<Stage> stages;
  const OptionList list = list_of(settings, stages);
  Origins origins;
  read_toml_text(list, "[[stage]]\nname = \"a\"\n[[stage]]\nfrom = 7\nname = \"b\"\n", "a.toml",
                 origins);
  ASSERT_EQ(stages.size(), 2u);
  EXPECT_EQ(stages[0].name, "a");
  EXPECT_EQ(stages[0].from, 1);
  EXPECT_EQ(stages[1].name, "b");
  EXPECT_EQ(stages[1].from, 7);
  const std::string text = to_toml(list, origins);
  EXPECT_THAT(text, testing::EndsWith(
                        "\n\n[[stage]]\nname = \"a\"\n\n[[stage]]\nname = \"b\"\nfrom = 7\n"));
  EXPECT_THAT(to_json(list), testing::EndsWith("\"stage\": [{\"name\": \"a\", \"from\": 1}, "
                                               "{\"name\": \"b\", \"from\": 7}]}"));
  // Another text adds entries.
  read_toml_text(list, text, "b.toml", origins);
  ASSERT_EQ(stages.size(), 4u);
  EXPECT_EQ(stages[3].from, 7);
  stages.clear();
  EXPECT_THAT(to_toml(list, origins), Not(HasSubstr("stage")));
}

TEST(RepeatedSection, MayLieInAnotherSection) {
  Settings settings;
  std::vector<Stage> stages;
  OptionList list = list_of(settings);
  list.repeated(
      "figure.part", "Parts of a figure", stages, +[](Stage& stage, OptionList& keys) {
        keys.section("figure.part", "A part");
        keys.add("name", &stage.name, {.help = "its name"});
        keys.add("from", &stage.from, {.help = "where it begins", .min = 1});
      });
  Origins origins;
  const auto read = [&](const std::string& text) { read_toml_text(list, text, "a.toml", origins); };
  read("[figure]\nsides = 5\n[[figure.part]]\nname = \"a\"\n[[figure.part]]\nfrom = 7\n");
  ASSERT_EQ(stages.size(), 2u);
  EXPECT_EQ(stages[0].name, "a");
  EXPECT_EQ(stages[1].from, 7);
  EXPECT_EQ(settings.sides, 5);
  const std::string text = to_toml(list, origins);
  EXPECT_THAT(text, testing::EndsWith("[[figure.part]]\nfrom = 7\n"));
  stages.clear();
  read(text);
  EXPECT_EQ(stages.size(), 2u) << "what was written is read back";
  EXPECT_THAT(error_of([&] { read("[[figure.part]]\nform = 3\n"); }),
              HasSubstr("did you mean 'from'?"));
  EXPECT_THAT(error_of([&] { read("[figure.part]\nfrom = 3\n"); }),
              HasSubstr("write each as [[figure.part]]"));
  EXPECT_THAT(error_of([&] { read("[[figure.parts]]\nfrom = 3\n"); }), HasSubstr("figure"));
}

TEST(RepeatedSection, ThatIsUnknownIsRefusedOrPassedOverAsAnySection) {
  Settings settings;
  Origins origins;
  const std::string_view text = "[[stage]]\nname = \"a\"\n[figure]\nsides = 5\n";
  EXPECT_THAT(toml_error(text), HasSubstr("stage"));
  EXPECT_THAT(toml_error("[[figures]]\nsides = 5\n"), HasSubstr("did you mean [figure]?"));
  read_toml_text(list_of(settings), text, "a.toml", origins, UnknownSections::skip);
  EXPECT_EQ(settings.sides, 5);
}

TEST(RepeatedSection, IsExplained) {
  Settings settings;
  std::vector<Stage> stages{{"a", 3}};
  const OptionList list = list_of(settings, stages);
  EXPECT_THAT(to_markdown(list),
              testing::EndsWith("## [[stage]]\n\nA part, as often as you like.\n\n"
                                "| key | takes | default | meaning |\n| --- | --- | --- | --- |\n"
                                "| `name` | a string | must be set | its name |\n"
                                "| `from` | an integer of at least 1 | `1` | where it begins |\n"));
  EXPECT_THAT(help_for(list, "stage"),
              StartsWith("[[stage]]  A part, as often as you like\n  name"));
}

TEST(RepeatedSection, RefusesAPlainTableFlagsAndUnknownKeys) {
  Settings settings;
  std::vector<Stage> stages;
  const OptionList list = list_of(settings, stages);
  Origins origins;
  const auto fault_in = [&](const char* text) {
    return error_of([&] { read_toml_text(list, text, "a.toml", origins); });
  };
  EXPECT_THAT(fault_in("[stage]\nfrom = 3\n"), HasSubstr("write each as [[stage]]"));
  EXPECT_THAT(fault_in("[[stage]]\nform = 3\n"), HasSubstr("did you mean 'from'?"));
  EXPECT_THAT(fault_in("[[stage]]\nfrom = 0\n"),
              HasSubstr("[stage] from wants an integer of at least 1, got 0 (a.toml:2:1)"));
  const std::vector<std::string> flags{"--stage.from", "3"};
  EXPECT_EQ(error_of([&] { read_flags(list, flags, origins); }),
            "--stage.from: [[stage]] has no flags; write its entries in a file");
}

TEST(ReadToml, NamesTheLineOfASyntaxError) {
  EXPECT_THAT(toml_error("[figure]\nsides = = 3"), StartsWith("a.toml:2:9: not valid TOML: "));
  EXPECT_THAT(toml_error("[figure]\nsides = 3\nsides = 4"), StartsWith("a.toml:3:"));
  EXPECT_THAT(toml_error("\xff\xfe"), HasSubstr("not valid TOML"));
  for (const char* header : {"[!]", "[.figure]", "[[=", "[\xc3\xa9]"})
    EXPECT_THAT(toml_error(header), StartsWith("a.toml:1:")) << header;
}

TEST(ReadToml, RefusesAMissingFileAndAFolderAndSuggestsAFile) {
  const auto folder =
      std::filesystem::temp_directory_path() / ("axonn_options_test_" + std::to_string(::getpid()));
  std::filesystem::create_directories(folder);
  std::ofstream(folder / "train.toml") << "[figure]\nsides = 5\n";
  Settings settings;
  Origins origins;
  const OptionList list = list_of(settings);
  const auto error = [&](const std::string& path) -> std::string {
    try {
      read_toml(list, path, origins);
    } catch (const UsageError& refused) {
      return refused.what();
    }
    return "no error";
  };
  EXPECT_EQ(error(folder / "train.toml"), "no error");
  EXPECT_EQ(settings.sides, 5);
  EXPECT_THAT(error(folder / "trian.toml"),
              testing::AllOf(HasSubstr("No such file"), HasSubstr("/train.toml'?")));
  EXPECT_THAT(error(folder), HasSubstr("is a folder"));
  EXPECT_THAT(error("/nowhere/at/all.toml"), HasSubstr("No such file"));
  std::filesystem::remove_all(folder);
}

TEST(ReadFlags, TakesBothFormsAndBothDashesAndReturnsOtherArgumentsInOrder) {
  Settings settings;
  Origins origins;
  const std::vector<std::string> arguments = {
      "file.toml",           "--figure.sides",    "7",   "--fast",
      "--figure.scale-by=3", "--paint.label=x y", "rest"};
  EXPECT_THAT(read_flags(list_of(settings), arguments, origins),
              ElementsAre("file.toml", "--fast", "rest"));
  EXPECT_EQ(settings.sides, 7);
  EXPECT_EQ(settings.label, "x y");
  EXPECT_EQ(settings.scale, 3.0);
  EXPECT_EQ(origins.of("figure.sides"), "--figure.sides");
}

TEST(ReadFlags, ReplacesTheListOfTheFileAndAppendsWhenRepeated) {
  Settings settings;
  settings.colors = {"from the file"};
  Origins origins;
  const std::vector<std::string> arguments = {"--paint.colors", "red,green", "--paint.colors=blue"};
  read_flags(list_of(settings), arguments, origins);
  EXPECT_THAT(settings.colors, ElementsAre("red", "green", "blue"));
  const std::vector<std::string> numbers = {"--paint.layers", "4,16", "--paint.layers=64",
                                            "--paint.glaze.depth", "3"};
  read_flags(list_of(settings), numbers, origins);
  EXPECT_THAT(settings.layers, ElementsAre(4, 16, 64));
  EXPECT_EQ(settings.depth, 3);
}

TEST(ReadFlags, TakesABooleanWithOrWithoutAValue) {
  for (const auto& [text, want] : {std::pair{"--paint.filled", true},
                                   {"--paint.filled=true", true},
                                   {"--paint.filled=false", false},
                                   {"--paint.filled=off", false},
                                   {"--paint.filled=0", false}}) {
    Settings settings;
    settings.filled = !want;
    Origins origins;
    const std::vector<std::string> arguments = {text, "--other"};
    read_flags(list_of(settings), arguments, origins);
    EXPECT_EQ(settings.filled, want) << text;
  }
}

TEST(ReadFlags, TakesNegativeNumbersAndEmptyStringsAsValues) {
  EXPECT_THAT(flag_error({"--figure.sides", "-3"}), HasSubstr("got -3 (--figure.sides)"));
  Settings settings;
  Origins origins;
  const std::vector<std::string> arguments = {"--paint.label="};
  read_flags(list_of(settings), arguments, origins);
  EXPECT_EQ(settings.label, "");
}

TEST(ReadFlags, NamesTheWrongFlag) {
  EXPECT_EQ(flag_error({"--figure.sidse", "3"}),
            "[figure] has no key 'sidse' (--figure.sidse); did you mean 'sides'?");
  EXPECT_EQ(flag_error({"--figrue.sides=3"}),
            "there is no section [figrue] (--figrue.sides); did you mean [figure]?");
  EXPECT_EQ(flag_error({"--figure.sides", "ten"}),
            "[figure] sides wants an integer from 3 to 99, got 'ten' (--figure.sides)");
  EXPECT_THAT(flag_error({"--figure.sides"}), HasSubstr("got nothing (--figure.sides)"));
  EXPECT_THAT(flag_error({"--figure.sides", "--fast"}), HasSubstr("got nothing"));
  EXPECT_THAT(flag_error({"--paint.filled", "maybe"}), HasSubstr("got 'maybe'"));
}

TEST(ToToml, ReadsBackToTheSameValuesAndShowsEachOrigin) {
  Settings settings;
  settings.edge = 1.0 / 3;
  settings.label = "a \"quoted\" \\ path\n";
  settings.colors = {"red", "b,lue"};
  settings.layers = {1, 2, 3};
  settings.depth = 5;
  settings.shape = Shape::square;
  Origins origins;
  origins.set("figure.edge", "a.toml:2:1");
  const std::string text = to_toml(list_of(settings), origins);
  EXPECT_THAT(text, HasSubstr("sides = 4"));
  EXPECT_THAT(text, HasSubstr("# a.toml:2:1\n"));
  EXPECT_THAT(text, HasSubstr("# default\n"));

  Settings read;
  Origins places;
  read_toml_text(list_of(read), text, "printed", places);
  EXPECT_EQ(read.edge, settings.edge);
  EXPECT_EQ(read.label, settings.label);
  EXPECT_EQ(read.colors, settings.colors);
  EXPECT_EQ(read.layers, settings.layers);
  EXPECT_EQ(read.depth, settings.depth);
  EXPECT_EQ(read.shape, settings.shape);
}

TEST(ToJson, HoldsEverySectionAndValueOnOneLine) {
  Settings settings;
  EXPECT_EQ(
      to_json(list_of(settings)),
      R"({"figure": {"sides": 4, "area": 0, "edge": 0.5, "scale_by": 1.0, "shape": "round"}, )"
      R"("paint": {"filled": true, "label": "none", "share": "", "colors": [], "layers": [1], )"
      R"("glaze.depth": 0}})");
}

TEST(HelpFor, FindsASectionAKeyWithItsSectionAndAKeyAlone) {
  Settings settings;
  const OptionList list = list_of(settings);
  EXPECT_THAT(help_for(list, "paint"), HasSubstr("whether it is filled"));
  EXPECT_THAT(help_for(list, "figure.edge"),
              testing::AllOf(HasSubstr("length of one"), HasSubstr("--figure.edge VALUE"),
                             HasSubstr("side_length")));
  EXPECT_EQ(help_for(list, "edge"), help_for(list, "--figure.edge"));
  EXPECT_EQ(help_for(list, "scale"), "see also: figure.scale_by\n") << "a word of a key's name";
  EXPECT_THAT([&] { help_for(list, "egde"); },
              testing::ThrowsMessage<UsageError>(HasSubstr("did you mean [figure] edge?")));
}

TEST(OptionList, AnswersTheNamesOfOtherProjectsThatNoKeyMeansWithTheRemedy) {
  Settings settings;
  OptionList list = list_of(settings);
  constexpr OtherNames names[] = {{"corners corner_count", "set figure.sides"}};
  list.explain(names);
  EXPECT_EQ(error_of([&] { refuse_key(list, "paint", "corner_count", "f.toml:2:1"); }),
            "there is no key 'corner_count' (f.toml:2:1); set figure.sides");
  Origins origins;
  EXPECT_THAT(error_of([&] { read_toml_text(list, "corners = 3", "f.toml", origins); }),
              HasSubstr("(f.toml:1:1); set figure.sides"));
  EXPECT_EQ(help_for(list, "corners"), "corners: set figure.sides\n");
  EXPECT_EQ(help_for(list, "side_length"), help_for(list, "edge")) << "another name of a key";
  EXPECT_EQ(list.remedy_for("corner"), "");
}

TEST(OptionList, RefusesAKeyThatIsListedTwice) {
  Settings settings;
  OptionList list = list_of(settings);
  EXPECT_THROW(list.add("label", &settings.label, {.help = "again"}), Error);
  EXPECT_THROW(list.section("figure", "again"), Error);
}

TEST(TomlNumber, ReadsBackToTheSameBitsAndAlwaysHasAPointOrAnExponent) {
  const Random random(5, "toml numbers");
  for (std::uint64_t i = 0; i < 20'000; ++i) {
    const double value =
        std::bit_cast<double>(std::uint64_t{random.bits(i)[0]} << 32 | random.bits(i)[1]);
    if (!std::isfinite(value)) continue;
    const std::string text = toml_number(value);
    ASSERT_EQ(std::bit_cast<std::uint64_t>(parse_real(text).value()),
              std::bit_cast<std::uint64_t>(value))
        << text;
    ASSERT_NE(text.find_first_of(".e"), std::string::npos) << text;
  }
  EXPECT_EQ(toml_number(0.1), "0.1");
  EXPECT_EQ(toml_number(3), "3.0");
}

TEST(TomlString, EscapesQuotesBackslashesAndControlCharacters) {
  EXPECT_EQ(toml_string("a\"b\\c\n\x7f"), R"("a\"b\\c\u000A\u007F")");
}

TEST(TomlString, RefusesTextThatNoTomlFileCanHold) {
  EXPECT_THROW(toml_string("caf\xe9"), UsageError);
  std::string dir;
  OptionList list;
  list.section("output", "");
  list.add("dir", &dir, {});
  try {
    list.find("output", "dir")->set_text("caf\xe9/out", "--output.dir");
    FAIL() << "accepted";
  } catch (const UsageError& error) {
    EXPECT_THAT(error.what(), testing::StartsWith("[output] dir = caf\uFFFD/out is not UTF-8"));
  }
}

TEST(EditDistance, CountsInsertionsDeletionsReplacementsAndSwappedNeighboursAsOneEach) {
  EXPECT_EQ(edit_distance("steps", "steps"), 0);
  EXPECT_EQ(edit_distance("steps", "step"), 1);
  EXPECT_EQ(edit_distance("steps", "stepps"), 1);
  EXPECT_EQ(edit_distance("steps", "stops"), 1);
  EXPECT_EQ(edit_distance("steps", "stesp"), 1);
  EXPECT_EQ(edit_distance("steps", "tseps"), 1);
  EXPECT_EQ(edit_distance("", "abc"), 3);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3);
}

TEST(EditDistance, IgnoresCaseAndTheKindOfDash) {
  EXPECT_EQ(edit_distance("Seq-Len", "seq_len"), 0);
}

TEST(Nearest, GivesAllCandidatesAtTheLeastDistanceAndNoneThatIsTooFar) {
  const std::vector<std::string> words = {"beta1", "beta2", "eps", "weight_decay"};
  EXPECT_THAT(nearest("beta", words), ElementsAre("beta1", "beta2"));
  EXPECT_THAT(nearest("beta11", words), ElementsAre("beta1"));
  EXPECT_THAT(nearest("weigt_deacy", words), ElementsAre("weight_decay"));
  EXPECT_THAT(nearest("momentum", words), IsEmpty());
}

TEST(DidYouMean, JoinsGuessesIntoAQuestionAndIsEmptyWithoutAny) {
  EXPECT_EQ(did_you_mean({}), "");
  const std::vector<std::string> one = {"lr"}, three = {"x", "y", "[data] z"};
  EXPECT_EQ(did_you_mean(one), "; did you mean 'lr'?");
  EXPECT_EQ(did_you_mean(three), "; did you mean 'x', 'y' or [data] z?");
}

TEST(Option, ChecksTheValueThatAProgramPutIntoItsVariable) {
  Settings settings;
  const auto error = [&] {
    const OptionList list = list_of(settings);
    return error_of([&] {
      for (const auto& section : list.sections())
        for (const Option& option : section.options) option.check();
    });
  };
  EXPECT_EQ(error(), "no error");
  settings.sides = 2;
  EXPECT_EQ(error(), "[figure] sides wants an integer from 3 to 99, got 2");
  settings = {.edge = 1};
  EXPECT_THAT(error(), StartsWith("[figure] edge wants a number of at least 0 and below 1, got 1"));
  settings = {.layers = {0, -1}};
  EXPECT_THAT(error(), HasSubstr("[paint] layers wants a list of integers, each of at least 0"));
  settings = {.shape = static_cast<Shape>(5)};
  EXPECT_EQ(error(), "[figure] shape wants one of round, square, got value 5");
}

TEST(Option, ThatIsRequiredMayBeUnsetInItsVariable) {
  Settings settings{.sides = 0};
  OptionList list;
  list.section("figure", "What is drawn");
  list.add("sides", &settings.sides, {.help = "number of sides", .min = 3, .required = true});
  EXPECT_EQ(error_of([&] { list.find("figure", "sides")->check(); }), "no error");
}
