#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "axonn/base/random.h"
#include "axonn/data/sequences.h"

namespace axonn {

/// The item at position n if `count` items repeat in a different order each epoch. The order is a
/// function of `orders` and the epoch.
std::int64_t shuffled(const Random& orders, std::int64_t n, std::int64_t count);

/// Repeats sequences for ever, in a different order each epoch or (shuffle = false) in their own.
class Repeated : public Sequences {
 public:
  Repeated(std::unique_ptr<const Sequences> all, std::uint64_t seed, bool shuffle)
      : all_(std::move(all)), orders_(seed, "data/order/0"), shuffle_(shuffle) {}

  std::int64_t count() const override { return all_->count(); }
  void read(std::int64_t n, Sequence& to) const override { all_->read(place(n), to); }
  Size size(std::int64_t n) const override { return all_->size(place(n)); }
  std::string where(std::int64_t n) const override { return all_->where(place(n)); }

 private:
  std::int64_t place(std::int64_t n) const {
    return shuffle_ ? shuffled(orders_, n, count()) : n % count();
  }
  std::unique_ptr<const Sequences> all_;
  Random orders_;
  bool shuffle_;
};

}  // namespace axonn
