#pragma once

#include <cstdint>
#include <string>

#include "axonn/io/parameter_source.h"
#include "axonn/model/config.h"

namespace axonn::testing_support {

/// Every element a random number of its parameter and place: no page of a file of them is zero.
class RandomParameters : public ParameterSource {
 public:
  void read(const std::string& parameter, const Slice& slice, std::span<float> out) override;
};

/// A Llama with blocks like those of Llama 3.1 8B, as many as make about so many bytes of bf16.
ModelConfig large_model(std::int64_t bytes);

/// Writes its Hugging Face folder in bf16, with random weights, a few files at a time in bounded
/// memory. Errors: Error if there is no room.
void write_large_model(const std::string& folder, const ModelConfig& config);

}  // namespace axonn::testing_support
