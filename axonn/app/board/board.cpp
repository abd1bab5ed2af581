#include "axonn/app/board/board.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <iterator>
#include <limits>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "axonn/foundation/base/check.h"
#include "axonn/foundation/base/clock.h"
#include "axonn/foundation/base/files.h"
#include "axonn/foundation/base/numbers.h"
#include "axonn/run/records/run_list.h"

namespace axonn {

extern const char kBoardPage[];

namespace {

using nlohmann::json;
namespace fs = std::filesystem;

std::string text_of(const json& value) {
  return value.dump(-1, ' ', false, json::error_handler_t::replace);
}

/// "out/run" for "out//run/".
std::string tidied(const std::string& path) {
  const fs::path whole = fs::path(path).lexically_normal();
  return whole.has_filename() || !whole.has_parent_path() ? whole : whole.parent_path();
}

/// "run" of "out/run"; of ".", the name of that folder. Pages show no other part of a path.
std::string last_name(const std::string& path) {
  return fs::absolute(path).lexically_normal().filename();
}

/// JSON has no NaN.
json number_or_null(double value) { return std::isfinite(value) ? json(value) : json(); }

/// The steps that have samples, or answers with rewards, ascending.
std::vector<std::int64_t> sample_steps(const RunView& run) {
  std::vector<std::int64_t> all;
  std::ranges::set_union(run.samples().steps(), run.answers().steps(), std::back_inserter(all));
  return all;
}

json known(double value) { return value < 0 ? json() : number_or_null(value); }

json status_of(const RunView& run, std::time_t now) {
  const RunRows& rows = run.rows();
  json last = json::object();
  for (const char* key : {"loss", "val_loss", "tokens", "tokens_per_s", "memory_bytes", "mfu",
                          "save_failures", "exposed_comm_ms", "step_ms"})
    last[key] = number_or_null(rows.last_of(key));
  return {{"name", run.name()},
          {"state", name_of(run.state())},
          {"reason", run.reason()},
          {"step", rows.last().step},
          {"steps", run.steps()},
          {"rows", rows.rows()},
          {"generation", rows.generation()},
          {"damaged", rows.damaged()},
          {"not_finite", rows.not_finite()},
          {"seconds", rows.seconds()},
          {"seconds_left", known(run.seconds_left())},
          {"age", known(run.seconds_since_line(now))},
          {"config_version", run.config_version()},
          {"checkpoints", run.checkpoints()},
          {"warnings", run.warnings()},
          {"slowest", run.slowest()},
          {"sample_step", std::max(run.samples().last_step(), run.answers().last_step())},
          {"last", last}};
}

/// "[1,null,3]".
template <typename Values, typename Put>
void put_list(std::string& out, const Values& values, const Put& put) {
  out += '[';
  for (const auto& value : values) {
    put(value);
    out += ',';
  }
  if (out.back() == ',') out.pop_back();
  out += ']';
}

std::string to_json(const RunRows& rows, const RunPoints& points) {
  std::string out = fmt::format(R"({{"generation":{},"width":{},"first":{},"rows":{})",
                                rows.generation(), points.width, points.first, rows.rows());
  const auto put_step = [&](std::int64_t step) {
    fmt::format_to(std::back_inserter(out), "{}", step);
  };
  for (const auto& [name, steps] :
       {std::pair{"first_step", &points.first_step}, {"last_step", &points.last_step}}) {
    out += fmt::format(R"(,"{}":)", name);
    put_list(out, *steps, put_step);
  }
  out += R"(,"series":{)";
  for (std::size_t s = 0; s < points.names.size(); ++s) {
    out += fmt::format(R"({}{}:{{"mean":)", s == 0 ? "" : ",", text_of(points.names[s]));
    const auto put = [&](float ValueRange::*part) {
      put_list(out, points.series[s], [&](const ValueRange& range) {
        if (range.count == 0 || !std::isfinite(range.*part))
          out += "null";
        else
          fmt::format_to(std::back_inserter(out), "{:.7g}", range.*part);
      });
    };
    put(&ValueRange::mean);
    if (points.width > 1) {
      out += R"(,"low":)";
      put(&ValueRange::low);
      out += R"(,"high":)";
      put(&ValueRange::high);
    }
    out += '}';
  }
  return out + "}}";
}

/// A parameter that is a whole number of at least 0; `otherwise` if it is missing.
std::int64_t number_in(const HttpRequest& request, const std::string& name,
                       std::int64_t otherwise) {
  const std::string text = request.parameter(name);
  if (text.empty()) return otherwise;
  const auto value = parse_integer(text);
  if (!value || *value < 0) refuse("the parameter ", name, " must be a whole number of at least 0");
  return *value;
}

}  // namespace

Board::Board(const std::vector<std::string>& paths) {
  for (const std::string& path : paths) {
    if (path_exists(path) && !is_folder(path))
      refuse(path, " is a file; name the folder of a run (its output.dir), or one that holds some");
    paths_.push_back(tidied(path));
  }
}

void Board::add_run(const std::string& folder, const std::string& path) {
  const auto is_known = [&](const auto& run) { return run->folder() == folder; };
  if (std::ranges::any_of(runs_, is_known)) return;
  if (runs_.size() >= kMostRuns) {
    ++left_out_;
    return;
  }
  const auto has = [&](const std::string& name) {
    return std::ranges::any_of(runs_, [&](const auto& run) { return run->name() == name; });
  };
  const std::string below = fs::path(folder).lexically_relative(path);
  std::string name = folder == path ? last_name(path) : below;
  if (has(name)) name = concat(last_name(path), '/', below);
  for (int i = 2; has(name); ++i) name = concat(last_name(path), '/', below, " (", i, ')');
  runs_.push_back(std::make_unique<RunView>(folder, name));
}

void Board::look_for_runs() {
  constexpr double kSecondsBetween = 2;
  const double now = now_seconds();
  if (looked_ >= 0 && now - looked_ < kSecondsBetween) return;
  looked_ = now;
  left_out_ = 0;
  waiting_.clear();
  for (const std::string& path : paths_) {
    const std::vector<std::string> found = runs_below(path);
    for (const std::string& folder : found) add_run(folder, path);
    if (found.empty())
      waiting_.push_back(last_name(path) +
                         (is_folder(path) ? " holds no run yet" : " does not exist yet"));
  }
}

std::string Board::runs_json(std::time_t now) {
  constexpr double kSeconds = 0.25;
  const std::scoped_lock lock(mutex_);
  look_for_runs();
  const double end = now_seconds() + kSeconds;
  bool more = false;
  // Another run comes first each time, so that a long one does not keep the others waiting.
  for (std::size_t i = 0; i < runs_.size(); ++i)
    more |= runs_[(turn_ + i) % runs_.size()]->read(std::max(0.0, end - now_seconds()), now);
  ++turn_;
  json runs = json::array();
  for (const auto& run : runs_) runs.push_back(status_of(*run, now));
  return text_of({{"runs", runs}, {"waiting", waiting_}, {"left_out", left_out_}, {"more", more}});
}

const RunView& Board::run(std::int64_t number) const {
  if (number < 0 || number >= std::ssize(runs_))
    refuse("there is no run ", number, "; /api/runs lists those that there are, from 0");
  return *runs_[static_cast<std::size_t>(number)];
}

std::string Board::points_json(std::int64_t number, std::int64_t width, std::int64_t have) {
  const std::scoped_lock lock(mutex_);
  const RunRows& rows = run(number).rows();
  return to_json(rows, rows.points(width, have));
}

std::string Board::range_json(std::int64_t number, std::int64_t first_step,
                              std::int64_t last_step) {
  const std::scoped_lock lock(mutex_);
  const RunRows& rows = run(number).rows();
  return to_json(rows, rows.points_between(first_step, last_step));
}

std::string Board::config_json(std::int64_t number) {
  const std::scoped_lock lock(mutex_);
  const RunView& view = run(number);
  return text_of({{"version", view.config_version()}, {"config", view.config()}});
}

std::string Board::samples_json(std::int64_t number, std::int64_t step) {
  const std::scoped_lock lock(mutex_);
  const RunView& view = run(number);
  const std::vector<std::int64_t> steps = sample_steps(view);
  auto at = std::ranges::upper_bound(steps, step);
  if (at != steps.begin()) --at;
  const std::int64_t found = at == steps.end() ? 0 : *at;
  json samples = json::array();
  const auto add = [&](TextSample& one) -> json& {
    return samples.emplace_back(json{{"prompt", std::move(one.prompt)},
                                     {"text", std::move(one.text)},
                                     {"tokens", one.tokens},
                                     {"end", std::move(one.end)}});
  };
  for (TextSample& one : view.samples().at(found))
    if (one.step == found) add(one);
  for (ScoredAnswer& one : view.answers().at(found)) {
    json& sample = add(one.sample);
    sample["advantage"] = one.advantage;
    sample["rewards"] = json::array();
    for (const auto& [name, reward] : one.rewards)
      sample["rewards"].push_back({name, number_or_null(reward)});
  }
  return text_of({{"steps", steps}, {"step", found}, {"samples", samples}});
}

void add_board(HttpServer& server, Board& board) {
  server.get(
      "/",
      [](const HttpRequest&, HttpResponse& response) {
        response.type = "text/html; charset=utf-8";
        response.body = kBoardPage;
      },
      true);
  server.get("/api/runs", [&board](const HttpRequest&, HttpResponse& response) {
    response.body =
        board.runs_json(std::chrono::system_clock::to_time_t(std::chrono::system_clock::now()));
  });
  server.get("/api/rows", [&board](const HttpRequest& request, HttpResponse& response) {
    const std::int64_t run = number_in(request, "run", -1), to = number_in(request, "to", -1);
    response.body = to < 0 ? board.points_json(run, number_in(request, "width", 0),
                                               number_in(request, "have", 0))
                           : board.range_json(run, number_in(request, "from", 0), to);
  });
  server.get("/api/config", [&board](const HttpRequest& request, HttpResponse& response) {
    response.body = board.config_json(number_in(request, "run", -1));
  });
  server.get("/api/samples", [&board](const HttpRequest& request, HttpResponse& response) {
    response.body =
        board.samples_json(number_in(request, "run", -1),
                           number_in(request, "step", std::numeric_limits<std::int64_t>::max()));
  });
}

}  // namespace axonn
