#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "axonn/ranks/comm/call.h"

namespace axonn::testing_support {

/// A call of a collective, by which a fault decides whether it hits.
struct Collective {
  std::string_view operation;  ///< "all_reduce", "all_gather", ...
  std::string_view group;      ///< "world", or the name given to split(), which is an axis's name
  std::string_view label;
  int rank = 0;  ///< the caller's rank in the group
  Buffer data;   ///< the buffer that the call writes; for a send, the one that it reads
};

/// A fault of the collectives that it hits. For drop and redirect, all ranks of a group must agree
/// on which collectives it hits; otherwise some would wait forever.
struct CommFault {
  enum class Kind {
    drop,      ///< exchanges nothing: each rank continues with the contents of its buffers
    redirect,  ///< runs in the group named `to` instead
    mute,      ///< for all_reduce of f32: takes this rank's summand as zero
  };
  Kind kind = Kind::drop;
  std::function<bool(const Collective&)> hits;
  std::string to = {};
};

/// Adds a fault to another communicator, and to all groups split from it.
class FaultyCommunicator : public Communicator {
 public:
  /// inner is not owned, and must outlive this object and the groups split from it.
  FaultyCommunicator(Communicator& inner, CommFault fault);

  void abort(const std::string& reason) noexcept override { inner_.abort(reason); }
  std::string end_reason() const override { return inner_.end_reason(); }
  void give_up(const std::string& reason) noexcept override { inner_.give_up(reason); }

  /// The number of this rank's collectives, in all groups, that the fault has hit so far.
  int hits() const { return shared_->hits; }

 private:
  /// State shared by the groups of one rank.
  struct Shared {
    CommFault fault;
    std::map<std::string, Communicator*, std::less<>> groups;
    int hits = 0;
  };

  FaultyCommunicator(std::unique_ptr<Communicator> inner, std::string name,
                     std::shared_ptr<Shared> shared);
  std::shared_ptr<Work::State> start(Call call) override;
  std::unique_ptr<Communicator> split_off(int color, std::string name) override;

  std::unique_ptr<Communicator> owned_;
  Communicator& inner_;
  std::shared_ptr<Shared> shared_;
};

}  // namespace axonn::testing_support
