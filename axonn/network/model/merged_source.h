#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "axonn/compute/ops/backend.h"
#include "axonn/data/storage/parameter_source.h"

namespace axonn {

/// What an adapter adds to a weight W (out, in), in f32:
///
///   W + scale · B (out, r) · A (r, in)
///
/// With DoRA's magnitudes m, each row of this sum is divided by its norm and multiplied by its m.
///
/// Source: Liu et al., "DoRA: weight-decomposed low-rank adaptation", 2024.
struct MergedFactors {
  StoredParameter a, b;                           ///< (r, in), (out, r)
  double scale = 1;                               ///< alpha / r
  std::optional<StoredParameter> magnitude = {};  ///< (out)
};

/// The parameters of a model with adapters merged into its weights as they are read. A parameter
/// that the adapters' source has by its own name replaces the base's. Holds a few MiB of one slice,
/// and both factors of one weight, at a time; with magnitudes each rank reads the weight twice.
class MergedSource final : public ParameterSource {
 public:
  struct Parts {
    std::unique_ptr<ParameterSource> base, adapters = nullptr;       ///< adapters may be null
    std::map<std::string, MergedFactors, std::less<>> factors = {};  ///< by the weight's name
    /// Names in the base of parameters that have another name there: a tied head's.
    std::map<std::string, std::string, std::less<>> aliases = {};
  };

  /// Throws UsageError if the model does not have an adapted weight, or has it in another shape.
  MergedSource(std::vector<StoredParameter> parameters, Parts parts, int threads);
  std::int64_t read(std::span<const SliceRequest> wanted, const TakeValues& take) override;

 private:
  struct Origin {
    ParameterSource* source;
    std::string name;
  };
  Origin origin_of(const std::string& parameter) const;
  void load(const std::string& weight, const MergedFactors& factors);
  void find_row_factors(const std::string& weight, const MergedFactors& factors);
  void read_sum(const std::string& weight, const MergedFactors& factors, const Slice& rows);
  std::int64_t read_merged(const SliceRequest& wanted, const MergedFactors& factors,
                           const std::function<void(std::int64_t, std::span<const float>)>& take);

  Parts parts_;
  std::unique_ptr<Backend> backend_;
  const MergedFactors* loaded_ = nullptr;
  std::vector<float> a_, b_;        // the loaded factors; (r, in) times the scale, (out, r)
  std::vector<float> row_factors_;  // (out), m over the norm; empty without magnitudes
  std::vector<float> values_;
};

}  // namespace axonn
