#pragma once

#include <cstdint>
#include <ctime>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "axonn/app/board/run_view.h"
#include "axonn/app/serve/http.h"

namespace axonn {

/// The runs that a page shows, by number. Several threads may call it.
class Board {
 public:
  static constexpr std::size_t kMostRuns = 64;

  /// Folders of runs, or folders that hold those of runs, at most two levels down; a folder may be
  /// both. They need not exist yet; runs that appear later are added. Throws UsageError if one is a
  /// file.
  explicit Board(const std::vector<std::string>& paths);

  /// Reads what is new, for about a quarter of a second, and tells the state of all runs:
  ///
  ///   {"runs": [{"name", "state", "step", "steps", "rows", "generation", ...}, ...],
  ///    "waiting": ["out does not exist yet"], "left_out": 0, "more": false}
  ///
  /// more: whether a run has lines that were not read yet. null: unknown.
  std::string runs_json(std::time_t now);
  /// The figures of a run, as RunRows::points() or, with steps, points_between():
  ///
  ///   {"generation", "width", "first", "rows", "first_step": [], "last_step": [],
  ///    "series": {"loss": {"mean": [], "low": [], "high": []}, ...}}
  ///
  /// Without low and high if width is 1. null: no value, or none that is finite. Throws UsageError
  /// if there is no such run.
  std::string points_json(std::int64_t run, std::int64_t width, std::int64_t have);
  std::string range_json(std::int64_t run, std::int64_t first_step, std::int64_t last_step);
  /// {"version": 1, "config": {"training.steps": "50", ...}}. Throws as points_json().
  std::string config_json(std::int64_t run);
  /// The samples of the last step up to `step` that has some, and all steps that have:
  /// {"steps": [10, 20], "step": 20, "samples": [{"prompt", "text", "tokens", "end"}]}; of answers
  /// that the run learned from in this step, also {"advantage": 0.5, "rewards": [["exact", 1]]}.
  /// Throws as points_json().
  std::string samples_json(std::int64_t run, std::int64_t step);

 private:
  void look_for_runs();
  void add_run(const std::string& folder, const std::string& path);
  const RunView& run(std::int64_t number) const;

  std::mutex mutex_;
  std::vector<std::string> paths_;
  std::vector<std::unique_ptr<RunView>> runs_;
  std::vector<std::string> waiting_;
  std::size_t left_out_ = 0, turn_ = 0;
  double looked_ = -1;  // on now_seconds()
};

/// Adds GET / (the page, without a token), /api/runs, /api/rows, /api/config and
/// /api/samples.
void add_board(HttpServer& server, Board& board);

}  // namespace axonn
