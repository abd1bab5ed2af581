#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "axonn/compute/ops/matmul_tuner.h"

namespace axonn {

/// The file of tuned products, in output.dir and in checkpoints.
inline constexpr const char* kProductsFile = "products.json";

/// How the matrix products of a run are computed, the same on all ranks; stored in
/// output.dir/products.json.
struct MatmulChoices {
  std::string device;  ///< Backend::matmul_device() of rank 0, which timed them
  std::vector<TunedMatmul> products;

  const TunedMatmul* find(const MatmulShape& shape) const;
};

std::string to_json(const MatmulChoices& choices);
/// Reads what to_json() wrote; `name` is the file's name in messages. Throws UsageError.
MatmulChoices parse_matmul_choices(std::string_view json, const std::string& name);

/// Returns a table for people: how each product is computed, and its gain.
std::string to_text(const MatmulChoices& choices);

/// Tuning results of the machines that share a file: by device (with threads, library and version),
/// then by shape. Several runs may share the file: it is replaced as a whole, and the last writer
/// wins.
class MatmulCache {
 public:
  /// Reads the file; "" stores nothing. A file that cannot be read counts as empty: see warning().
  explicit MatmulCache(std::string path);

  /// Why reading or writing the file failed; "" if it did not.
  const std::string& warning() const { return warning_; }

  /// Null if it is not known.
  const TunedMatmul* find(const std::string& device, const MatmulShape& shape) const;
  /// Adds these to the current contents of the file. Never throws: see warning().
  void keep(const MatmulChoices& choices);

 private:
  std::map<std::string, MatmulChoices> read();

  std::string path_, warning_;
  std::map<std::string, MatmulChoices> devices_;
};

/// Returns training.tune_cache, or its default; "" if the environment names no place for it.
std::string matmul_cache_path(const std::string& configured);

}  // namespace axonn
