#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "axonn/comm/communicator.h"

namespace axonn::testing_support {

/// A call of a collective, as a fault sees it.
struct Collective {
  std::string_view operation;  ///< "all_reduce", "all_gather", ...
  std::string_view group;      ///< "world", or the name that split() was given: an axis's
  std::string_view label;
  int rank = 0;  ///< the caller's, in the group
  Buffer data;   ///< what the call writes; of a send, what it reads
};

/// What goes wrong with the collectives that it hits. Ranks must agree on which those are where
/// the rest of them would wait otherwise: for drop and redirect.
struct CommFault {
  enum class Kind {
    drop,      ///< nothing is exchanged: each rank goes on with what is in its buffers
    redirect,  ///< carried out in the group named `to` instead
    mute,      ///< all_reduce of f32: this rank's summand is taken for zero
  };
  Kind kind = Kind::drop;
  std::function<bool(const Collective&)> hits;
  std::string to = {};
};

/// Another communicator, which it does not own, with a fault; so are the groups split from it.
class FaultyCommunicator : public Communicator {
 public:
  /// inner outlives it and what is split from it.
  FaultyCommunicator(Communicator& inner, CommFault fault);

  int rank() const override { return inner_.rank(); }
  int size() const override { return inner_.size(); }

  Work all_reduce(Buffer data, std::string_view label, ReduceOp op) override;
  Work all_gather(Buffer out, Buffer inp, std::string_view label) override;
  Work reduce_scatter(Buffer out, Buffer inp, std::string_view label) override;
  Work broadcast(Buffer data, int root, std::string_view label) override;
  Work all_to_all(Buffer out, Buffer inp, std::string_view label) override;
  Work send(Buffer data, int to, std::string_view label) override;
  Work recv(Buffer data, int from, std::string_view label) override;
  void barrier(std::string_view label) override { inner_.barrier(label); }
  std::unique_ptr<Communicator> split(int color, std::string name) override;
  void abort(const std::string& reason) noexcept override { inner_.abort(reason); }
  std::string end_reason() const override { return inner_.end_reason(); }
  void give_up(const std::string& reason) noexcept override { inner_.give_up(reason); }
  const CommStats& stats() const override { return inner_.stats(); }
  void set_trace(Trace* trace) override { inner_.set_trace(trace); }

  /// Collectives of this rank, in whatever group, that went wrong so far.
  int hits() const { return shared_->hits; }

 private:
  /// What the groups of one rank share.
  struct Shared {
    CommFault fault;
    std::map<std::string, Communicator*, std::less<>> groups;
    int hits = 0;
  };
  using Call = std::function<Work(Communicator&)>;

  FaultyCommunicator(std::unique_ptr<Communicator> inner, std::string name,
                     std::shared_ptr<Shared> shared);
  Work run(std::string_view operation, std::string_view label, Buffer data, const Call& call);

  std::unique_ptr<Communicator> owned_;
  Communicator& inner_;
  std::string name_;
  std::shared_ptr<Shared> shared_;
};

}  // namespace axonn::testing_support
