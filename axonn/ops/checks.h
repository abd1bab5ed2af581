#pragma once

#include <cstdint>
#include <initializer_list>
#include <string_view>

#include "axonn/tensor/tensor.h"

namespace axonn {

/// Checks the arguments of an operation. Every function throws Error with the names of the
/// operation and of the argument, what it is and what was wanted.
struct Checker {
  std::string_view operation;

  void shape(std::string_view name, const View& view, std::int64_t rows, std::int64_t cols) const;
  void type(std::string_view name, const View& view, std::initializer_list<DType> wanted) const;
  /// f32 or bf16, the types that models compute in.
  void compute_type(std::string_view name, const View& view) const;
};

}  // namespace axonn
