#include "axonn/compute/ops/gpu/matmul/products.h"

#include <algorithm>

#include "axonn/compute/ops/operand_checks.h"
#include "axonn/compute/tensor/gpu/runtime.cuh"
#include "axonn/compute/tensor/scratch.h"
#include "axonn/foundation/base/check.h"

namespace axonn::cuda {

bool Products::run(const Lane& lane, const Matmul& args, bool rows_vary) {
  check_matmul(args);
  if (args.out.count() == 0) return true;
  const int lent = rows_vary ? 0 : arena_.device().lent();
  BatchedMatmul product{.one = args,
                        .rows_vary = rows_vary,
                        .multiprocessors = lent > 0 ? std::max(multiprocessors_ - lent, 1) : 0};
  Matmul& fused = product.one;
  if (args.a.count() == 0 || !fuses_bias(args)) fused.bias = {};
  if (args.bias_gradient.data) fused.bias_gradient.data = lane.sums;  // which it overwrites
  if (args.a.count() > 0) {
    if (!plans_.enqueue(lane, product)) {
      if (has_epilogue(shape_of(fused))) return false;
      fused.bias = {};
      plans_.enqueue(lane, product);
    }
  } else if (!args.accumulate) {  // K = 0: sums are zero
    const auto size = static_cast<std::size_t>(bytes_of(args.out.dtype));
    check("cudaMemset2DAsync",
          cudaMemset2DAsync(args.out.data, args.out.stride * size, 0, args.out.cols * size,
                            static_cast<std::size_t>(args.out.rows), handle_of(lane.stream)));
  }
  if (args.bias.data && !fused.bias.data) add_bias(lane.stream, args.out, args.bias);
  if (args.bias_gradient.data) add_bias(lane.stream, args.bias_gradient, fused.bias_gradient);
  return true;
}

bool Products::run(const Matmul& args) {
  Scratch scratch(arena_);
  return run(lanes_.fork(1, scratch).front(), args, false);
}

void Products::run(std::span<const Matmul> all) {
  Scratch scratch(arena_);
  const std::vector<Lane> lanes = lanes_.fork(all.size(), scratch);
  for (std::size_t i = 0; i < all.size(); ++i) {
    const bool done = run(lanes[i % lanes.size()], all[i], true);
    AXONN_CHECK(done, "matmuls: a product has an epilogue");
  }
  lanes_.join(lanes);
}

void Products::run(const BatchedMatmul& args) {
  if (args.count == 0 || args.one.out.count() == 0) return;
  Scratch scratch(arena_);
  plans_.enqueue(lanes_.fork(1, scratch).front(), args);
}

}  // namespace axonn::cuda
