#include "axonn/compute/tensor/recording.h"

#include <memory>
#include <utility>

namespace axonn {

namespace {

/// Work that is done at once and records waits for it.
class RecordedState final : public Work::State {
 public:
  RecordedState(Recording* recording, std::size_t started)
      : recording_(recording), started_(started) {}
  void wait() override {
    if (recording_ && !recording_->paused)
      recording_->events.emplace_back(Recording::Wait{started_});
  }
  bool done() override { return true; }
  Moment moment() override { return {}; }  // nobody waits, so the clock need not be read

 private:
  Recording* recording_;
  std::size_t started_;
};

}  // namespace

std::shared_ptr<Work::State> record_start(Recording* recording, Recording::Start start) {
  std::size_t started = 0;
  if (recording) {
    started = recording->started++;
    if (!recording->paused) recording->events.emplace_back(std::move(start));
  }
  return std::make_shared<RecordedState>(recording, started);
}

}  // namespace axonn
