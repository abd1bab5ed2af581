#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "axonn/base/log.h"
#include "axonn/ops/matmul_tuner.h"

namespace axonn {

class Training;

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

struct TuneOptions {
  std::string cache = {};      ///< file of MatmulCache; "": none
  bool again = false;          ///< times every product, even if the cache knows it
  MatmulChoices earlier = {};  ///< of the resumed run: they override the cache's
  /// Called on rank 0 with one line at a time: how many were timed, what was skipped.
  std::function<void(const std::string& line)> report = {};
  ProgressTarget progress = {};  ///< shows on rank 0 how far timing is
};

/// Chooses how each matrix product of this run's step is computed, and makes the backend
/// compute it so from now on. Finds the products by running up to two micro-batches forward and
/// backward. Ways that neither the resumed run nor the cache knows are timed on all ranks at once,
/// since ranks share a machine's memory in a step too. Rank 0 decides for all. Collective.
/// Parameters must be set; they do not change.
MatmulChoices tune(Training& training, const TuneOptions& options);

}  // namespace axonn
