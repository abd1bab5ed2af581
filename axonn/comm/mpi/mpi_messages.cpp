#include "axonn/comm/mpi/mpi_messages.h"

#include <algorithm>
#include <bit>
#include <cstdlib>

namespace axonn {

namespace {

/// Maximum bytes of a part, into which longer messages are split. Small enough for MPI's int
/// counts, and for TCP without a handshake (see prepare_mpi()); large enough for the full bandwidth
/// of networks with rendezvous in hardware.
constexpr std::int64_t kMaxMessage = 512 << 10;
/// Bytes that hold a part and Open MPI's header.
constexpr const char* kEagerLimit = "1048576";

}  // namespace

void prepare_mpi() {
  for (const char* name : {"OMPI_MCA_btl_tcp_eager_limit", "OMPI_MCA_btl_tcp_rndv_eager_limit",
                           "OMPI_MCA_btl_tcp_max_send_size"})
    setenv(name, kEagerLimit, 0);
}

void check_mpi(int status, const char* call) {
  if (status == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING];
  int length = 0;
  MPI_Error_string(status, text, &length);
  throw Error(concat(call, " failed: ", std::string_view(text, length)));
}

StagingPool::Block StagingPool::take(std::int64_t bytes) {
  if (const auto fits = free_.lower_bound(bytes); fits != free_.end()) {
    Block block(fits->second.release(), {this, fits->first});
    free_.erase(fits);
    return block;
  }
  // Powers of two, so that collectives of similar size share blocks.
  const auto size = std::bit_ceil(static_cast<std::uint64_t>(std::max<std::int64_t>(bytes, 4096)));
  return {std::make_unique_for_overwrite<char[]>(size).release(),
          {this, static_cast<std::int64_t>(size)}};
}

void StagingPool::GiveBack::operator()(char* data) const noexcept {
  auto& all = pool->free_;  // of blocks of equal size, take() returns the last that was given back
  all.emplace_hint(all.lower_bound(bytes), bytes, std::unique_ptr<char[]>(data));
}

void Messages::post(MpiContext& context, Operation send_or_recv, const Buffer& data, int peer,
                    int tag) {
  const bool sends = send_or_recv == Operation::send;
  char* at = static_cast<char*>(data.data);
  std::int64_t bytes = data.bytes();
  do {
    const int count = static_cast<int>(std::min(bytes, kMaxMessage));
    expected_.push_back({peer, !sends, count});
    requests_.push_back(MPI_REQUEST_NULL);
    ++pending_;
    if (sends)
      check_mpi(MPI_Isend(at, count, MPI_BYTE, peer, tag, context.comm, &requests_.back()),
                "MPI_Isend");
    else
      check_mpi(MPI_Irecv(at, count, MPI_BYTE, peer, tag, context.comm, &requests_.back()),
                "MPI_Irecv");
    at += count;
    bytes -= count;
  } while (bytes > 0);
}

bool Messages::advance(MpiContext& context) {
  if (pending_ == 0) return true;
  int done = 0;
  indices_.resize(requests_.size());
  statuses_.resize(requests_.size());
  const int result = MPI_Testsome(static_cast<int>(requests_.size()), requests_.data(), &done,
                                  indices_.data(), statuses_.data());
  if (result != MPI_ERR_IN_STATUS) check_mpi(result, "MPI_Testsome");
  if (done == MPI_UNDEFINED) done = static_cast<int>(pending_);
  context.completions += done;
  pending_ -= done;
  for (int i = 0; i < done; ++i) {
    if (result == MPI_ERR_IN_STATUS) check_mpi(statuses_[i].MPI_ERROR, "a message");
    const Expected& expected = expected_[indices_[i]];
    if (!expected.receives) continue;
    int bytes = 0;
    check_mpi(MPI_Get_count(&statuses_[i], MPI_BYTE, &bytes), "MPI_Get_count");
    AXONN_CHECK(bytes == expected.bytes, "rank ", expected.peer, " sent ", bytes, " bytes, want ",
                expected.bytes);
  }
  return pending_ == 0;
}

int Messages::awaited() const {
  for (const bool receives : {true, false})
    for (std::size_t i = 0; i < requests_.size() && pending_ > 0; ++i)
      if (requests_[i] != MPI_REQUEST_NULL && expected_[i].receives == receives)
        return expected_[i].peer;
  return -1;
}

}  // namespace axonn
