#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "axonn/storage/safetensors/safetensors.h"

namespace axonn {

/// The tensors of a Hugging Face folder: in model.safetensors, or in the shards that
/// model.safetensors.index.json lists. Another stem than "model", such as "adapter_model", selects
/// other files. Reads only headers.
class SafetensorsFolder {
 public:
  /// A tensor and its file.
  struct Tensor {
    const SafetensorsFile* file = nullptr;
    const SafetensorsEntry* entry = nullptr;
  };

  /// Throws UsageError with the file if there are no tensors, if a shard is missing or damaged, or
  /// if the index lists tensors that its shards do not have.
  explicit SafetensorsFolder(std::string path, const std::string& stem = "model");

  const std::string& path() const { return path_; }
  /// All tensors by name.
  const std::map<std::string, Tensor, std::less<>>& tensors() const { return tensors_; }
  /// The tensor of that name; its entry is null if there is none.
  Tensor find(std::string_view name) const;
  /// The total bytes of all tensors.
  std::int64_t bytes() const;

 private:
  void open_shards(const std::string& index);

  std::string path_;
  std::vector<std::unique_ptr<SafetensorsFile>> files_;
  std::map<std::string, Tensor, std::less<>> tensors_;
};

}  // namespace axonn
