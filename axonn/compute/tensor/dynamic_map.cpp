#include "axonn/compute/tensor/dynamic_map.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "axonn/foundation/base/check.h"

namespace axonn {

DynamicMap::DynamicMap(bool is_signed) : is_signed_(is_signed), table_{} {
  constexpr int kDecades = 7;
  std::vector<double> values{0, 1};
  for (int i = 0; i < kDecades; ++i) {
    const int parts = 1 << (is_signed ? i : i + 1);
    for (int j = 0; j < parts; ++j) {
      const double value = std::pow(10.0, i - (kDecades - 1)) * (0.1 + 0.9 * (j + 0.5) / parts);
      values.push_back(value);
      if (is_signed) values.push_back(-value);
    }
  }
  std::ranges::sort(values);
  std::ranges::transform(values, table_.begin(), [](double v) { return static_cast<float>(v); });
  float* const middles = table_.data() + values.size();
  for (std::size_t i = 0; i + 1 < values.size(); ++i) middles[i] = (table_[i] + table_[i + 1]) / 2;
  table_.back() = std::numeric_limits<float>::infinity();
}

const DynamicMap& DynamicMap::of_signed() {
  static const DynamicMap map(true);
  return map;
}

const DynamicMap& DynamicMap::of_unsigned() {
  static const DynamicMap map(false);
  return map;
}

void DynamicMap::encode(std::span<const float> values, float absmax,
                        std::span<std::uint8_t> codes) const {
  AXONN_CHECK(codes.size() == values.size(), "DynamicMap: ", codes.size(), " codes of ",
              values.size(), " values");
  const float* const middles = table_.data() + table_.size() / 2;
  for (std::size_t i = 0; i < values.size(); ++i)
    codes[i] = static_cast<std::uint8_t>(dynamic_code(middles, values[i], absmax, is_signed_));
}

}  // namespace axonn
