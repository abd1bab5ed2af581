#include "axonn/foundation/base/trace.h"

#include <algorithm>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "axonn/foundation/base/clock.h"

namespace axonn {

namespace {

/// The text as JSON: in quotes, with special characters escaped.
std::string json_text(std::string_view text) {
  using Json = nlohmann::json;
  return Json(text).dump(-1, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace);
}

std::string joined(const std::vector<std::string>& events) {
  std::string out;
  for (const std::string& event : events) out += (out.empty() ? "" : ",\n") + event;
  return out;
}

}  // namespace

void Trace::start() {
  origin_ = now_seconds();
  on_ = true;
}

void Trace::span(std::string_view row, std::string name, Moment begin, Moment end) {
  if (!on_) return;
  auto found = std::ranges::find(rows_, row);
  if (found == rows_.end()) found = rows_.emplace(found, row);
  spans_.push_back(
      {static_cast<int>(found - rows_.begin()), std::move(name), std::move(begin), std::move(end)});
}

std::string Trace::events(int rank, const std::string& process) const {
  std::vector<std::string> all;
  all.push_back(fmt::format(R"({{"ph":"M","name":"process_name","pid":{},"args":{{"name":{}}}}})",
                            rank, json_text(process)));
  for (std::size_t row = 0; row < rows_.size(); ++row)
    all.push_back(
        fmt::format(R"({{"ph":"M","name":"thread_name","pid":{},"tid":{},"args":{{"name":{}}}}})",
                    rank, row, json_text(rows_[row])));
  int id = 0;
  for (const Span& s : spans_) {
    const double begin = (s.begin.seconds() - origin_) * 1e6,  // microseconds
        length = (s.end.seconds() - s.begin.seconds()) * 1e6;
    if (s.row == 0) {
      all.push_back(
          fmt::format(R"({{"ph":"X","name":{},"pid":{},"tid":0,"ts":{:.1f},"dur":{:.1f}}})",
                      json_text(s.name), rank, begin, length));
      continue;
    }
    // Collectives of one group may overlap each other. Only asynchronous events allow that.
    for (const auto& [phase, at] : {std::pair{'b', begin}, std::pair{'e', begin + length}})
      all.push_back(fmt::format(
          R"({{"ph":"{}","cat":{},"name":{},"id":"{}.{}","pid":{},"tid":{},"ts":{:.1f}}})", phase,
          json_text(rows_[s.row]), json_text(s.name), rank, id, rank, s.row, at));
    ++id;
  }
  return joined(all);
}

std::string trace_file(const std::vector<std::string>& events) {
  return "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n" + joined(events) + "\n]}\n";
}

}  // namespace axonn
