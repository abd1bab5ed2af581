// Collectives of Frontier and Perlmutter, measured by others on half of the numbers of devices that
// they measured, against those on the other half.
#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <numeric>
#include <vector>

#include <gmock/gmock.h>

#include "axonn/plan/planner/costs.h"

using namespace axonn;

namespace {

/// Milliseconds of 1 MiB, 2 MiB, ... 1 GiB on all devices of whole nodes; 0: not measured. From
/// axonn-ai/sc2025-pccl-reproducer at cfad79d, the folders that the machine files name.
struct Measured {
  const char *machine, *operation;
  CollectivesKind form;
  int devices;
  std::array<double, 11> ms;
};

constexpr Measured kOtherHalf[] = {
    {"frontier",
     "all_gather",
     CollectivesKind::two_level,
     32,
     {0.509, 0.347, 0.408, 0.395, 0.512, 0.795, 1.346, 2.491, 4.834, 0, 0}},
    {"frontier",
     "all_gather",
     CollectivesKind::two_level,
     128,
     {0.793, 0.662, 0.773, 0.657, 0.765, 1.042, 1.575, 2.961, 5.615, 10.725, 21.659}},
    {"frontier",
     "all_gather",
     CollectivesKind::two_level,
     512,
     {2.466, 1.587, 2.682, 2.54, 3.185, 3.948, 4.395, 5.539, 11.69, 16.599, 31.416}},
    {"frontier",
     "reduce_scatter",
     CollectivesKind::flat,
     32,
     {0.559, 0.605, 0.902, 0.901, 0.926, 1.044, 1.15, 1.848, 3.465, 6.666, 13.096}},
    {"frontier",
     "reduce_scatter",
     CollectivesKind::flat,
     128,
     {8.606, 1.348, 2.383, 2.448, 3.524, 3.534, 3.581, 4.054, 4.414, 7.256, 13.774}},
    {"frontier",
     "reduce_scatter",
     CollectivesKind::flat,
     512,
     {79.128, 3.043, 4.049, 5.365, 10.614, 15.041, 17.286, 13.768, 16.671, 15.787, 17.311}},
    {"frontier",
     "reduce_scatter",
     CollectivesKind::two_level,
     32,
     {0.527, 0.53, 0.541, 0.621, 0.778, 1.105, 1.87, 3.367, 6.372, 12.656, 25.348}},
    {"frontier",
     "reduce_scatter",
     CollectivesKind::two_level,
     128,
     {1.301, 1.175, 1.057, 1.011, 1.147, 1.529, 2.356, 3.99, 7.251, 14.45, 29.775}},
    {"frontier",
     "reduce_scatter",
     CollectivesKind::two_level,
     512,
     {2.945, 3.184, 3.488, 2.809, 2.552, 2.935, 3.514, 5.944, 8.777, 16.564, 30.694}},
    {"perlmutter",
     "all_gather",
     CollectivesKind::flat,
     32,
     {0.414, 0.449, 0.513, 0.686, 0.78, 0.836, 1.293, 2.294, 4.388, 8.497, 17.145}},
    {"perlmutter",
     "all_gather",
     CollectivesKind::flat,
     128,
     {0.972, 0.975, 1.345, 1.503, 1.825, 2.539, 2.809, 3.177, 4.973, 9.061, 17.56}},
    {"perlmutter",
     "all_gather",
     CollectivesKind::flat,
     512,
     {3.481, 3.383, 4.046, 3.688, 5.339, 5.935, 6.652, 9.246, 10.264, 13.345, 20.228}},
    {"perlmutter",
     "all_gather",
     CollectivesKind::two_level,
     32,
     {0.33, 0.348, 0.376, 0.469, 0.686, 1.114, 2.062, 3.85, 7.437, 14.425, 25.921}},
    {"perlmutter",
     "all_gather",
     CollectivesKind::two_level,
     128,
     {0.547, 0.546, 0.608, 0.674, 0.887, 1.319, 2.235, 4.113, 8.367, 16.038, 30.741}},
    {"perlmutter",
     "all_gather",
     CollectivesKind::two_level,
     512,
     {1.332, 1.333, 1.399, 3.022, 3.281, 3.693, 4.595, 5.686, 9.836, 17.915, 33.84}},
};

/// |log(predicted / measured)| of the measured sizes from `from` to `to`, in powers of 2 of MiB.
std::vector<double> errors(const Machine& machine, const Measured& one, int from, int to) {
  const GridShape grid{.z = one.devices};
  const MachineCosts costs(machine, grid, one.form);
  std::vector<double> all;
  for (int i = from; i <= to; ++i) {
    if (one.ms[i] == 0) continue;
    const CollectiveCost cost = costs.collective({.group = "z",
                                                  .ranks = one.devices,
                                                  .operation = one.operation,
                                                  .label = {},
                                                  .bytes = std::int64_t{1} << (20 + i)});
    all.push_back(std::abs(std::log((cost.latency_s + cost.link_s) / (1e-3 * one.ms[i]))));
  }
  return all;
}

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

/// The median factor by which predictions are off, less 1, of all or of one form's collectives.
double median_error(const char* machine_name, CollectivesKind form, int from, int to,
                    bool without_measured = false) {
  Machine machine = read_machine(machine_name);
  if (without_measured)
    std::erase_if(machine.groups,
                  [](const GroupRate& rate) { return rate.form != CollectivesKind::automatic; });
  std::vector<double> all;
  for (const Measured& one : kOtherHalf) {
    if (one.machine != std::string_view(machine_name) || one.form != form) continue;
    const auto some = errors(machine, one, from, to);
    all.insert(all.end(), some.begin(), some.end());
  }
  return std::exp(median(all)) - 1;
}

}  // namespace

