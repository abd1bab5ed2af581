#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "axonn/base/random.h"

namespace axonn {

/// What a model is given of one sequence: seq_len inputs and what follows each.
struct Sequence {
  std::vector<std::int32_t> ids;
  std::vector<std::int32_t> targets;  ///< negative where it does not count
  /// Of each input its position in its document and where that begins in the sequence; both empty
  /// where the sequence is one document from its beginning.
  std::vector<std::int32_t> positions, starts;
};

/// Numbered sequences, all as long. Const functions may be called by several threads at once.
class Sequences {
 public:
  virtual ~Sequences() = default;
  Sequences() = default;
  Sequences(const Sequences&) = delete;
  Sequences& operator=(const Sequences&) = delete;

  /// How many there are before they come again. Those for training go on for ever.
  virtual std::int64_t count() const = 0;
  /// Errors: UsageError for a token that the model does not have.
  virtual void read(std::int64_t n, Sequence& to) const = 0;
  /// Targets of sequence n that count, and inputs that are no padding.
  struct Size {
    std::int64_t targets, inputs;
  };
  virtual Size size(std::int64_t n) const = 0;
  /// What messages call sequence n: where it comes from.
  virtual std::string where(std::int64_t n) const = 0;
};

/// The place of number n where `count` things come in an order of their own each epoch, fixed by
/// seed and epoch.
std::int64_t shuffled(const Random& orders, std::int64_t n, std::int64_t count);

/// Others for ever, in another order each epoch, or (shuffle false) in their own.
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
