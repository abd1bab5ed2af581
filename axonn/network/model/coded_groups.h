#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "axonn/network/model/config.h"
#include "axonn/ranks/parallel/parameters.h"

namespace axonn {

/// Which matrices of a group are kept as codes (ModelConfig::quantize).
enum class Coded : std::uint8_t {
  products,  ///< those of a block's products, without its router
  ends,      ///< the table of tokens, or the output layer
};

/// Groups beside another one that keep its matrices as codes, one group for each kind.
class CodedGroups {
 public:
  /// From now on `group` declares there the matrices that ModelConfig::kept() says are codes.
  /// Outlives the add() calls of `group`.
  CodedGroups(ParameterGroup& group, const ModelConfig& config, Coded coded,
              Holders holders = Holders::all_of_z);

  /// Those with parameters.
  std::vector<ParameterGroup*> groups() const;

 private:
  std::vector<std::unique_ptr<ParameterGroup>> groups_;
};

}  // namespace axonn
