#include "axonn/use/memorize/average.h"

#include <algorithm>
#include <list>
#include <utility>
#include <vector>

#include "axonn/data/storage/checkpoint/checkpoint_reader.h"
#include "axonn/foundation/base/check.h"
#include "axonn/network/model/model_files.h"

namespace axonn {

namespace {

/// The mean of the same parameters of several sources.
class MeanSource : public ParameterSource {
 public:
  MeanSource(std::list<CheckpointSource>& sources, std::vector<StoredParameter> parameters)
      : ParameterSource(sources.front().path(), std::move(parameters)), sources_(sources) {}

  std::int64_t read(std::span<const SliceRequest> wanted, const TakeValues& take) override {
    std::vector<Sum> sums(wanted.size());
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      for (const Slice& slice : wanted[i].slices) {
        sums[i].first = std::min(sums[i].first, slice.offset);
        sums[i].end = std::max(sums[i].end, slice.offset + slice.count());
      }
      sums[i].values.resize(std::max<std::int64_t>(sums[i].end - sums[i].first, 0));
    }
    std::vector<float> floats;
    std::int64_t bytes = 0;
    for (CheckpointSource& source : sources_)
      bytes += source.read(wanted, [&](std::size_t i, std::int64_t offset, StoredType type,
                                       std::span<const std::byte> values) {
        floats.resize(values.size() / bytes_of(type));
        to_floats(type, values, floats);
        double* const to = sums[i].values.data() + offset - sums[i].first;
        for (std::size_t k = 0; k < floats.size(); ++k) to[k] += floats[k];
      });
    for (std::size_t i = 0; i < wanted.size(); ++i)
      for (const Slice& slice : wanted[i].slices) {
        floats.resize(slice.count());
        const double* const from = sums[i].values.data() + slice.offset - sums[i].first;
        for (std::size_t k = 0; k < floats.size(); ++k)
          floats[k] = static_cast<float>(from[k] / static_cast<double>(sources_.size()));
        take(i, slice.offset, StoredType::f32, std::as_bytes(std::span(floats)));
      }
    return bytes;
  }

 private:
  /// Of the elements [first, end) of a request's buffer.
  struct Sum {
    std::int64_t first = INT64_MAX, end = 0;
    std::vector<double> values = {};
  };
  std::list<CheckpointSource>& sources_;
};

}  // namespace

void load_average(LoadedModel& model, std::span<const std::string> checkpoints) {
  AXONN_CHECK(!checkpoints.empty(), "load_average: there are no checkpoints");
  std::vector<StoredParameter> parameters = stored_parameters(model.trained());
  std::list<CheckpointReader> readers;
  std::list<CheckpointSource> sources;
  for (const std::string& path : checkpoints)
    sources.emplace_back(readers.emplace_back(model.grid().world(), path), parameters);
  MeanSource mean(sources, std::move(parameters));
  std::vector<Destination> to;
  for (ParameterGroup* group : model.trained()) to.push_back({.group = group});
  load(model.context(), to, mean);
}

}  // namespace axonn
