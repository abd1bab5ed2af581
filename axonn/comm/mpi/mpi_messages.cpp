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

std::string words(int status) {
  char text[MPI_MAX_ERROR_STRING];
  int length = 0;
  MPI_Error_string(status, text, &length);
  return {text, static_cast<std::size_t>(length)};
}

}  // namespace

void prepare_mpi() {
  for (const char* name : {"OMPI_MCA_btl_tcp_eager_limit", "OMPI_MCA_btl_tcp_rndv_eager_limit",
                           "OMPI_MCA_btl_tcp_max_send_size"})
    setenv(name, kEagerLimit, 0);
}

void check_mpi(int status, const char* call) {
  AXONN_CHECK(status == MPI_SUCCESS, call, " failed: ", words(status));
}

StagingPool::Block StagingPool::take(std::int64_t bytes) {
  const auto fits = std::ranges::find_if(free_, [&](const Free& f) { return f.bytes >= bytes; });
  if (fits != free_.end()) {
    Block block(fits->data.release(), {this, fits->bytes});
    free_.erase(fits);
    return block;
  }
  const std::int64_t size = std::bit_ceil(static_cast<std::uint64_t>(std::max<std::int64_t>(
      bytes, 4096)));  // powers of two, so that collectives of similar size share blocks
  return {std::make_unique_for_overwrite<char[]>(size).release(), {this, size}};
}

void StagingPool::GiveBack::operator()(char* data) const noexcept {
  std::vector<Free>& all = pool->free_;
  const auto at = std::ranges::find_if(all, [&](const Free& f) { return f.bytes >= bytes; });
  all.insert(at, {std::unique_ptr<char[]>(data), bytes});  // ascending, so that take() finds the
                                                           // smallest that fits
}

void Messages::send(MpiContext& context, const void* data, std::int64_t bytes, int to, int tag) {
  const char* at = static_cast<const char*>(data);
  do {
    const int count = static_cast<int>(std::min(bytes, kMaxMessage));
    expected_.push_back({});
    requests_.push_back(MPI_REQUEST_NULL);
    ++pending_;
    check_mpi(MPI_Isend(at, count, MPI_BYTE, to, tag, context.comm, &requests_.back()),
              "MPI_Isend");
    at += count;
    bytes -= count;
  } while (bytes > 0);
}

void Messages::recv(MpiContext& context, void* data, std::int64_t bytes, int from, int tag) {
  char* at = static_cast<char*>(data);
  do {
    const int count = static_cast<int>(std::min(bytes, kMaxMessage));
    expected_.push_back({from, count});
    requests_.push_back(MPI_REQUEST_NULL);
    ++pending_;
    check_mpi(MPI_Irecv(at, count, MPI_BYTE, from, tag, context.comm, &requests_.back()),
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
    check_size(statuses_[i], expected_[indices_[i]]);
  }
  return pending_ == 0;
}

void Messages::check_size(const MPI_Status& status, const Expected& expected) const {
  if (expected.from < 0) return;
  int bytes = 0;
  check_mpi(MPI_Get_count(&status, MPI_BYTE, &bytes), "MPI_Get_count");
  AXONN_CHECK(bytes == expected.bytes, "rank ", expected.from, " sent ", bytes, " bytes, want ",
              expected.bytes);
}

}  // namespace axonn
