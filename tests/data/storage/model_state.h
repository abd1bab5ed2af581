#pragma once

#include <deque>
#include <string>
#include <vector>

#include "axonn/data/storage/checkpoint/checkpoint_reader.h"
#include "axonn/data/storage/checkpoint/checkpoint_saver.h"
#include "axonn/foundation/grid/grid_shape.h"

namespace axonn::test {

struct ModelStateOptions {
  std::vector<std::string> kinds = {"master", "exp_avg", "exp_avg_sq"};
  std::int64_t vocab = 251;
  std::int64_t experts = 0;  ///< of one more block, which GridShape::experts ranks share
};

/// One rank's training state of a small GPT: padded vocabulary over x, width over y, 12 heads over
/// x with 4 shared key-value heads, blocks cut flat over z and data, that of experts over the ranks
/// of z that hold the same ones. Each element i of parameter p
/// and kind k has a different value, exact in f32.
class ModelState {
 public:
  ModelState(const GridShape& shape, int rank, ModelStateOptions options = {});

  std::vector<StateBlock>& blocks() { return blocks_; }
  std::int64_t parameter_count() const {
    return parameter_count_;
  }  ///< elements of the whole model

  void fill(float shift = 0);  ///< sets every slice to its values (+ shift), padding to -1
  void clear();                ///< sets everything to -1
  /// "" if every slice, owned or not, has its values (+ shift) and padding is -1; else the first
  /// difference.
  std::string difference(float shift = 0) const;

 private:
  using Layouts = std::vector<std::pair<std::string, Layout>>;
  /// Cuts the block over `ways` ranks of z, of which this one is number `at`.
  void add_block(const std::string& name, const Layouts& parameters, int ways, int at);
  void add_block(const std::string& name, const Layouts& parameters) {
    add_block(name, parameters, shape_.z, coords_.at(Axis::z));
  }

  GridShape shape_;
  Coords coords_;
  ModelStateOptions options_;
  std::vector<StateBlock> blocks_;
  std::deque<std::vector<float>> storage_;
  std::int64_t parameter_count_ = 0;
};

/// Writes the state as checkpoint `step` of the folder, from the ranks of a grid.
SaveCost save_model(const std::string& folder, const GridShape& shape, std::int64_t step = 1,
                    SaverOptions options = {}, ModelStateOptions model = {});

/// Fills all slices of all buffers. Returns the bytes read.
std::int64_t load_blocks(const CheckpointReader& reader, std::span<const StateBlock> blocks);

/// Loads it on a grid. Returns the difference from what was saved, or "".
std::string load_model(const std::string& path, const GridShape& shape,
                       ModelStateOptions model = {});

}  // namespace axonn::test
