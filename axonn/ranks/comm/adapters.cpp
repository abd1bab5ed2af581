#include "axonn/ranks/comm/adapters.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <string_view>

namespace axonn {

namespace fs = std::filesystem;

namespace {

constexpr double kMegabit = 1e6 / 8, kGigabit = 1e9 / 8;  // bytes

/// The first line of a file; empty if it cannot be read, as the speed of an interface that is down.
std::string line_of(const fs::path& file) {
  std::string line;
  std::ifstream stream(file);
  std::getline(stream, line);
  return line;
}

std::vector<fs::path> entries_of(const fs::path& folder) {
  std::vector<fs::path> paths;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error))
    paths.push_back(entry->path());
  std::ranges::sort(paths);
  return paths;
}

}  // namespace

std::vector<NetworkAdapter> network_adapters(const std::string& root) {
  const fs::path classes = root + "/sys/class";
  std::vector<NetworkAdapter> adapters;
  std::set<fs::path> listed;  // their hardware
  const auto hardware = [](const fs::path& entry) {
    std::error_code error;
    return fs::weakly_canonical(entry / "device", error);
  };
  for (const fs::path& device : entries_of(classes / "infiniband"))
    for (const fs::path& port : entries_of(device / "ports")) {
      if (!line_of(port / "state").ends_with("ACTIVE")) continue;
      const double gigabits = std::atof(line_of(port / "rate").c_str());  // "200 Gb/sec (4X HDR)"
      adapters.push_back(
          {device.filename().string(), "InfiniBand", std::max(0.0, gigabits * kGigabit)});
      listed.insert(hardware(device));
    }
  for (const fs::path& interface : entries_of(classes / "net")) {
    const std::string name = interface.filename().string();
    if (!fs::exists(interface / "device") || listed.contains(hardware(interface))) continue;
    if (line_of(interface / "operstate") != "up") continue;
    const double megabits = std::atof(line_of(interface / "speed").c_str());  // -1: unknown
    adapters.push_back({name, name.starts_with("hsn") ? "Slingshot" : "Ethernet",
                        std::max(0.0, megabits * kMegabit)});
  }
  std::ranges::sort(adapters, {}, &NetworkAdapter::name);
  return adapters;
}

bool has_slingshot(const std::vector<NetworkAdapter>& adapters) {
  return std::ranges::any_of(adapters, [](const auto& a) { return a.kind == "Slingshot"; });
}

}  // namespace axonn
