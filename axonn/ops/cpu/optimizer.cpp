#include "axonn/ops/rowwise/optimizer.h"

#include <cmath>

#include "axonn/ops/cpu/cpu_backend.h"
#include "axonn/ops/cpu/launch.h"
#include "axonn/ops/operand_checks.h"

namespace axonn::cpu {

void CpuBackend::adamw(const AdamWUpdate& args) {
  check_adamw(args);
  const double step = static_cast<double>(args.step);
  with_type(args.out.dtype, [&]<typename Out>(Out) {
    const rowwise::AdamWStep<Out> kernel{
        .out = args.out.as<Out>(),
        .master = args.master.as<float>(),
        .first = args.first.as<float>(),
        .second = args.second.as<float>(),
        .gradient = args.gradient.as<const float>(),
        .scale = args.scale.as<const float>(),
        .lr = args.lr,
        .beta1 = args.beta1,
        .beta2 = args.beta2,
        .eps = args.eps,
        .weight_decay = args.weight_decay,
        .correction1 = static_cast<float>(1 / (1 - std::pow(double{args.beta1}, step))),
        .correction2 = static_cast<float>(1 / (1 - std::pow(double{args.beta2}, step))),
        .decayed = args.decayed,
    };
    launch_tiles(threads_, 1, args.master.cols, even_tile(threads_, args.master.cols), kernel);
  });
}

void CpuBackend::sgd(const SgdUpdate& args) {
  check_sgd(args);
  with_type(args.out.dtype, [&]<typename Out>(Out) {
    const rowwise::SgdStep<Out> kernel{
        .out = args.out.as<Out>(),
        .master = args.master.as<float>(),
        .gradient = args.gradient.as<const float>(),
        .scale = args.scale.as<const float>(),
        .lr = args.lr,
        .weight_decay = args.weight_decay,
        .decayed = args.decayed,
    };
    launch_tiles(threads_, 1, args.master.cols, even_tile(threads_, args.master.cols), kernel);
  });
}

}  // namespace axonn::cpu
