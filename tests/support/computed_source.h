#pragma once

#include <string>
#include <vector>

#include "axonn/data/storage/parameter_source.h"

namespace axonn::testing_support {

/// A source whose values are computed.
class ComputedSource : public ParameterSource {
 public:
  ComputedSource() : ParameterSource("computed", {}) {}

  virtual void compute(const std::string& parameter, const Slice& slice, std::span<float> out) = 0;

  std::int64_t read(std::span<const SliceRequest> wanted, const TakeValues& take) override {
    for (std::size_t i = 0; i < wanted.size(); ++i)
      for (const Slice& slice : wanted[i].slices) {
        std::vector<float> values(static_cast<std::size_t>(slice.count()));
        compute(wanted[i].parameter, slice, values);
        take(i, slice.offset, StoredType::f32, std::as_bytes(std::span(values)));
      }
    return 0;
  }
};

}  // namespace axonn::testing_support
