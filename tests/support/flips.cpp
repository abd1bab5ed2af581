#include "tests/support/flips.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include "axonn/compute/ops/forwarding_backend.h"
#include "axonn/compute/tensor/address.h"
#include "axonn/foundation/base/check.h"
#include "axonn/foundation/base/hash.h"
#include "axonn/foundation/base/random.h"
#include "axonn/ranks/comm/call.h"
#include "axonn/ranks/comm/texts.h"
#include "axonn/ranks/comm/threads/threads.h"
#include "axonn/run/config/resolve.h"
#include "axonn/run/load/devices.h"
#include "axonn/run/train/training.h"

#include "tests/support/runs.h"
#include "tests/support/state_places.h"
#include "tests/support/temporary_path.h"

namespace axonn::testing_support {

namespace {

constexpr int kSteps = 3;

/// Counts the events of a rank, and flips the bit at its moment.
class Injector {
 public:
  /// `flip` is of another rank unless `here`; null: there is none.
  Injector(const Flip* flip, bool here)
      : flip_(flip), here_(here), random_(flip ? flip->seed : 0, "flip") {}

  bool wants(FlipIn in) const { return flip_ && flip_->in == in; }

  /// Whether the flip is due at this event.
  bool is_due(FlipIn in) {
    const std::int64_t number = events_[static_cast<int>(in)]++;
    return on_ && here_ && wants(in) && number == flip_->moment;
  }
  /// Draws numbers below a bound.
  std::int64_t draw(std::int64_t below) { return random_.below(drawn_++, below); }
  void flip(void* data, std::int64_t bytes, std::string what) {
    static_cast<std::byte*>(data)[draw(bytes)] ^= std::byte{1} << draw(8);
    hit_ = std::move(what);
  }
  /// Of the elements of one of these views; all of them may be empty.
  void flip(std::vector<View> views, const std::string& what) {
    std::erase_if(views, [](const View& view) { return !view.data || view.count() == 0; });
    if (views.empty()) return;
    const View view = views[draw(std::ssize(views))];
    const std::int64_t at = draw(view.rows) * view.stride + draw(view.cols),
                       size = bytes_of(view.dtype);
    flip(static_cast<std::byte*>(view.data) + at * size, size, concat(what, ' ', view));
  }
  void stop() { on_ = false; }
  const std::vector<std::int64_t>& events() const { return events_; }
  const std::string& hit() const { return hit_; }

 private:
  const Flip* flip_;
  bool here_;
  Random random_;
  std::uint64_t drawn_ = 0;
  bool on_ = true;
  std::vector<std::int64_t> events_ = std::vector<std::int64_t>(kFlips);
  std::string hit_;
};

/// Calls functions before and after each operation.
class HookedBackend final : public ForwardingBackend {
 public:
  using Hook = std::function<void(const OperationCall& call, const std::string& what)>;
  HookedBackend(std::unique_ptr<Backend> inner, Hook before, Hook after)
      : ForwardingBackend(std::move(inner)), before_(std::move(before)), after_(std::move(after)) {}

  void mark(std::string_view layer) override {
    layer_ = layer;
    ForwardingBackend::mark(layer);
  }

 protected:
  void around(const OperationCall& call, const std::function<void()>& run) override {
    const std::string what = concat(call.name, " of ", layer_);
    before_(call, what);
    run();
    after_(call, what);
  }

 private:
  Hook before_, after_;
  std::string layer_;
};

/// Passes collectives to another communicator, and may flip a bit of what they give.
class FlippingCommunicator final : public Communicator {
 public:
  FlippingCommunicator(Communicator& inner, Injector& injector)
      : Communicator("world", inner.rank(), inner.size()), inner_(inner), injector_(injector) {}

  bool in_one_process() const override { return inner_.in_one_process(); }
  void abort(const std::string& reason) noexcept override { inner_.abort(reason); }
  std::string end_reason() const override { return inner_.end_reason(); }
  void give_up(const std::string& reason) noexcept override { inner_.give_up(reason); }

 private:
  struct Flipped final : Work::State {
    std::shared_ptr<Work::State> inner;
    std::function<void()> then;

    void wait() override {
      if (inner) inner->wait();
      if (then) std::exchange(then, {})();
    }
    bool done() override { return !inner || inner->done(); }
  };

  FlippingCommunicator(std::unique_ptr<Communicator> inner, std::string name, Injector& injector)
      : Communicator(std::move(name), inner->rank(), inner->size()),
        owned_(std::move(inner)),
        inner_(*owned_),
        injector_(injector) {}

