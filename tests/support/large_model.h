#pragma once

#include <cstdint>
#include <string>

#include "axonn/network/model/config.h"

#include "tests/support/computed_source.h"

namespace axonn::testing_support {

/// Pseudorandom parameters: each element is a function of the parameter's name and the element's
/// position. No page of a file of them is all zero.
class RandomParameters : public ComputedSource {
 public:
  void compute(const std::string& parameter, const Slice& slice, std::span<float> out) override;
};

/// A Llama of about `bytes` bytes in bf16, with as many blocks of the sizes of Llama 3.1 8B as
/// needed.
ModelConfig large_model(std::int64_t bytes);

/// Writes a Hugging Face folder of the model in bf16 with random weights, in bounded memory. Throws
/// Error if there is no space.
void write_large_model(const std::string& folder, const ModelConfig& config);

}  // namespace axonn::testing_support
