#include "axonn/app/board/run_samples.h"

#include <algorithm>

#include "axonn/run/records/run_steps.h"

namespace axonn {

bool RunSamples::read(double seconds) {
  return file_.read([this] { offsets_.clear(); },
                    [this](std::string_view line, std::int64_t offset) { take(line, offset); },
                    seconds);
}

void RunSamples::take(std::string_view line, std::int64_t offset) {
  const auto step = parse_run_step(line);
  if (!step || step->step < last_step()) return;
  const std::int64_t end = offset + std::ssize(line) + 1;
  if (step->step > last_step()) offsets_.push_back({step->step, offset, end});
  offsets_.back().to = end;
  if (offsets_.size() <= kMostSteps) return;
  for (std::size_t i = 1; 2 * i + 1 < offsets_.size(); ++i) offsets_[i] = offsets_[2 * i];
  offsets_[offsets_.size() / 2] = offsets_.back();
  offsets_.resize(offsets_.size() / 2 + 1);
}

std::vector<std::int64_t> RunSamples::steps() const {
  std::vector<std::int64_t> all;
  for (const Offset& place : offsets_) all.push_back(place.step);
  return all;
}

std::vector<TextSample> RunSamples::at(std::int64_t step) const {
  std::vector<TextSample> samples;
  if (offsets_.empty()) return samples;
  auto place = std::ranges::upper_bound(offsets_, step, {}, &Offset::step);
  if (place != offsets_.begin()) --place;
  read_lines(file_.path(), place->from, place->to, [&](std::string_view line, std::int64_t) {
    TextSample sample = parse_sample(line);
    if (sample.step == place->step) samples.push_back(std::move(sample));
  });
  return samples;
}

}  // namespace axonn
