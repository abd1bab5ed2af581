#pragma once

#include <cstdint>
#include <initializer_list>
#include <string_view>

#include "axonn/tensor/tensor.h"

namespace axonn {

/// What the arguments of an operation are checked against. Every function throws Error with the
/// operation's and the argument's names, what it is and what was wanted.
struct Checker {
  std::string_view operation;

  void shape(std::string_view name, const View& view, std::int64_t rows, std::int64_t cols) const;
  void type(std::string_view name, const View& view, std::initializer_list<DType> wanted) const;
  /// f32 or bf16, which is what models compute in.
  void compute_type(std::string_view name, const View& view) const;
};

}  // namespace axonn
