#include "tests/support/large_model.h"

#include <algorithm>
#include <vector>

#include "axonn/data/storage/write_tensors.h"
#include "axonn/foundation/base/files.h"
#include "axonn/foundation/base/random.h"
#include "axonn/network/model/counts.h"
#include "axonn/network/model/hugging_face.h"
#include "axonn/ranks/comm/self.h"
#include "axonn/run/config/resolve.h"

namespace axonn::testing_support {

void RandomParameters::compute(const std::string& parameter, const Slice& slice,
                               std::span<float> out) {
  std::uint64_t state = hash_text(parameter);
  for (std::int64_t e = slice.begin; e < slice.end; ++e) {
    const std::int64_t row = slice.row + e / slice.cols, col = slice.col + e % slice.cols;
    std::uint64_t bits = state + static_cast<std::uint64_t>(row << 24 | col);
    bits = (bits ^ bits >> 31) * 0x9e3779b97f4a7c15u;
    out[e - slice.begin] = (static_cast<float>(bits >> 40) * 0x1p-23f - 1) * 0.05f;
  }
}

ModelConfig large_model(std::int64_t bytes) {
  ModelConfig config{.family = ModelFamily::llama,
                     .layers = 1,
                     .hidden = 4096,
                     .heads = 32,
                     .kv_heads = 8,
                     .ffn = 14336,
                     .vocab = 32000,
                     .positions = 2048,
                     .tied = false};
  const auto bytes_of_it = [&] { return 2 * parameter_count(resolved(config, 0, 0)); };
  const std::int64_t one = bytes_of_it();
  config.layers = 2;
  const std::int64_t each = bytes_of_it() - one;
  config.layers = std::max<std::int64_t>(1, 1 + (bytes - one) / each);
  return resolved(config, 0, 0);
}

void write_large_model(const std::string& folder, const ModelConfig& config) {
  const auto world = make_self();
  const Grid grid(*world, {});
  const auto model = make_model(config, grid);
  std::vector<PlannedTensor> tensors;
  for (const ParameterGroup* group : model->groups())
    for (const auto& parameter : group->parameters()) {
      const ParameterSpec& spec = parameter->spec();
      tensors.push_back({.name = spec.name,
                         .parameter = {spec.name, spec.layout.rows, spec.layout.cols},
                         .type = StoredType::bf16,
                         .vector = spec.layout.cols == 1});
    }
  TemporaryFolder temporary(folder);
  RandomParameters random;
  write_safetensors_folder(temporary.path(), tensors, 2'000'000'000, random);
  write_text(temporary.path() + "/config.json",
             to_hugging_face_config(config, {.type = "bfloat16"}));
  temporary.publish();
}

}  // namespace axonn::testing_support
