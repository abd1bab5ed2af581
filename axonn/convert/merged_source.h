#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "axonn/ops/backend.h"
#include "axonn/storage/parameter_source.h"

namespace axonn {

/// The parameters of a model with adapters merged into its weights as they are read, in f32:
///
///   weight (out, in) + alpha / rank · B (out, r) · A (r, in)
///
/// Holds one slice, and both factors of one weight, at a time.
class MergedSource final : public ParameterSource {
 public:
  /// `scale` is alpha / rank. Throws UsageError if the model does not have an adapted weight, or
  /// has it in another shape.
  MergedSource(std::unique_ptr<ParameterSource> base, std::unique_ptr<ParameterSource> adapters,
               float scale, int threads);

  /// A slice of an adapted weight must consist of whole rows of its rectangle.
  std::int64_t read(std::span<const SliceRequest> wanted, const TakeValues& take) override;

 private:
  struct Factors {
    StoredParameter a, b;  // (r, in), (out, r)
  };
  void load(const Factors& factors);
  void add(const Factors& factors, const Slice& slice);

  std::unique_ptr<ParameterSource> base_, adapters_;
  std::unique_ptr<Backend> backend_;
  float scale_;
  std::map<std::string, Factors, std::less<>> factors_;  // by the weight's name
  const Factors* loaded_ = nullptr;
  std::vector<float> a_, b_;  // the loaded factors; (r, in) times the scale, (out, r)
  std::vector<float> values_;
};

}  // namespace axonn
