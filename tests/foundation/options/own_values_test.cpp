// The keys that a program adds, and the registry of its choices.
#include "axonn/foundation/options/own_values.h"

#include <functional>

#include <gmock/gmock.h>

#include "axonn/foundation/base/check.h"
#include "axonn/foundation/options/options_text.h"
#include "axonn/foundation/options/registry.h"

using namespace axonn;
using testing::ElementsAre;
using testing::HasSubstr;

namespace {

std::string own_error_of(const std::function<void()>& run) {
  try {
    run();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

/// Adds [leaf] once per process.
void add_leaf() {
  static const bool once = [] {
    add_own_section({.name = "leaf",
                     .help = "A leaf",
                     .keys = {{.name = "veins", .value = 7, .help = "how many"},
                              {.name = "green", .value = 0.5, .help = "how green"},
                              {.name = "tree", .value = "oak", .help = "whose"}}});
    return true;
  }();
  static_cast<void>(once);
}

}  // namespace

TEST(OwnValues, AreTheDefaultsUntilTheyAreSetInASectionLikeAnyOther) {
  add_leaf();
  OwnValues values;
  EXPECT_EQ(own_value_as<std::int64_t>(values, "leaf.veins"), 7);
  EXPECT_EQ(own_value_as<std::string>(values, "leaf.tree"), "oak");
  OptionList list;
  list_own_section("leaf", values, list, {});
  Origins origins;
  read_toml_text(list, "[leaf]\nveins = 9\n", "a.toml", origins);
  EXPECT_EQ(own_value_as<std::int64_t>(values, "leaf.veins"), 9);
  EXPECT_EQ(own_value_as<double>(values, "leaf.green"), 0.5);
  EXPECT_THAT(own_error_of([&] { read_toml_text(list, "[leaf]\nvein = 9\n", "a.toml", origins); }),
              HasSubstr("did you mean 'veins'"));
}

TEST(OwnValues, OfAWrongKeyOrTypeAreErrorsThatNameTheRightOnes) {
  add_leaf();
  const OwnValues none;
  EXPECT_EQ(own_error_of([&] { own_value_as<double>(none, "leaf.gren"); }),
            "own: no registered section has a key 'leaf.gren'; did you mean 'leaf.green'?");
  EXPECT_THAT(own_error_of([&] { own_value_as<double>(none, "stem"); }),
              HasSubstr("'stem'; there are leaf.veins, leaf.green, leaf.tree"));
  EXPECT_EQ(own_error_of([&] { own_value_as<double>(none, "leaf.veins"); }),
            "own: leaf.veins is a std::int64_t; call own<std::int64_t>(\"leaf.veins\")");

  constexpr std::array<std::string_view, 1> kSections = {"leaf"};
  const auto refused = [&](const OwnValues& values) {
    return own_error_of([&] { validate_own_values(values, kSections); });
  };
  EXPECT_EQ(refused({{"leaf.veins", 3}}), "no error");
  EXPECT_THAT(refused({{"leaf.vein", 3}}), HasSubstr("did you mean 'leaf.veins'"));
  EXPECT_THAT(refused({{"leaf.veins", 3.0}}),
              HasSubstr("leaf.veins as double; it is std::int64_t"));
  EXPECT_THAT(refused({{"root.depth", 3}}), HasSubstr("no key of leaf"));
}

TEST(OwnValues, SectionsAndKeysHaveNamesOfTheirOwn) {
  add_leaf();
  const auto refused = [](const OwnSection& section) {
    return own_error_of([&] { add_own_section(section); });
  };
  EXPECT_EQ(refused({.name = "leaf", .help = {}, .keys = {}}),
            "there is a section [leaf] already; choose another name");
  EXPECT_THAT(refused({.name = "My leaf", .help = {}, .keys = {}}), HasSubstr("small letters"));
  EXPECT_THAT(refused({.name = "", .help = {}, .keys = {}}), HasSubstr("small letters"));
  const OwnKey key{.name = "a", .value = 1, .help = {}},
      dotted{.name = "a.b", .value = 1, .help = {}};
  EXPECT_EQ(refused({.name = "twig", .help = {}, .keys = {key, key}}),
            "the key 'a' of [twig] is listed twice");
  EXPECT_THAT(refused({.name = "twig", .help = {}, .keys = {dotted}}),
              HasSubstr("'a.b' of a key of [twig]"));
}

TEST(Registry, PutsRegisteredChoicesBehindThoseOfTheLibrary) {
  struct Tree {
    std::string name;
  };
  Registry<Tree> trees("forest.tree", {"oak", "elm"});
  trees.add({"yew"});
  EXPECT_THAT(trees.names(), ElementsAre("oak", "elm", "yew"));
  EXPECT_EQ(trees.value_of("yew"), 2u);
  EXPECT_EQ(trees.find(2)->name, "yew");
  EXPECT_EQ(trees.find(1), nullptr);
  EXPECT_EQ(own_error_of([&] { trees.value_of("fir"); }),
            "forest.tree wants one of oak, elm, yew; got 'fir'");
  EXPECT_EQ(own_error_of([&] { trees.add({"elm"}); }),
            "forest.tree 'elm' exists already (oak, elm, yew); choose another name");
  EXPECT_EQ(own_error_of([&] { trees.find(7); }),
            "forest.tree has no value 7; there are 3: oak, elm, yew");
}
