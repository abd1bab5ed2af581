#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>

#include "axonn/io/checkpoint.h"
#include "axonn/io/checkpoint_plan.h"
#include "axonn/io/load_slices.h"
#include "axonn/io/piece_reader.h"
#include "axonn/parallel/layout.h"

namespace axonn {

/// The values of a model's parameters, wherever they lie, a piece at a time.
class ParameterSource {
 public:
  virtual ~ParameterSource() = default;

  /// Fills out (slice.count()) with the elements of a slice of a parameter. Errors: UsageError, of
  /// the file at fault, or if there is no such parameter.
  virtual void read(const std::string& parameter, const Slice& slice, std::span<float> out) = 0;
};

/// The master copies of a checkpoint; every byte that is used is verified.
class CheckpointSource : public ParameterSource {
 public:
  /// reader outlives it. Errors: UsageError if the checkpoint has no master copies, or lists the
  /// parameters that only it or only the model has, or has in another shape.
  CheckpointSource(const CheckpointReader& reader, std::span<const CheckpointParameter> model);

  void read(const std::string& parameter, const Slice& slice, std::span<float> out) override;

  std::int64_t bytes_read() const { return pieces_.bytes_read(); }

 private:
  const CheckpointReader& reader_;
  ReadPlanner planner_;
  PieceReader pieces_;
  std::map<std::string, std::int64_t, std::less<>> places_;
};

/// Tensors of a Hugging Face folder.
class FolderSource : public ParameterSource {
 public:
  /// By parameter; `across` and slices are not used. The folder outlives it.
  explicit FolderSource(std::map<std::string, WantedSlices, std::less<>> tensors)
      : tensors_(std::move(tensors)) {}

  void read(const std::string& parameter, const Slice& slice, std::span<float> out) override;

 private:
  std::map<std::string, WantedSlices, std::less<>> tensors_;
};

}  // namespace axonn
