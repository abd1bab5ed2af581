#pragma once

#include <memory>
#include <utility>

#include "axonn/foundation/base/clock.h"

namespace axonn {

/// A moment on the clock of now_seconds(): one of the host, or the one at which a device passes an
/// event in its work, which is known when the device is there. Cheap to copy.
class Moment {
 public:
  /// An event in a device's work.
  class Event {
   public:
    virtual ~Event() = default;
    virtual bool passed() = 0;
    virtual double seconds() = 0;  ///< waits for the device if it has not passed the event
  };

  Moment() = default;
  explicit Moment(double seconds) : seconds_(seconds) {}
  explicit Moment(std::shared_ptr<Event> event) : event_(std::move(event)) {}
  static Moment now() { return Moment(now_seconds()); }

  bool known() const { return !event_ || event_->passed(); }
  /// Waits for the device if the moment is not known.
  double seconds() const { return event_ ? event_->seconds() : seconds_; }

 private:
  double seconds_ = 0;
  std::shared_ptr<Event> event_;
};

}  // namespace axonn
