#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "axonn/ops/matmul_tuner.h"

namespace axonn {

/// How the products of a run are computed, the same on all of its ranks; output.dir/products.json.
struct MatmulChoices {
  std::string device;  ///< Backend::matmul_device() of rank 0, where they were timed
  std::vector<TunedMatmul> products;

  const TunedMatmul* find(const MatmulShape& shape) const;
  /// Seconds of a step's products, as chosen and by default, where calls are known.
  double seconds() const;
  double default_seconds() const;
};

std::string to_json(const MatmulChoices& choices);
/// Reads what to_json() wrote; `name` stands for the file in messages. Errors: UsageError.
MatmulChoices parse_matmul_choices(std::string_view json, const std::string& name);

/// A table for people: how each product is computed, and what that gains.
std::string to_text(const MatmulChoices& choices);

/// What was ever tuned on the machines that share a file: by device (with threads, library and
/// version), then by shape. Runs may share it: it appears whole, and the last to write wins.
class MatmulCache {
 public:
  /// Reads the file; "" keeps nothing. One that cannot be read counts as empty, see warning().
  explicit MatmulCache(std::string path);

  const std::string& path() const { return path_; }
  /// Why the file, or an attempt to write it, was passed over; "" if it was not.
  const std::string& warning() const { return warning_; }

  std::optional<TunedMatmul> find(const std::string& device, const MatmulShape& shape) const;
  /// Adds these to what is in the file now. Never throws: see warning().
  void keep(const MatmulChoices& choices);

 private:
  std::map<std::string, MatmulChoices> read();

  std::string path_, warning_;
  std::map<std::string, MatmulChoices> devices_;
};

/// training.tune_cache, or its default; "" where the environment names no place for it.
std::string matmul_cache_path(const std::string& configured);

}  // namespace axonn
