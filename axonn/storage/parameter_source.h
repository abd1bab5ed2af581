#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>

#include "axonn/grid/layout.h"
#include "axonn/storage/checkpoint/checkpoint.h"
#include "axonn/storage/checkpoint/checkpoint_plan.h"
#include "axonn/storage/load_slices.h"
#include "axonn/storage/piece_reader.h"

namespace axonn {

/// Reads a model's parameters from storage, a slice at a time.
class ParameterSource {
 public:
  virtual ~ParameterSource() = default;

  /// Fills out (slice.count()) with the elements of a slice of a parameter; slice.offset is
  /// ignored. Throws UsageError if a file is at fault, Error if there is no such parameter.
  virtual void read(const std::string& parameter, const Slice& slice, std::span<float> out) = 0;
};

/// Reads the master copies of a checkpoint and verifies every byte that it uses.
class CheckpointSource : public ParameterSource {
 public:
  /// The reader must outlive it. Throws UsageError if the checkpoint has no master copies, or with
  /// a list of the parameters that are missing on one side or differ in shape.
  CheckpointSource(const CheckpointReader& reader, std::span<const CheckpointParameter> model);

  void read(const std::string& parameter, const Slice& slice, std::span<float> out) override;

  std::int64_t bytes_read() const { return pieces_.bytes_read(); }

 private:
  const CheckpointReader& reader_;
  ReadPlanner planner_;
  PieceReader pieces_;
  std::map<std::string, std::int64_t, std::less<>> places_;
};

/// Reads the tensors of a Hugging Face folder.
class FolderSource : public ParameterSource {
 public:
  /// The tensor of each parameter; `across` and `slices` are ignored. The folder must outlive it.
  explicit FolderSource(std::map<std::string, WantedSlices, std::less<>> tensors)
      : tensors_(std::move(tensors)) {}

  void read(const std::string& parameter, const Slice& slice, std::span<float> out) override;

 private:
  std::map<std::string, WantedSlices, std::less<>> tensors_;
};

}  // namespace axonn
