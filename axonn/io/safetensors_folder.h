#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "axonn/io/safetensors.h"

namespace axonn {

/// The tensors of a Hugging Face folder: those of model.safetensors, or of the shards that
/// model.safetensors.index.json names; or those of other files that are named so ("adapter_model").
/// Reads headers alone.
class SafetensorsFolder {
 public:
  /// A tensor, and the file that holds it.
  struct Tensor {
    const SafetensorsFile* file = nullptr;
    const SafetensorsEntry* entry = nullptr;
  };

  /// Errors: UsageError that names the file: there are no tensors, a shard is missing or not good,
  /// or the index speaks of tensors that its shards do not have.
  explicit SafetensorsFolder(std::string path, const std::string& stem = "model");

  const std::string& path() const { return path_; }
  /// By name; a tensor that is not there has no entry.
  const std::map<std::string, Tensor, std::less<>>& tensors() const { return tensors_; }
  Tensor find(std::string_view name) const;
  /// The bytes of all tensors.
  std::int64_t bytes() const;

 private:
  void open_shards(const std::string& index);

  std::string path_;
  std::vector<std::unique_ptr<SafetensorsFile>> files_;
  std::map<std::string, Tensor, std::less<>> tensors_;
};

/// Whether a folder holds tensors in this form.
bool has_safetensors(const std::string& folder, const std::string& stem = "model");

}  // namespace axonn
