#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "axonn/foundation/grid/layout.h"

namespace axonn {

/// The declaration of a parameter, the same on every rank and every grid.
struct ParameterSpec {
  std::string name;  ///< global: Hugging Face's name
  Layout layout;
  double init_mean = 0;
  double init_std = 0;  ///< element i of name starts at mean + std · normal(seed, name, i)
  bool decays = false;  ///< weight decay applies: matrices, not biases and norms
  /// A matrix between hidden values, which Muon orthogonalises: not an embedding, nor the logits'.
  bool hidden = false;
};

/// A slice of a named parameter.
struct NamedSlice {
  const ParameterSpec* parameter = nullptr;
  Slice slice;
};

/// Elements of a group's flat buffers on one rank; F, S and P as FlatLayout has them.
struct FlatSizes {
  std::vector<std::int64_t> offsets;  ///< of each parameter's block in F, in the order of add()
  std::int64_t decayed = 0;           ///< leading elements of F to which weight decay applies
  std::int64_t flat = 0;              ///< F
  std::int64_t shard = 0;             ///< S
  std::int64_t piece = 0;             ///< P
};

/// The ranks along z among which a group's parameters are cut and gathered.
enum class Holders : std::uint8_t {
  all_of_z,      ///< Grid::along(z)
  same_experts,  ///< Grid::same_experts(): for parameters of experts (Layout::expert)
};

/// Runs [begin, end) of elements.
using Ranges = std::vector<std::pair<std::int64_t, std::int64_t>>;

/// Where the parameters of a group lie in its flat buffers, on every rank of a grid. Arithmetic
/// alone: it takes no memory for parameters and does not communicate, so that a run can be planned
/// without its ranks. Below, z is the group of the holders.
///
///   F  the flat block: a rank's (x, y) blocks of all parameters with their room, each beginning
///      on 64 bytes (those that follow the one before without a gap), those with weight decay
///      first, padded to Gz · Gd · 64 bytes
///   S  = F / Gz: the shard of a z coordinate
///   P  = S / Gd: the piece of a data coordinate
class FlatLayout {
 public:
  FlatLayout(const GridShape& shape, Holders holders) : shape_(shape), holders_(holders) {}

  /// Lets blocks, shards and pieces begin at multiples of so many elements, a multiple of 32.
  void align_to(std::int64_t elements) { align_ = elements; }

  /// Adds a parameter, which must outlive this. `follows`: its block begins where that of the one
  /// added before it ends.
  void add(const ParameterSpec& spec, bool follows) { parameters_.push_back({&spec, follows}); }

  /// The sizes on the rank at these coordinates. Offsets depend on its part of the experts alone.
  FlatSizes sizes(const Coords& at) const;
  /// Where the rank's piece begins in F. Here and below, `sizes` are the rank's.
  std::int64_t piece_begin(const Coords& at, const FlatSizes& sizes) const;
  /// The slices of parameter i in the rank's piece, with offsets counted from its start.
  std::vector<Slice> slices(const Coords& at, const FlatSizes& sizes, std::size_t i) const;
  /// The same of all parameters, by offset.
  std::vector<NamedSlice> piece_slices(const Coords& at, const FlatSizes& sizes) const;
  /// The parts of F between the blocks of the rank and after them.
  Ranges gaps(const Coords& at, const FlatSizes& sizes) const;

 private:
  struct Slot {
    const ParameterSpec* spec;
    bool follows;
  };
  std::int64_t room(const Layout& layout, const Coords& at) const;
  std::int64_t block_size(const Layout& layout, const Coords& at) const;

  GridShape shape_;
  Holders holders_;
  std::int64_t align_ = 32;  // 64 bytes in bf16, and so in f32
  std::vector<Slot> parameters_;
};

/// The parts of a piece that its rank owns, merged.
Ranges owned_ranges(const std::vector<NamedSlice>& piece);

/// Rows of the block of the rank at these coordinates: none of an expert that it does not hold.
std::int64_t rows_at(const Layout& layout, const GridShape& shape, const Coords& at);

}  // namespace axonn
