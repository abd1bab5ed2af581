#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include <mpi.h>

#include "axonn/base/check.h"

namespace axonn {

/// Before MPI is initialised: has Open MPI send whole parts over TCP without asking the receiver
/// first, unless the user says otherwise (OMPI_MCA_btl_tcp_eager_limit and its like). The answer
/// would wait behind what the receiver sends at the same time, so that two ranks that exchange
/// would send one after the other: half the link's rate. Other networks are not touched.
void prepare_mpi();

/// Throws Error with MPI's own words unless the call succeeded.
void check_mpi(int status, const char* call);

/// Memory for messages on their way into a sum, kept for the next collective.
class StagingPool {
 public:
  struct Block {
    std::unique_ptr<char[]> data;
    std::int64_t bytes = 0;
  };
  /// At least this many bytes.
  Block take(std::int64_t bytes);
  void give(Block block);

 private:
  std::vector<Block> free_;
};

/// What all MPI collectives of a process share. Used by the progress thread alone.
struct MpiContext {
  MPI_Comm comm = MPI_COMM_NULL;
  StagingPool staging;
  std::int64_t completions = 0;  ///< messages that were sent or received; grows while things move
};

/// Messages in flight between this rank and others. Between two ranks, those of one tag arrive in
/// the order in which they are posted. Moving is cheap; buffers must live until advance() is true.
class Messages {
 public:
  void send(MpiContext& context, const void* data, std::int64_t bytes, int to, int tag);
  void recv(MpiContext& context, void* data, std::int64_t bytes, int from, int tag);

  /// Whether all are done. Errors: Error if a message is not as long as it should be.
  bool advance(MpiContext& context);

 private:
  struct Expected {
    int from = -1;  // -1: a send
    int bytes = 0;
  };
  void check_size(const MPI_Status& status, const Expected& expected) const;

  std::vector<MPI_Request> requests_;
  std::vector<Expected> expected_;
  std::size_t pending_ = 0;
  std::vector<int> indices_;
  std::vector<MPI_Status> statuses_;
};

}  // namespace axonn
