#include "axonn/app/board/run_rows.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "axonn/run/records/run_steps.h"

namespace axonn {

namespace {

constexpr double kNotANumber = std::numeric_limits<double>::quiet_NaN();

double& value_in(std::vector<std::pair<std::string, double>>& values, const std::string& name) {
  const auto found = std::ranges::find(values, name, &std::pair<std::string, double>::first);
  return found != values.end() ? found->second : values.emplace_back(name, 0.0).second;
}

std::size_t divide_up(std::size_t a, std::size_t b) { return (a + b - 1) / b; }

}  // namespace

std::optional<RunRow> parse_run_row(std::string_view line) {
  std::optional<RunStep> step = parse_run_step(line);
  if (!step) return std::nullopt;
  RunRow row{.step = step->step, .values = {}};
  for (RunValue& one : step->values)
    if (one.part.empty())
      row.values.emplace_back(std::move(one.key), one.value);
    else if (one.key == "exposed_comm_ms_by")
      value_in(row.values, "exposed_comm_ms/" + one.part.substr(0, one.part.find(' '))) +=
          one.value;
  return row;
}

void ValueRange::add(const ValueRange& other) {
  if (other.count == 0) return;
  low = std::min(low, other.low);
  high = std::max(high, other.high);
  count += other.count;
  mean += (other.mean - mean) * static_cast<float>(other.count) / static_cast<float>(count);
}

std::vector<ValueRange>* ThinnedRows::series(const std::string& name) {
  // Successive rows have the same names in the same order.
  if (next_ >= points_.names.size() || points_.names[next_] != name)
    next_ = std::ranges::find(points_.names, name) - points_.names.begin();
  if (next_ < points_.names.size()) return &points_.series[next_++];
  if (points_.names.size() >= kMostSeries) return nullptr;
  points_.names.push_back(name);
  return &points_.series.emplace_back(size());
}

void ThinnedRows::add(const RunRow& row, std::int64_t offset, double seconds) {
  if (rows_ % width() == 0) {
    if (size() >= most_) halve();
  }
  if (rows_ % width() == 0) {
    points_.first_step.push_back(row.step);
    points_.last_step.push_back(row.step);
    offsets_.push_back(offset);
    seconds_before_.push_back(seconds);
    for (auto& one : points_.series) one.emplace_back();
  }
  ++rows_;
  points_.last_step.back() = row.step;
  const auto put = [&](const std::string& name, double value) {
    if (auto* ranges = series(name); ranges && std::isfinite(value)) {
      const auto one = static_cast<float>(value);
      ranges->back().add({.low = one, .high = one, .mean = one, .count = 1});
    }
  };
  seconds_ = seconds;
  bool waits = false;
  for (const auto& [name, value] : row.values) {
    put(name, value);
    if (name == "step_ms" && value > 0) seconds_ += value / 1e3;
    waits = waits || name == "exposed_comm_ms";
  }
  put("seconds", seconds_);
  if (!waits) return;
  // Lines leave out an axis that nothing waited for.
  for (const std::string& name : points_.names)
    if (name.starts_with("exposed_comm_ms/") &&
        std::ranges::find(row.values, name, &std::pair<std::string, double>::first) ==
            row.values.end())
      put(name, 0);
}

void ThinnedRows::halve() {
  const auto halve_list = [](auto& values, const auto& join) {
    for (std::size_t i = 0; i < values.size(); i += 2)
      values[i / 2] = i + 1 < values.size() ? join(values[i], values[i + 1]) : values[i];
    values.resize(divide_up(values.size(), 2));
  };
  const auto first = [](const auto& one, const auto&) { return one; };
  halve_list(points_.first_step, first);
  halve_list(points_.last_step, [](std::int64_t, std::int64_t last) { return last; });
  halve_list(offsets_, first);
  halve_list(seconds_before_, first);
  for (auto& series : points_.series)
    halve_list(series, [](ValueRange one, const ValueRange& other) {
      one.add(other);
      return one;
    });
  points_.width *= 2;
}

std::int64_t ThinnedRows::width_for(std::size_t count, std::size_t most) const {
  std::int64_t width = points_.width;
  for (; count > most; count = divide_up(count, 2)) width *= 2;
  return width;
}

RunPoints ThinnedRows::joined(std::size_t from, std::size_t to, std::int64_t width) const {
  const auto step = static_cast<std::size_t>(width / points_.width);
  RunPoints result{.width = width, .first = static_cast<std::int64_t>(from / step)};
  result.names = points_.names;
  result.series.resize(points_.names.size());
  for (std::size_t begin = from; begin < to; begin += step) {
    const std::size_t end = std::min(begin + step, to);
    result.first_step.push_back(points_.first_step[begin]);
    result.last_step.push_back(points_.last_step[end - 1]);
    for (std::size_t s = 0; s < result.series.size(); ++s) {
      ValueRange& range = result.series[s].emplace_back();
      for (std::size_t i = begin; i < end; ++i) range.add(points_.series[s][i]);
    }
  }
  return result;
}

std::pair<std::size_t, std::size_t> ThinnedRows::find(std::int64_t first_step,
                                                      std::int64_t last_step) const {
  const auto begin = std::ranges::lower_bound(points_.last_step, first_step);
  const auto end = std::ranges::upper_bound(points_.first_step, last_step);
  const std::size_t from = begin - points_.last_step.begin();
  return {from, std::max<std::size_t>(from, end - points_.first_step.begin())};
}

RunRows::RunRows(std::string path, std::size_t most_kept)
    : file_(std::move(path)), most_kept_(most_kept), rows_(most_kept) {}

void RunRows::begin_anew() {
  rows_ = ThinnedRows(most_kept_);
  last_ = {};
  last_validation_ = best_validation_ = kNotANumber;
  damaged_ = not_finite_ = 0;
  ++generation_;
}

void RunRows::take(std::string_view line, std::int64_t offset) {
  std::optional<RunRow> row = parse_run_row(line);
  if (!row || row->step <= rows_.last_step()) {
    ++damaged_;
    return;
  }
  rows_.add(*row, offset, rows_.seconds());
  last_ = std::move(*row);
  for (const auto& [name, value] : last_.values) {
    if (name == "loss" && std::isnan(value)) ++not_finite_;
    if (name != "val_loss") continue;
    last_validation_ = value;
    best_validation_ = std::fmin(best_validation_, value);  // the number, if the other is none
  }
}

bool RunRows::read(double seconds) {
  return file_.read([this] { begin_anew(); },
                    [this](std::string_view line, std::int64_t offset) { take(line, offset); },
                    seconds);
}

double RunRows::last_of(std::string_view name) const {
  const auto found = std::ranges::find(last_.values, name, &std::pair<std::string, double>::first);
  if (found != last_.values.end()) return found->second;
  return name == "val_loss" ? last_validation_ : kNotANumber;
}

RunPoints RunRows::points(std::int64_t width, std::int64_t have) const {
  const std::int64_t wanted = rows_.width_for(rows_.size(), kMostSent);
  const auto step = static_cast<std::size_t>(wanted / rows_.width());
  std::size_t from = 0;
  if (width == wanted && have > 0)
    from = std::min((static_cast<std::size_t>(have) - 1) * step, rows_.size());
  return rows_.joined(from, rows_.size(), wanted);
}

RunPoints RunRows::points_between(std::int64_t first_step, std::int64_t last_step) const {
  const auto [from, to] = rows_.find(first_step, last_step);
  if (rows_.width() == 1 || to - from >= kMostSent / 2 || from == to)
    return rows_.joined(from, to, rows_.width_for(to - from, kMostSent));
  ThinnedRows again(2 * kMostSent);
  constexpr std::int64_t kToItsEnd = std::numeric_limits<std::int64_t>::max();
  read_lines(file_.path(), rows_.offset(from), to < rows_.size() ? rows_.offset(to) : kToItsEnd,
             [&, before = rows_.seconds_before(from), rows = &again](std::string_view line,
                                                                     std::int64_t offset) {
               const std::optional<RunRow> row = parse_run_row(line);
               if (row && row->step > rows->last_step())
                 rows->add(*row, offset, rows->rows() == 0 ? before : rows->seconds());
             });
  const auto [begin, end] = again.find(first_step, last_step);
  return again.joined(begin, end, again.width_for(end - begin, kMostSent));
}

}  // namespace axonn
