#pragma once

#include <memory>
#include <utility>

#include "axonn/foundation/base/clock.h"

namespace axonn {

/// A moment on the clock of now_seconds(): one of the host, or the one at which a device passes a
/// place in its work, which is known when the device is there. Cheap to copy.
class Moment {
 public:
  /// A place in a device's work.
  class Place {
   public:
    virtual ~Place() = default;
    virtual bool passed() = 0;
    virtual double seconds() = 0;  ///< waits for the device if it has not passed the place
  };

  Moment() = default;
  explicit Moment(double seconds) : seconds_(seconds) {}
  explicit Moment(std::shared_ptr<Place> place) : place_(std::move(place)) {}
  static Moment now() { return Moment(now_seconds()); }

  bool known() const { return !place_ || place_->passed(); }
  /// Waits for the device if the moment is not known.
  double seconds() const { return place_ ? place_->seconds() : seconds_; }

 private:
  double seconds_ = 0;
  std::shared_ptr<Place> place_;
};

}  // namespace axonn
