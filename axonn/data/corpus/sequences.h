#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace axonn {

/// The target of a row of padding; other rows without a target have -1.
inline constexpr std::int32_t kPaddingTarget = -2;

/// One sequence as the model gets it: seq_len inputs and the target of each.
struct Sequence {
  std::vector<std::int32_t> ids;
  std::vector<std::int32_t> targets;  ///< negative: does not count in the loss
  /// For each input, its position in its document and the row at which the document begins. Both
  /// are empty if the whole sequence is treated as one document.
  std::vector<std::int32_t> positions, starts;
  /// If its first document has two branches, such as two answers to one prompt: the number of rows
  /// that both begin with, the row where the second branch goes on, and the row after its end.
  std::vector<std::int32_t> branches = {};
};

/// Makes targets of sequence n that do not count negative. Empty: all count.
using SequenceMask = std::function<void(std::int64_t n, Sequence& sequence)>;

/// Numbered sequences of equal length. Const functions are thread-safe.
class Sequences {
 public:
  virtual ~Sequences() = default;
  Sequences() = default;
  Sequences(const Sequences&) = delete;
  Sequences& operator=(const Sequences&) = delete;

  /// The number of sequences before they repeat. Only training sequences have numbers beyond it.
  virtual std::int64_t count() const = 0;
  /// Reads sequence n. Throws UsageError for a token that the model does not have.
  virtual void read(std::int64_t n, Sequence& to) const = 0;
  /// The number of sequence n where its data have an order of their own, before any shuffling.
  virtual std::int64_t own_number(std::int64_t n) const { return n; }
  /// True if the numbers of targets and inputs that count are known only after reading a sequence:
  /// size() then returns upper bounds.
  virtual bool counts_by_reading() const { return false; }
  /// The targets that count, and the inputs that are not padding.
  struct Size {
    std::int64_t targets, inputs;
  };
  virtual Size size(std::int64_t n) const = 0;
  /// Whether sequence n has a token that training leaves out (forget.h).
  virtual bool forgets(std::int64_t /*n*/) const { return false; }
  /// The origin of sequence n, for messages.
  virtual std::string where(std::int64_t n) const = 0;
  /// Which data became no sequences, or were cut: a sentence each, for the user.
  virtual std::vector<std::string> notes() const { return {}; }
};

}  // namespace axonn