  std::shared_ptr<Work::State> start(Call call) override {
    const Buffer out = call.out;
    const std::string what = describe(call);
    auto state = start_on(inner_, std::move(call));
    if (out.count == 0 || size() == 1 || !injector_.is_due(FlipIn::message)) return state;
    auto flipped = std::make_shared<Flipped>();
    flipped->inner = std::move(state);
    flipped->then = [this, out, what] { injector_.flip(out.data, out.bytes(), what); };
    return flipped;
  }
  std::unique_ptr<Communicator> split_off(int color, std::string name) override {
    auto group = inner_.split(color, name);
    return std::unique_ptr<Communicator>(
        new FlippingCommunicator(std::move(group), std::move(name), injector_));
  }

  std::unique_ptr<Communicator> owned_;
  Communicator& inner_;
  Injector& injector_;
};

/// The checked backend of a rank, with the places of flips.
std::unique_ptr<Backend> backend_with(const Config& config, Communicator& world, Injector& injector,
                                      const std::vector<Place>& places) {
  const auto nothing = [](const OperationCall&, const std::string&) {};
  const auto in_result = [&](const OperationCall& call, const std::string& what) {
    const bool product = call.kind == OperationKind::product;
    if (!injector.is_due(product ? FlipIn::product : FlipIn::operation)) return;
    std::vector<View> written;
    for (std::size_t i = 0; i < call.operands.size(); ++i)
      if (call.writes(i)) written.push_back(call.operands[i]);
    injector.flip(written, what);
  };
  const auto in_operand = [&](const OperationCall& call, const std::string& what) {
    if (injector.is_due(FlipIn::value))
      injector.flip({call.operands.begin(), call.operands.end()}, what);
  };
  // The sums of the state are computed right after its update, for which "after" would be too soon.
  const auto before = [&, in_operand](const OperationCall& call, const std::string& what) {
    if (call.kind == OperationKind::update) in_operand(call, what);
    if (!injector.is_due(FlipIn::state) || places.empty()) return;
    const Place& place = places[injector.draw(std::ssize(places))];
    injector.flip(place.begin, place.bytes, place.name);
  };
  const auto after = [in_operand](const OperationCall& call, const std::string& what) {
    if (call.kind != OperationKind::update) in_operand(call, what);
  };
  return std::make_unique<HookedBackend>(
      with_checks(std::make_unique<HookedBackend>(make_cpu_backend(1), nothing, in_result),
                  config.training, 1, world),
      before, after);
}

/// What one rank leaves.
struct RankEnd {
  Injector* injector = nullptr;
  std::vector<std::uint64_t> digests;
  std::vector<std::string> remarks;
};

/// Saves a checkpoint, flips a bit of one of its files if that is due, and loads it.
void go_through_files(Training& training, Communicator& world, std::int64_t steps,
                      Injector& injector) {
  std::optional<test::TemporaryPath> folder;
  std::string path;
  if (world.rank() == 0) path = folder.emplace().path();
  path = broadcast_text(world, path, 0);
  save_checkpoint(training, path, steps);
  world.barrier();
  if (world.rank() == 0 && injector.is_due(FlipIn::file)) {
    std::vector<std::filesystem::path> files;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(path))
      if (entry.is_regular_file() && entry.file_size() > 0) files.push_back(entry.path());
    std::ranges::sort(files);
    const auto& file = files[injector.draw(std::ssize(files))];
    std::string bytes = test::slurp(file);
    injector.flip(bytes.data(), std::ssize(bytes), concat("file ", file.filename().string()));
    std::ofstream(file, std::ios::binary) << bytes;
  }
  world.barrier();
  load_checkpoint(training, path);
  world.barrier();
}

void train_rank(const PreparedRun& run, Communicator& world, RankEnd& end) {
  Injector& injector = *end.injector;
  std::vector<Place> places;
  Training training(run, world, backend_with(run.config(), world, injector, places));
  training.model.initialise();
  const auto note = [&](const void* data, std::int64_t bytes) {
    end.digests.push_back(
        xxh3({static_cast<const std::byte*>(data), static_cast<std::size_t>(bytes)}));
  };
  const auto note_remarks = [&] {
    std::ranges::move(training.model.backend().take_remarks(), std::back_inserter(end.remarks));
    std::ranges::move(training.take_warnings(), std::back_inserter(end.remarks));
  };
  for (int step = 0; step < kSteps; ++step) {
    training.model.settle();
    if (injector.wants(FlipIn::file) && step == kSteps - 1)
      go_through_files(training, world, step, injector);
    places = state_places(training, true);
    const StepResult result = training.run(step);
    note_remarks();
    AXONN_CHECK(result.finite, "step ", step, " is not finite");
    for (const double value : {result.loss, result.grad_norm}) note(&value, sizeof value);
  }
  training.model.settle();
  training.optimizer.check_sums();
  training.model.backend().check_memory();
  note_remarks();
  injector.stop();
  for (const Place& place : state_places(training, true)) note(place.begin, place.bytes);
}

}  // namespace

