#include "axonn/plan/measure/profile.h"

#include <algorithm>
#include <map>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "axonn/compute/ops/forwarding_backend.h"
#include "axonn/compute/tensor/forwarding_device.h"
#include "axonn/foundation/base/clock.h"
#include "axonn/foundation/base/moment.h"
#include "axonn/plan/measure/benchmark.h"
#include "axonn/plan/measure/fixed_products.h"
#include "axonn/run/train/training.h"
#include "axonn/run/train/tune.h"

namespace axonn {

namespace {

constexpr int kUntimed = 2, kUsualSteps = 5, kProfiledSteps = 3;

/// One call, and when the device did it.
struct TimedCall {
  ProfileRow row;  // of this call; without seconds
  Moment begin, end;
};

/// Times calls on a device.
class CallLog {
 public:
  explicit CallLog(Device& device) : device_(device) {}

  void time(ProfileRow row, const std::function<void()>& run) {
    row.calls = 1;
    const Moment begin = device_.moment(device_.compute());
    run();
    calls_.push_back({std::move(row), begin, device_.moment(device_.compute())});
  }

  /// The calls by operation and shape. Waits for the device.
  std::vector<ProfileRow> rows() const {
    std::map<std::pair<std::string, std::string>, ProfileRow> sums;
    for (const TimedCall& call : calls_) {
      ProfileRow& sum =
          sums.try_emplace({call.row.operation, call.row.shape},
                           ProfileRow{call.row.operation, call.row.shape, call.row.kind})
              .first->second;
      sum.calls += call.row.calls;
      sum.flops += call.row.flops;
      sum.bytes += call.row.bytes;
      sum.seconds += call.end.seconds() - call.begin.seconds();
    }
    std::vector<ProfileRow> rows;
    for (auto& [key, row] : sums) rows.push_back(std::move(row));
    return rows;
  }

 private:
  Device& device_;
  std::vector<TimedCall> calls_;
};

/// Times copies and fills.
class ProfiledDevice final : public ForwardingDevice {
 public:
  ProfiledDevice(Device& inner, CallLog& log) : ForwardingDevice(inner), log_(log) {}

 protected:
  void around(const char* name, std::int64_t bytes, const std::function<void()>& run) override {
    log_.time({.operation = name,
               .shape = {},
               .kind = OperationKind::device,
               .bytes = static_cast<double>(bytes)},
              run);
  }

 private:
  CallLog& log_;
};

/// Times operations.
class ProfilingBackend final : public ForwardingBackend {
 public:
  ProfilingBackend(Backend& inner, CallLog& log)
      : ForwardingBackend(inner), device_(inner.device(), log), log_(log) {}

  Device& device() override { return device_; }

  void product(const Matmul& args) override {
    const MatmulShape shape = shape_of(args);
    next_ = {.shape = to_string(shape), .flops = shape.flops()};
    ForwardingBackend::product(args);
  }
  void products(std::span<const Matmul> all) override {
    next_ = {.shape = fmt::format("{} products", all.size())};
    for (const Matmul& one : all) next_.flops += shape_of(one).flops();
    ForwardingBackend::products(all);
  }
  void attention(const Attention& args) override {
    next_ = {.shape = text(args), .flops = attention_flops(args)};
    ForwardingBackend::attention(args);
  }
  void attention_backward(const AttentionBackward& args) override {
    next_ = {.shape = text(args.forward), .flops = 2.5 * attention_flops(args.forward)};
    ForwardingBackend::attention_backward(args);
  }

 protected:
  void around(const OperationCall& call, const std::function<void()>& run) override {
    ProfileRow row = std::exchange(next_, {});
    row.operation = call.name;
    row.kind = call.kind;
    for (std::size_t i = 0; i < call.operands.size(); ++i) {
      const View& view = call.operands[i];
      const int passes = call.passes.empty() ? 1 : call.passes[i];
      if (view.data) row.bytes += static_cast<double>(passes * view.count() * bytes_of(view.dtype));
    }
    if (row.shape.empty()) row.shape = text(call);
    log_.time(std::move(row), run);
  }

 private:
  static std::string text(const Attention& a) {
    return fmt::format("{} x {}, {} heads of {}", a.sequences(), a.queries(), a.heads, a.head_dim);
  }
  /// The largest operand, which says most.
  static std::string text(const OperationCall& call) {
    const auto largest = std::ranges::max_element(
        call.operands, {}, [](const View& view) { return view.data ? view.count() : 0; });
    if (largest == call.operands.end() || !largest->data) return {};
    return fmt::format("{}x{} {}", largest->rows, largest->cols, name_of(largest->dtype));
  }