TEST(MeasuredCollectives, OfOtherNumbersOfDevicesArePredictedFromThoseBesideThem) {
  struct Bound {
    const char* machine;
    CollectivesKind form;
    double small, large;  ///< errors up to 16 MiB, and from 32 MiB on
  };
  constexpr Bound kBounds[] = {{"frontier", CollectivesKind::flat, 0.25, 0.07},
                               {"frontier", CollectivesKind::two_level, 0.25, 0.08},
                               {"perlmutter", CollectivesKind::flat, 0.08, 0.07},
                               {"perlmutter", CollectivesKind::two_level, 0.14, 0.04}};
  for (const auto& [machine, form, small, large] : kBounds) {
    EXPECT_LE(median_error(machine, form, 0, 4), small) << machine;
    EXPECT_LE(median_error(machine, form, 5, 10), large) << machine;
    EXPECT_GT(median_error(machine, form, 0, 4, true), 1.5) << machine << " by the formula";
  }
}

TEST(MeasuredCollectives, InTwoLevelsAreFasterUntilTheirBytesCount) {
  const Machine machine = read_machine("perlmutter");
  const GridShape grid{.z = 512};
  const auto seconds = [&](CollectivesKind form, std::int64_t bytes) {
    const CollectiveCost cost = MachineCosts(machine, grid, form)
                                    .collective({.group = "z",
                                                 .ranks = 512,
                                                 .operation = "all_gather",
                                                 .label = {},
                                                 .bytes = bytes});
    return cost.latency_s + cost.link_s;
  };
  for (const std::int64_t bytes : {std::int64_t{1} << 20, std::int64_t{1} << 27}) {
    EXPECT_LT(seconds(CollectivesKind::two_level, bytes), seconds(CollectivesKind::flat, bytes));
    EXPECT_EQ(seconds(CollectivesKind::automatic, bytes),
              seconds(CollectivesKind::two_level, bytes));
  }
  const std::int64_t large = std::int64_t{1} << 30;
  EXPECT_GT(seconds(CollectivesKind::two_level, large), seconds(CollectivesKind::flat, large));
  EXPECT_EQ(seconds(CollectivesKind::automatic, large), seconds(CollectivesKind::flat, large));
}

TEST(MeasuredCollectives, OfASumAreThoseOfItsHalves) {
  const Machine machine = read_machine("frontier");
  const GridShape grid{.z = 64};
  const MachineCosts costs(machine, grid, CollectivesKind::two_level);
  const auto seconds = [&](const char* operation) {
    const CollectiveCost cost = costs.collective({.group = "z",
                                                  .ranks = 64,
                                                  .operation = operation,
                                                  .label = {},
                                                  .bytes = std::int64_t{1} << 28});
    return cost.latency_s + cost.link_s;
  };
  EXPECT_NEAR(seconds("all_reduce"), seconds("all_gather") + seconds("reduce_scatter"), 1e-9);
}