FlippedRun run_with_flip(const PreparedRun& run, const Flip* flip) {
  const int ranks = static_cast<int>(run->parallelism.grid().ranks());
  std::vector<Injector> injectors;
  for (int rank = 0; rank < ranks; ++rank) injectors.emplace_back(flip, flip && flip->rank == rank);
  std::vector<RankEnd> ends(ranks);
  FlippedRun result;
  try {
    run_ranks(ranks, [&](Communicator& world) {
      RankEnd& end = ends[world.rank()];
      end.injector = &injectors[world.rank()];
      FlippingCommunicator flipping(world, *end.injector);
      train_rank(run, flipping, end);
    });
  } catch (const Error& error) {
    result.error = error.what();
  }
  std::vector<std::uint64_t> digests;
  for (int rank = 0; rank < ranks; ++rank) {
    result.events.push_back(injectors[rank].events());
    if (!injectors[rank].hit().empty())
      result.hit = concat("rank ", rank, ": ", injectors[rank].hit());
    digests.insert(digests.end(), ends[rank].digests.begin(), ends[rank].digests.end());
    for (std::string& remark : ends[rank].remarks)
      result.remarks.push_back(concat("rank ", rank, ": ", std::move(remark)));
  }
  result.digest = xxh3(std::as_bytes(std::span(digests)));
  return result;
}

FlipEnd end_of(const FlippedRun& run, const FlippedRun& clean, const Flip& flip) {
  const std::string name = flip.in == FlipIn::file ? run.hit.substr(run.hit.rfind(' ') + 1)
                                                   : concat("silent corruption: rank ", flip.rank);
  if (!run.error.empty()) {
    const bool named = run.error.find(name) != std::string::npos;
    return named ? FlipEnd::found : FlipEnd::other;
  }
  if (run.digest != clean.digest) return FlipEnd::missed;
  return run.remarks.size() > clean.remarks.size() ? FlipEnd::repaired : FlipEnd::none;
}

Flip random_flip(FlipIn in, const FlippedRun& clean, std::uint64_t seed) {
  const Random random(seed, "moment");
  Flip flip{.in = in, .seed = seed};
  if (in == FlipIn::file) return flip;  // which rank 0 flips
  flip.rank = static_cast<int>(random.below(0, std::ssize(clean.events)));
  flip.moment =
      random.below(1, std::max<std::int64_t>(1, clean.events[flip.rank][static_cast<int>(in)]));
  return flip;
}

std::vector<FlipSetting> flip_settings() {
  std::vector<FlipSetting> all;
  const auto add = [&](const std::string& name, const GridShape& grid, const auto& change) {
    Config config = on_grid(tiny_config("unused"), grid);
    config.data.synthetic = 4000;
    config.data.validation.clear();
    config.training.global_batch = 4;
    config.lr_scheduler.warmup_steps = 0;
    change(config);
    all.push_back({concat(name, " on ", with_factors(grid)), resolved(config)});
  };
  add("gpt, f32, adamw", {2, 1, 1, 1}, [](Config&) {});
  add("gpt, bf16, adamw, two micro-batches", {1, 1, 2, 1}, [](Config& config) {
    config.training.dtype = DType::bf16;
    config.training.micro_batch = 1;
  });
  add("llama, f32, muon", {1, 1, 1, 2}, [](Config& config) {
    config.model.family = ModelFamily::llama;
    config.model.ffn = 48;
    config.optimizer.kind = OptimizerKind::muon;
  });
  add("llama, bf16, adamw, recomputed", {1, 2, 1, 2}, [](Config& config) {
    config.model.family = ModelFamily::llama;
    config.model.ffn = 48;
    config.training.dtype = DType::bf16;
    config.activation_checkpoint.mode = RecomputeMode::full;
  });
  add("gpt, f32, lion", {2, 1, 2, 1},
      [](Config& config) { config.optimizer.kind = OptimizerKind::lion; });
  add("llama with experts, f32, adamw in 8 bits", {1, 1, 2, 1, 1, 2}, [](Config& config) {
    config.model.family = ModelFamily::llama;
    config.model.ffn = 48;
    config.model.experts = 4;
    config.model.experts_per_token = 2;
    config.model.expert_ffn = 24;
    config.optimizer.moments = MomentType::eight_bits;
  });
  return all;
}

}  // namespace axonn::testing_support
