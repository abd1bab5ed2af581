#include "tests/cluster/job.h"

#include <algorithm>

#include <fmt/format.h>

namespace axonn::cluster {

namespace {

/// A grid of so many ranks.
GridShape draw_grid(Draws& draws, int ranks) {
  for (;;) {
    GridShape grid{.x = draws.one_of({1, 2}),
                   .y = draws.one_of({1, 2}),
                   .z = draws.one_of({1, 2, 4}),
                   .data = draws.one_of({1, 2, 4})};
    if (grid.ranks() == ranks) return grid;
  }
}

/// Ranks of a node, for so many ranks.
int draw_node_ranks(Draws& draws, int ranks) {
  return std::min(ranks, draws.one_of({1, 1, 2, std::max(ranks / 2, 1)}));
}

}  // namespace

std::vector<std::string> Job::command(const Layout& on, const std::string& folder) const {
  std::vector<std::string> all{"train"};
  all.insert(all.end(), words.begin(), words.end());
  const auto set = [&](const std::string& key, const auto& value) {
    all.insert(all.end(), {"--" + key, fmt::format("{}", value)});
  };
  set("parallelism.grid",
      fmt::format("{},{},{},{}", on.grid.x, on.grid.y, on.grid.z, on.grid.data));
  set("output.dir", folder + "/shared/run");
  set("checkpoint.resume", "auto");
  set("checkpoint.every", every);
  if (local_every > 0) {
    set("checkpoint.local_every", local_every);
    set("checkpoint.local_folder", folder + "/local");
    set("checkpoint.local_node_ranks", on.node_ranks);
  }
  return all;
}

Job draw_job(Draws& draws, const JobOptions& options) {
  Job job{.mpi = options.mpi};
  const auto set = [&](const std::string& key, const auto& value) {
    job.words.insert(job.words.end(), {"--" + key, fmt::format("{}", value)});
  };
  job.steps = static_cast<int>(draws.between(6, 12));
  const int ranks = draws.one_of({1, 2, 2, 2, 4, 4, 4, 8});
  job.layout.grid = draw_grid(draws, ranks);
  job.layout.node_ranks = draw_node_ranks(draws, ranks);
  job.every = draws.one_of({0, 1, 2, 3, 5});
  job.local_every = draws.one_of({0, 1, 1, 2, 3});
  if (draws.chance(0.25)) {
    const int others = draws.one_of({1, 2, 4, ranks});
    job.other = {draw_grid(draws, others), draw_node_ranks(draws, others)};
  }

  set("model.family", draws.one_of({"gpt", "llama"}));
  set("model.layers", draws.one_of({1, 1, 2}));
  set("model.hidden", 16);
  set("model.heads", 4);
  set("model.vocab", 256);
  set("model.tied", draws.chance(0.5));
  set("data.synthetic", "8KB");
  set("data.validation", 0.1);
  set("data.shuffle", draws.chance(0.8));
  set("training.steps", job.steps);
  set("training.seq_len", 16);
  set("training.global_batch", 16);
  set("training.micro_batch", draws.one_of({0, 1, 2}));
  set("training.seed", draws.between(1, 1'000));
  set("training.threads", 1);
  set("training.bind_cores", false);
  set("training.eval_every", draws.one_of({0, 3, 4}));
  set("training.eval_batches", 1);
  if (!job.other) set("training.dtype", draws.one_of({"f32", "f32", "f32", "bf16"}));
  if (draws.chance(0.2)) set("training.batch_ramp", "8 8 64");
  const std::string optimizer = draws.one_of({"adamw", "adamw", "sgd", "muon", "adafactor"});
  set("optimizer.kind", optimizer);
  set("optimizer.lr", 1e-3);
  if (optimizer == "adamw" && draws.chance(0.3)) set("optimizer.moments", "bf16");
  if (draws.chance(0.3)) set("optimizer.ema_decay", 0.9);
  set("parallelism.transport", job.mpi ? "mpi" : "threads");
  set("parallelism.timeout_seconds", kTimeoutSeconds);
  set("parallelism.keep_weights", draws.one_of({"none", "none", "step"}));
  set("checkpoint.async", draws.chance(0.7));
  set("checkpoint.best", draws.chance(0.2));
  set("checkpoint.keep", draws.one_of({1, 2, 3}));
  if (draws.chance(0.1)) set("checkpoint.keep_factor", 1.5);
  if (draws.chance(0.1)) set("checkpoint.give_up_minutes", 0);
  if (draws.chance(0.15)) set("output.tensorboard", true);
  if (draws.chance(0.3)) set("checkpoint.every_minutes", 0.0001);  // 6 ms of virtual time
  job.checks_messages = job.mpi && draws.chance(0.8);
  if (job.checks_messages) set("parallelism.verify_messages", !options.forgets_checks);
  return job;
}

ScheduleOptions draw_schedule(Draws& draws) {
  ScheduleOptions options{.seed = draws.bits()};
  options.priorities = draws.chance(0.25);
  options.switches = draws.one_of({0.01, 0.1, 0.3, 0.9});
  options.step_ns = draws.one_of({200, 1'000, 5'000});
  return options;
}

namespace {

void draw_message_faults(Draws& draws, const Job& job, std::int64_t messages, Faults& faults) {
  using Kind = MessageFault::Kind;
  const auto add = [&](Kind kind, double seconds = 0) {
    faults.messages.push_back({kind, draws.between(1, messages), seconds});
  };
  if (draws.chance(0.4))
    for (std::int64_t i = draws.between(1, 6); i > 0; --i)
      add(Kind::late, draws.one_of({0.001, 0.05, 0.4}));
  // One of these ends a start; who has two of them to blame would be a matter of chance.
  if (faults.frozen_rank >= 0 || !faults.disk.empty() || !draws.chance(0.5)) return;
  if (draws.chance(0.6)) {
    faults.end = Faults::End::none;
    faults.end_point = faults.end_file_call = 0;
  }
  const Kind bytes = job.checks_messages ? Kind::torn : Kind::cut;
  add(draws.one_of({Kind::cut, Kind::lost, bytes, bytes}));
}

}  // namespace

Faults draw_faults(Draws& draws, const Job& job, const Job::Layout& on, const Extent& extent,
                   const std::string& folder) {
  Faults faults;
  const auto point = [&] { return draws.between(1, extent.points); };
  const auto call = [&] { return draws.between(1, extent.file_calls); };
  const double end = draws.uniform();
  if (end < 0.7) {
    faults.end = draws.chance(0.5) ? Faults::End::killed : Faults::End::power_lost;
    // Most of a run's points are in its steps, most calls for files in its checkpoints.
    const bool at_file = draws.chance(0.6);
    (at_file ? faults.end_file_call : faults.end_point) = at_file ? call() : point();
  } else if (end < 0.8) {
    faults.stop_point = point();
  } else if (end < 0.9 && on.grid.ranks() > 1) {
    faults.frozen_rank = static_cast<int>(draws.below(on.grid.ranks()));
    faults.frozen_point = point();
  }
  if (draws.chance(0.3))
    for (std::int64_t i = draws.between(1, 4); i > 0; --i)
      faults.pauses.push_back({point(), static_cast<int>(draws.below(on.grid.ranks())),
                               draws.one_of({0.001, 0.05, 0.4})});
  if (draws.chance(0.2))
    for (std::int64_t i = draws.between(1, 3); i > 0; --i)
      faults.jumps.push_back({point(), draws.one_of({-86'400.0, -1.0, 1.0, 3'600.0, 1e7})});
  if (draws.chance(0.25)) {
    DiskFault fault{.kind = draws.one_of({DiskFault::Kind::full, DiskFault::Kind::broken,
                                          DiskFault::Kind::slow, DiskFault::Kind::few_bytes})};
    fault.below = folder + (job.local_every > 0 && draws.chance(0.4) ? "/local" : "/shared");
    fault.first = call();
    fault.last = fault.first + draws.one_of({0, 0, 3, 30, 1'000'000});
    fault.seconds = draws.one_of({0.001, 0.03, 0.2});
    if (fault.kind == DiskFault::Kind::slow) fault.last = std::min(fault.last, fault.first + 3);
    faults.disk.push_back(fault);
  }
  if (extent.messages > 0) draw_message_faults(draws, job, extent.messages, faults);
  return faults;
}

}  // namespace axonn::cluster
