#include "axonn/storage/parameter_source.h"

#include <algorithm>

#include "axonn/base/check.h"
#include "axonn/storage/stored_values.h"

namespace axonn {

CheckpointSource::CheckpointSource(const CheckpointReader& reader,
                                   std::span<const CheckpointParameter> model)
    : reader_(reader),
      planner_(reader.index(), reader.folder()),
      pieces_(reader.index(), reader.folder()) {
  if (!reader.has_kind("master"))
    refuse(reader.folder(), " has no master copies of its parameters");
  check_parameters(reader.index(), model, reader.folder());
  for (const CheckpointParameter& parameter : reader.parameters())
    places_.emplace(parameter.name, std::ssize(places_));
}

void CheckpointSource::read(const std::string& parameter, const Slice& slice,
                            std::span<float> out) {
  const auto place = places_.find(parameter);
  AXONN_CHECK(place != places_.end(), reader_.folder(), " has no ", parameter);
  AXONN_CHECK(slice.count() == std::ssize(out), parameter, ": ", out.size(), " elements for ",
              slice.count());
  Slice wanted = slice;
  wanted.offset = 0;
  StateBlock block;
  block.buffers.push_back({"master", out.data()});
  std::vector<ReadRun> runs;
  planner_.add(place->second, wanted, block, runs);
  sort_runs(runs);
  for (const ReadRun& run : runs) pieces_.copy(run);
}

void FolderSource::read(const std::string& parameter, const Slice& slice, std::span<float> out) {
  const auto found = tensors_.find(parameter);
  AXONN_CHECK(found != tensors_.end(), "there is no tensor for ", parameter);
  AXONN_CHECK(slice.count() == std::ssize(out), parameter, ": ", out.size(), " elements for ",
              slice.count());
  WantedSlices& wanted = found->second;
  wanted.across = nullptr;
  wanted.slices = {slice};
  wanted.slices.front().offset = 0;
  const StoredType type = wanted.tensor.entry->type;
  load_slices({&wanted, 1},
              [&](std::size_t, std::int64_t offset, std::span<const std::byte> stored) {
                to_floats(type, stored, out.subspan(offset, stored.size() / bytes_of(type)));
              });
}

}  // namespace axonn
