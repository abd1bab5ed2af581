#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "axonn/comm/call.h"
#include "axonn/comm/mpi/mpi_messages.h"

namespace axonn {

/// A group of ranks of the MPI world.
struct MpiGroup {
  int id = 0;                ///< differs between groups that have two or more ranks in common
  int rank = 0;              ///< this process's rank in the group
  std::vector<int> members;  ///< the members' world ranks
  std::string name;
  int size() const { return static_cast<int>(members.size()); }
};

/// Message tags of a group: up to kSlots collectives may be in flight, each in a slot with kPhases
/// tags. One more slot is for send and recv.
inline constexpr int kSlots = 32, kPhases = 3, kTagsPerGroup = (kSlots + 1) * kPhases;

/// One rank's part in one collective: messages and sums, which advance() carries out step by step.
///
/// Data moves by pairwise exchange. reduce() of axonn/comm/reduce.h computes every sum from the
/// ranks' values in rank order. Bytes that a rank sends, where n is the bytes of a rank's part:
///
///   all_gather, reduce_scatter, all_to_all   (size - 1) · n
///   all_reduce                               2 · (size - 1) / size · n; small: (size - 1) · n
///   broadcast                                at most 2 · n; small: the root (size - 1) · n
///   barrier                                  log2(size) empty messages
///
/// In each collective, every rank also sends its call to the next rank of the group, which compares
/// it with its own.
class MpiAlgorithm {
 public:
  static std::unique_ptr<MpiAlgorithm> create(MpiContext& context, const MpiGroup& group,
                                              const Call& call, std::int64_t sequence);
  MpiAlgorithm(MpiContext& context, const MpiGroup& group, const Call& call, std::int64_t sequence);
  virtual ~MpiAlgorithm();
  MpiAlgorithm(const MpiAlgorithm&) = delete;
  MpiAlgorithm& operator=(const MpiAlgorithm&) = delete;

  /// Posts the first messages.
  void begin();
  /// Continues as far as the messages that have arrived allow. Returns true when done. Throws Error
  /// if the calls of two ranks do not match, or if MPI fails.
  bool advance();

 protected:
  virtual void start() = 0;
  virtual bool step() = 0;  // returns true when done, and is not called again

  int size() const { return group_.size(); }
  int rank() const { return group_.rank; }
  void send(Messages& messages, Buffer data, int to, int phase);
  void recv(Messages& messages, Buffer data, int from, int phase);

  MpiContext& context_;
  const MpiGroup& group_;
  const Call call_;

 private:
  /// A call as it is sent.
  struct Header {
    Operation operation;
    ReduceOp op;
    DType out_type, inp_type;
    int peer;
    std::int64_t out_count, inp_count;
    char label[88];
  };
  static Header pack(const Call& call);
  static Call unpack(const Header& header);
  bool check_header();

  const std::int64_t sequence_;
  const int tag_;
  Header mine_, theirs_;
  int sends_header_to_ = -1, gets_header_from_ = -1;
  Messages headers_;
  bool header_checked_ = false, data_done_ = false;
  std::string failure_;
  double failed_at_ = 0;
};

}  // namespace axonn
