#include "axonn/ops/rowwise/optimizer.h"

#include <cmath>

#include "axonn/base/check.h"
#include "axonn/ops/checks.h"
#include "axonn/ops/cpu/cpu_backend.h"
#include "axonn/ops/cpu/launch.h"

namespace axonn::cpu {

namespace {

void check_flat(const Checker& check, const char* name, const View& view, std::int64_t count) {
  check.type(name, view, {DType::f32});
  check.shape(name, view, 1, count);
}

template <typename Step>
void check_step(const Checker& check, const Step& args) {
  const std::int64_t count = args.master.cols;
  check_flat(check, "master", args.master, count);
  check_flat(check, "gradient", args.gradient, count);
  check.compute_type("out", args.out);
  check.shape("out", args.out, 1, count);
  if (args.scale.data) check_flat(check, "scale", args.scale, 1);
  AXONN_CHECK(args.decayed >= 0 && args.decayed <= count, check.operation, ": ", args.decayed,
              " decayed elements of ", count);
}

}  // namespace

void CpuBackend::adamw(const AdamW& args) {
  const Checker check{"adamw"};
  check_step(check, args);
  check_flat(check, "first", args.first, args.master.cols);
  check_flat(check, "second", args.second, args.master.cols);
  AXONN_CHECK(args.step >= 1, "adamw: step ", args.step, ", want 1 or more");
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

void CpuBackend::sgd(const Sgd& args) {
  check_step({"sgd"}, args);
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
