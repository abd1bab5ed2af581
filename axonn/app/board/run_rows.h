#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "axonn/app/board/line_tail.h"

namespace axonn {

/// The figures of one step of a run, by the keys of metrics.jsonl; NaN for null.
struct RunRow {
  std::int64_t step = 0;
  std::vector<std::pair<std::string, double>> values;
};

/// Reads a line of metrics.jsonl; empty if it is damaged. The waits of exposed_comm_ms_by are
/// summed for each axis: "exposed_comm_ms/z".
std::optional<RunRow> parse_run_row(std::string_view line);

/// A series' finite values in several successive steps.
struct ValueRange {
  float low = std::numeric_limits<float>::infinity(), high = -low, mean = 0;
  std::uint32_t count = 0;

  void add(const ValueRange& other);
  bool operator==(const ValueRange&) const = default;
};

/// A run's series as points of `width` successive steps each, the last of fewer.
struct RunPoints {
  std::int64_t width = 1, first = 0;                ///< first: number of the first point
  std::vector<std::int64_t> first_step, last_step;  // (points)
  std::vector<std::string> names;                   // (series)
  std::vector<std::vector<ValueRange>> series;      // (series, points)
};

/// The steps of a run in bounded memory: when there are `most` points (an even number), each two
/// become one. Keeps where each point's lines begin, so that they can be read again.
class ThinnedRows {
 public:
  static constexpr std::size_t kMostSeries = 64;

  explicit ThinnedRows(std::size_t most) : most_(most) {}

  /// offset: of the row's line in its file; seconds: of training before the row.
  void add(const RunRow& row, std::int64_t offset, double seconds);
  /// Seconds of training, to the last row.
  double seconds() const { return seconds_; }

  std::int64_t rows() const { return rows_; }
  std::int64_t last_step() const {
    return points_.last_step.empty() ? 0 : points_.last_step.back();
  }
  std::int64_t width() const { return points_.width; }

  /// The width, a multiple of width(), with which `count` points become at most `most` points.
  std::int64_t width_for(std::size_t count, std::size_t most) const;
  /// Points `from` to `to` (excluded), joined to points of the width.
  RunPoints joined(std::size_t from, std::size_t to, std::int64_t width) const;
  /// The points with steps of a range: [first, second).
  std::pair<std::size_t, std::size_t> find(std::int64_t first_step, std::int64_t last_step) const;
  std::size_t size() const { return offsets_.size(); }
  std::int64_t offset(std::size_t point) const { return offsets_[point]; }
  double seconds_before(std::size_t point) const { return seconds_before_[point]; }

 private:
  std::vector<ValueRange>* series(const std::string& name);
  void halve();

  std::size_t most_;
  std::int64_t rows_ = 0;
  std::size_t next_ = 0;  // series that probably comes next
  double seconds_ = 0;
  RunPoints points_;
  std::vector<std::int64_t> offsets_;   // (points)
  std::vector<double> seconds_before_;  // (points)
};

/// Follows the metrics.jsonl of a run.
class RunRows {
 public:
  /// About 20 MiB a run. A range of fewer than kMostSent / 2 points is read again from the file.
  static constexpr std::size_t kMostKept = std::size_t{1} << 16;
  /// Points of an answer: more than a wide screen has pixels.
  static constexpr std::size_t kMostSent = 2000;

  explicit RunRows(std::string path, std::size_t most_kept = kMostKept);

  /// Reads new lines for about `seconds`. Returns whether there are more.
  bool read(double seconds);

  const LineTail& file() const { return file_; }
  std::int64_t rows() const { return rows_.rows(); }
  double seconds() const { return rows_.seconds(); }  ///< of training
  std::int64_t damaged() const { return damaged_; }   ///< lines that are not a step's
  /// Changes when earlier points no longer hold.
  std::int64_t generation() const { return generation_; }
  const RunRow& last() const { return last_; }
  /// A value of the last row, or the last "val_loss"; NaN if there is none.
  double last_of(std::string_view name) const;
  /// The lowest "val_loss"; NaN if there is none.
  double best_validation() const { return best_validation_; }
  std::int64_t not_finite() const { return not_finite_; }  ///< steps with such a loss

  /// The whole run in at most kMostSent points. If the caller has `have` points of this width, the
  /// answer begins with the last of them, which may have grown.
  RunPoints points(std::int64_t width, std::int64_t have) const;
  /// The steps of a range, in at most kMostSent points, each step its own if they are so few. Reads
  /// the file again if need be.
  RunPoints points_between(std::int64_t first_step, std::int64_t last_step) const;

 private:
  void begin_anew();
  void take(std::string_view line, std::int64_t offset);

  LineTail file_;
  std::size_t most_kept_;
  ThinnedRows rows_;
  RunRow last_;
  double last_validation_ = std::numeric_limits<double>::quiet_NaN(),
         best_validation_ = last_validation_;
  std::int64_t damaged_ = 0, not_finite_ = 0, generation_ = 1;
};

}  // namespace axonn