  ProfiledDevice device_;
  CallLog& log_;
  ProfileRow next_;  // shape and flops of the operation that comes next
};

/// Bytes per second of a sum of arrays that are larger than caches.
double memory_rate(const Context& ctx) {
  const std::int64_t count =
      ctx.device().operation_size() == OperationSize::large ? 1 << 27 : 1 << 24;
  const Tensor a = ctx.zeros(1, count, DType::f32), b = ctx.zeros(1, count, DType::f32),
               out = ctx.zeros(1, count, DType::f32);
  double best = 0;
  for (int i = 0; i < 5; ++i) {
    ctx.device().compute().synchronize();
    const double start = now_seconds();
    ctx.backend.run(ops::Add{out.view(), a.view(), b.view()});
    ctx.device().compute().synchronize();
    best = std::max(best, static_cast<double>(3 * out.bytes()) / (now_seconds() - start));
  }
  return best;
}

double bound_of(const ProfileRow& row, const StepProfile& profile) {
  const double by_memory = row.bytes / profile.memory_rate;
  return std::max(by_memory, row.flops / profile.product_rate);
}

void add_waits(StepProfile& profile, const NamedSeconds& waits) {
  for (const auto& [kind, seconds] : waits)
    if (seconds > 0)
      profile.rows.push_back({.operation = "wait for " + kind,
                              .shape = {},
                              .kind = OperationKind::device,
                              .seconds = seconds});
}

std::string line(const ProfileRow& row, double step_s) {
  const double each = row.calls > 0 ? row.seconds / row.calls * 1e6 : 0;
  const std::string rate =
      row.flops > 0   ? fmt::format("{:8.2f} Tflop/s", row.flops / row.seconds * 1e-12)
      : row.bytes > 0 ? fmt::format("{:8.1f} GB/s   ", row.bytes / row.seconds * 1e-9)
                      : std::string(16, ' ');
  const std::string bound =
      row.bound_seconds > 0 ? fmt::format("{:5.0f} %", 100 * row.bound_share()) : "       ";
  return fmt::format("  {:6.1f} % {:10.1f} ms {:8.0f} {:11.1f} us {} {}  {} {}\n",
                     100 * row.seconds / step_s, row.seconds * 1e3, row.calls, each, rate, bound,
                     row.operation, row.shape);
}

}  // namespace

StepProfile profile_steps(const PreparedRun& run, Communicator& world,
                          const ProgressTarget& progress) {
  const Config& config = run.config();
  Training training(run, world, nullptr, {.progress = progress});
  LoadedModel& model = training.model;
  model.initialise();
  if (config.training.tune)
    tune(training, {.cache = matmul_cache_path(config.training.tune_cache), .progress = progress});
  const Context ctx = model.context();
  Device& device = model.backend().device();
  StepProfile profile{.device = device.name()};
  {
    Arena beside(device);
    const Context apart(ctx.backend, beside, ctx.grid, ctx.dtype);
    std::vector<PeakProduct> products = fixed_products(apart);
    for (int i = 0; i < 5; ++i)
      for (PeakProduct& product : products) product.run();
    for (PeakProduct& product : products)
      profile.product_rate = std::max(profile.product_rate, product.median_rate());
    profile.memory_rate = memory_rate(apart);
  }
  std::vector<double> usual;
  for (int i = 0; i < kUntimed + kUsualSteps; ++i) {
    world.barrier("profile");
    const double start = now_seconds();
    training.run(i);
    model.settle();
    if (i >= kUntimed) usual.push_back(now_seconds() - start);
  }
  profile.usual_step_s = spread_of(usual).median;

  CallLog log(device);
  ProfilingBackend backend(model.backend(), log);
  WaitClock waits(model.grid());
  double seconds = 0;
  for (int i = 0; i < kProfiledSteps; ++i) {
    const StepInput input = training.input(kUntimed + kUsualSteps + i);
    world.barrier("profile");
    if (i == 0) waits.restart();
    const double start = now_seconds();
    training.step.run(model.context_on(backend), input);
    model.settle();
    seconds += now_seconds() - start;
  }
  NamedSeconds waited = waits.by_kind();
  std::erase_if(waited, [](const auto& kind) { return kind.first.ends_with("barrier"); });
  profile.step_s = seconds / kProfiledSteps;
  profile.rows = log.rows();
  for (ProfileRow& row : profile.rows) row.bound_seconds = bound_of(row, profile);
  add_waits(profile, waited);
  profile.between_s = profile.step_s;
  for (ProfileRow& row : profile.rows) {
    for (double* sum : {&row.calls, &row.seconds, &row.flops, &row.bytes, &row.bound_seconds})
      *sum /= kProfiledSteps;
    profile.between_s -= row.seconds;
  }
  std::ranges::sort(profile.rows, std::greater<>(), &ProfileRow::seconds);
  return profile;
}

std::string to_text(const StepProfile& profile, std::size_t most) {
  std::string text = fmt::format(
      "  step {:.1f} ms while operations are timed, {:.1f} ms otherwise; on {}\n"
      "  bounds: products at {:.2f} Tflop/s, memory at {:.1f} GB/s, as measured here\n\n"
      "   share         time    calls        each             rate   bound  operation\n",
      profile.step_s * 1e3, profile.usual_step_s * 1e3, profile.device,
      profile.product_rate * 1e-12, profile.memory_rate * 1e-9);
  ProfileRow others{.operation = "all others", .shape = {}};
  for (std::size_t i = 0; i < profile.rows.size(); ++i) {
    const ProfileRow& row = profile.rows[i];
    if (i < most) {
      text += line(row, profile.step_s);
    } else {
      others.seconds += row.seconds;
      others.calls += row.calls;
    }
  }
  if (others.calls > 0) text += line(others, profile.step_s);
  text += line({.operation = "between them", .shape = {}, .seconds = profile.between_s},
               profile.step_s);
  return text;
}

std::string to_json(const StepProfile& profile) {
  using Json = nlohmann::ordered_json;
  Json rows = Json::array();
  for (const ProfileRow& row : profile.rows)
    rows.push_back({{"operation", row.operation},
                    {"shape", row.shape},
                    {"calls", row.calls},
                    {"seconds", row.seconds},
                    {"flops", row.flops},
                    {"bytes", row.bytes},
                    {"bound_s", row.bound_seconds}});
  const Json json = {{"device", profile.device},
                     {"step_s", profile.step_s},
                     {"usual_step_s", profile.usual_step_s},
                     {"between_s", profile.between_s},
                     {"product_flops_per_s", profile.product_rate},
                     {"memory_bytes_per_s", profile.memory_rate},
                     {"rows", std::move(rows)}};
  return json.dump(2) + "\n";
}

}  // namespace axonn
