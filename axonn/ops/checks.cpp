#include "axonn/ops/checks.h"

#include <algorithm>
#include <sstream>

#include "axonn/base/check.h"

namespace axonn {

void Checker::shape(std::string_view name, const View& view, std::int64_t rows,
                    std::int64_t cols) const {
  AXONN_CHECK(view.rows == rows && view.cols == cols, operation, ": ", name, " is ", view,
              ", want (", rows, ',', cols, ')');
  AXONN_CHECK(view.count() == 0 || view.data, operation, ": ", name, ' ', view, " has no memory");
  AXONN_CHECK(view.rows <= 1 || view.stride >= view.cols, operation, ": ", name, ' ', view,
              " has rows that overlap, ", view.stride, " elements apart");
}

void Checker::type(std::string_view name, const View& view,
                   std::initializer_list<DType> wanted) const {
  if (std::ranges::find(wanted, view.dtype) != wanted.end()) return;
  std::ostringstream names;
  for (DType dtype : wanted) names << (names.tellp() > 0 ? " or " : "") << name_of(dtype);
  fail(Where::here(), operation, ": ", name, " is ", view, ", want ", names.str());
}

void Checker::compute_type(std::string_view name, const View& view) const {
  type(name, view, {DType::f32, DType::bf16});
}

}  // namespace axonn
