// Checks every #include in axonn/ against the table in docs/overview.md.
#include <algorithm>
#include <sstream>

#include <gmock/gmock.h>

#include "tests/project/source_tree.h"

using namespace axonn::testing_support;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

namespace {

/// A row of the table: a room, and the rooms (or single headers) that it may include.
struct Room {
  std::string floor, name;
  std::vector<std::string> may_include;
};

/// The rows between ```layers and ```; a line without a space in front names a floor.
std::vector<Room> parse_rooms(const SourceFile& document) {
  std::vector<Room> rooms;
  std::string floor;
  bool inside = false;
  for (const std::string& line : document.lines) {
    if (line.starts_with("```")) {
      inside = line == "```layers";
    } else if (inside && !line.starts_with(' ')) {
      floor = line;
    } else if (inside) {
      std::istringstream words(line);
      Room room{.floor = floor, .name = {}, .may_include = {}};
      words >> room.name;
      for (std::string word; words >> word;) room.may_include.push_back(word);
      rooms.push_back(room);
    }
  }
  return rooms;
}

/// Whether the file may include the header, "axonn/foundation/base/check.h".
bool allowed(const std::vector<Room>& rooms, const SourceFile& file, const std::string& header) {
  const SourceFile included{.path = header, .lines = {}};
  const std::string room = included.room();
  if (room.empty()) return false;
  const std::string in_floor = header.substr(header.find(included.floor() + '/' + room) +
                                             included.floor().size() + 1);  // "base/check.h"
  if (included.floor() == file.floor() && room == file.room()) return true;
  const auto row = std::ranges::find(rooms, file.room(), &Room::name);
  if (row == rooms.end() || row->floor != file.floor()) return false;
  return std::ranges::any_of(
      row->may_include, [&](const std::string& one) { return one == room || one == in_floor; });
}

std::vector<std::string> violations(const std::vector<Room>& rooms,
                                    const std::vector<SourceFile>& files) {
  std::vector<std::string> found;
  for (const SourceFile& file : files) {
    if (file.floor().empty() || !file.is_cpp()) continue;
    for (std::size_t i = 0; i < file.lines.size(); ++i) {
      const std::string header = included_by(file.lines[i]);
      if (header.empty() || header.starts_with('<')) continue;
      if (!header.starts_with("axonn/") || !allowed(rooms, file, header))
        found.push_back(file.path + ":" + std::to_string(i + 1) + " includes " + header);
    }
  }
  return found;
}

/// Finds headers of third-party libraries that axonn's headers include. Exceptions: the private
/// headers of the mpi transport, of oneDNN's versions and of JSON files that are read, and the
/// compiler's header of vector instructions.
std::vector<std::string> foreign_headers(const std::vector<SourceFile>& files) {
  std::vector<std::string> found;
  for (const SourceFile& file : files) {
    if (file.floor().empty() || !file.ends_with(".h")) continue;
    if (file.path.starts_with("axonn/ranks/comm/mpi/mpi_")) continue;
    if (file.path == "axonn/compute/ops/cpu/matmul/onednn.h") continue;
    if (file.path == "axonn/network/model/json_reader.h" ||
        file.path == "axonn/foundation/base/asked_keys.h" ||
        file.path == "axonn/app/serve/request_body.h")
      continue;
    for (const std::string& line : file.lines) {
      const std::string header = included_by(line);
      if (header == "<immintrin.h>" || header == "<arm_neon.h>" || header == "<arm_sve.h>")
        continue;
      if (header.starts_with('<') && header.find_first_of("./") != std::string::npos)
        found.push_back(file.path + " includes " + header);
    }
  }
  return found;
}

std::vector<Room> table() { return parse_rooms(read_source("docs/overview.md")); }

}  // namespace

TEST(Layering, EveryIncludeIsInTheTableOfTheOverview) {
  EXPECT_THAT(violations(table(), source_tree()), IsEmpty());
}

TEST(Layering, TheTableHasEveryRoomOnceOnItsFloorAndRefersOnlyToRoomsAbove) {
  std::vector<std::string> above, places;
  for (const Room& room : table()) {
    EXPECT_THAT(above, testing::Not(testing::Contains(room.name)));
    for (const std::string& one : room.may_include)
      EXPECT_THAT(above, testing::Contains(one.substr(0, one.find('/')))) << room.name;
    above.push_back(room.name);
    places.push_back(room.floor + '/' + room.name);
  }
  for (const SourceFile& file : source_tree())
    if (!file.floor().empty()) {
      EXPECT_THAT(places, testing::Contains(file.floor() + '/' + file.room())) << file.path;
    }
}

TEST(Layering, TheTableOfLibrariesHasTheSameOrder) {
  std::vector<std::string> listed, built;
  for (const Room& room : table()) listed.push_back(room.floor + '/' + room.name);
  for (const std::string& line : read_source("axonn/CMakeLists.txt").lines) {
    if (!line.starts_with("  ") || line.find('/') == std::string::npos) continue;
    std::istringstream words(line.substr(0, line.find(')')));
    for (std::string word; words >> word;) built.push_back(word);
  }
  EXPECT_EQ(built, listed);
}

TEST(Layering, AnIncludeThatTheTableDoesNotAllowIsReportedWithItsLine) {
  const std::vector<Room> rooms = {
      {"low", "base", {}}, {"low", "comm", {"base"}}, {"high", "io", {"comm/grid.h"}}};
  const auto found = [&](const char* path, const char* text) {
    return violations(rooms, {source_file(path, text)});
  };
  EXPECT_THAT(found("axonn/low/base/a.h", "#pragma once\n#include \"axonn/low/comm/grid.h\"\n"),
              ElementsAre("axonn/low/base/a.h:2 includes axonn/low/comm/grid.h"));
  EXPECT_THAT(
      found("axonn/low/comm/a.cpp", "#include \"axonn/low/base/check.h\"\n#include <map>\n"),
      IsEmpty());
  EXPECT_THAT(found("axonn/high/io/a.cpp", "#include \"axonn/low/comm/grid.h\"\n"), IsEmpty());
  EXPECT_THAT(found("axonn/high/io/b/a.cpp", "#include \"axonn/high/io/b/c.h\"\n"), IsEmpty());
  EXPECT_THAT(found("axonn/high/io/a.cpp", "#include \"axonn/low/comm/self.h\"\n"),
              ElementsAre(HasSubstr("a.cpp:1")));
  EXPECT_THAT(found("axonn/high/io/a.cpp", "#include \"tests/support/tiny_model.h\"\n"),
              ElementsAre(HasSubstr("tests/support")));
  EXPECT_THAT(found("axonn/low/new/a.cpp", "#include \"axonn/low/base/check.h\"\n"),
              ElementsAre(HasSubstr("axonn/low/new")));
  EXPECT_THAT(found("axonn/high/comm/a.cpp", "#include \"axonn/low/base/check.h\"\n"),
              ElementsAre(HasSubstr("axonn/high/comm")));
}

TEST(Layering, NoHeaderIncludesAThirdPartyLibrary) {
  EXPECT_THAT(foreign_headers(source_tree()), IsEmpty());
  EXPECT_THAT(
      foreign_headers({source_file("axonn/compute/ops/a.h", "#include <oneapi/dnnl/dnnl.hpp>\n")}),
      ElementsAre(HasSubstr("dnnl")));
}
