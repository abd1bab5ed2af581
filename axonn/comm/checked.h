#pragma once

#include <memory>
#include <string>

#include "axonn/comm/call.h"
#include "axonn/comm/communicator.h"

namespace axonn {

/// Base class of all transports: checks the arguments of calls and keeps statistics. A transport
/// implements start(), split_off() and abort().
class CheckedCommunicator : public Communicator {
 public:
  int rank() const final { return rank_; }
  int size() const final { return size_; }

  Work all_reduce(Buffer data, std::string_view label, ReduceOp op) final;
  Work all_gather(Buffer out, Buffer inp, std::string_view label) final;
  Work reduce_scatter(Buffer out, Buffer inp, std::string_view label) final;
  Work broadcast(Buffer data, int root, std::string_view label) final;
  Work all_to_all(Buffer out, Buffer inp, std::string_view label) final;
  Work send(Buffer data, int to, std::string_view label) final;
  Work recv(Buffer data, int from, std::string_view label) final;
  void barrier(std::string_view label) final;

  std::unique_ptr<Communicator> split(int color, std::string name) final;

  const CommStats& stats() const final { return *stats_; }
  void set_trace(Trace* trace) final { trace_ = trace; }

 protected:
  CheckedCommunicator(std::string name, int rank, int size);

  /// Starts a call whose arguments have been checked. Returns null if it is done already.
  virtual std::shared_ptr<Work::State> start(Call call) = 0;

  /// Implements split().
  virtual std::unique_ptr<Communicator> split_off(int color, std::string name) = 0;

  /// The name of the group, for messages.
  const std::string& name() const { return name_; }

 private:
  Work begin(Call call);
  void check_peer(const Call& call) const;
  /// Throws if out and inp overlap, unless `is` begins where `may`, the place allowed for it, does.
  void check_overlap(const Call& call, const Buffer& may, const Buffer& is) const;
  /// Throws unless `whole` consists of size() pieces like `piece`.
  void check_pieces(const Call& call, const Buffer& whole, const Buffer& piece) const;

  std::string name_;
  int rank_, size_;
  Trace* trace_ = nullptr;
  std::shared_ptr<CommStats> stats_;  // shared with Works, which may outlive the group
};

}  // namespace axonn
