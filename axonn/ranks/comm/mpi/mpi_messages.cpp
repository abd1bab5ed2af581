#include "axonn/ranks/comm/mpi/mpi_messages.h"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "axonn/foundation/base/hash.h"

namespace axonn {

namespace {

/// Maximum bytes of a part, into which longer messages are split. Small enough for MPI's int
/// counts, and for TCP without a handshake (see prepare_mpi()); large enough for the full bandwidth
/// of networks with rendezvous in hardware.
constexpr std::int64_t kMaxMessage = 512 << 10;
/// Maximum bytes of a part in several blocks that is copied into one before it is sent.
constexpr std::int64_t kMaxPacked = 64 << 10;
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

Messages& Messages::operator=(Messages&& other) noexcept {
  if (context_) context_->posted.erase(this);
  context_ = std::exchange(other.context_, nullptr);
  requests_ = std::exchange(other.requests_, {});
  parts_ = std::exchange(other.parts_, {});
  checked_ = std::exchange(other.checked_, {});
  pending_ = std::exchange(other.pending_, 0);
  if (!context_) return *this;
  context_->posted.erase(&other);
  context_->posted.insert(this);
  return *this;
}

Messages::~Messages() {
  if (context_) context_->posted.erase(this);
}

void Messages::post(MpiContext& context, Transfer transfer, std::span<const Buffer> data,
                    const Route& route) {
  context_ = &context;
  context.posted.insert(this);
  const bool receives = transfer == Transfer::receive;
  std::int64_t total = 0;
  for (const Buffer& buffer : data) total += buffer.bytes();
  const std::size_t first = parts_.size();
  std::size_t held = 0;     // the first part that waits for the answer to part `first`
  auto at = data.begin();   // the buffer that the next part begins in,
  std::int64_t within = 0;  // and where
  for (std::int64_t done = 0; done < total || done == 0;) {
    const std::int64_t most = done == 0 ? std::min(kMaxMessage, route.ahead) : kMaxMessage;
    const int bytes = static_cast<int>(std::min(total - done, most));
    Part& part = parts_.emplace_back(Part{{}, bytes, route.peer, route.tag, receives});
    for (std::int64_t left = bytes; left > 0;) {
      const std::int64_t here = std::min(left, at->bytes() - within);
      if (here > 0) part.blocks.push_back({static_cast<char*>(at->data) + within, here, DType::u8});
      left -= here;
      within += here;
      if (within == at->bytes()) ++at, within = 0;
    }
    requests_.push_back(MPI_REQUEST_NULL);
    done += bytes;
    if (held == 0 && done > route.ahead && !receives) held = parts_.size() - 1;
    if (bytes == 0) break;
  }
  if (route.checked && total > 0) {
    const std::size_t end = parts_.size();
    const auto bytes = static_cast<std::int64_t>((end - first) * sizeof(std::uint64_t));
    StagingPool::Block block = context.staging.take(bytes);
    if (receives)
      checked_.push_back({first, end});
    else
      std::memcpy(block.get(), sums(first, end).data(), bytes);
    Part& part = parts_.emplace_back(Part{{{block.get(), bytes, DType::u8}},
                                          static_cast<int>(bytes),
                                          route.peer,
                                          route.tag,
                                          receives});
    part.packed = std::move(block);
    requests_.push_back(MPI_REQUEST_NULL);
  }
  pending_ += parts_.size() - first;
  if (held > 0) {
    parts_[first].held_begin = held;
    parts_[first].held_end = parts_.size();
  }
  for (std::size_t i = first; i < (held > 0 ? held : parts_.size()); ++i)
    begin(context, i, i == first && (held > 0 || transfer == Transfer::send_confirmed));
}

std::vector<std::uint64_t> Messages::sums(std::size_t first, std::size_t end) const {
  PieceHasher hasher;
  std::vector<std::uint64_t> all;
  for (std::size_t i = first; i < end; ++i) {
    for (const Buffer& block : parts_[i].blocks)
      hasher.append(
          {static_cast<const std::byte*>(block.data), static_cast<std::size_t>(block.count)});
    all.push_back(hasher.finish().front());
  }
  return all;
}

/// Compares what has arrived with its checksums.
void Messages::compare(MpiContext& context) {
  for (const auto& [first, end] : std::exchange(checked_, {})) {
    if (context.on_arrival)
      for (std::size_t i = first; i < end; ++i)
        for (const Buffer& block : parts_[i].blocks)
          context.on_arrival(
              {static_cast<char*>(block.data), static_cast<std::size_t>(block.count)});
    const std::vector<std::uint64_t> is = sums(first, end);
    if (std::memcmp(is.data(), parts_[end].packed.get(), is.size() * sizeof is.front()) != 0)
      throw AlteredMessage(concat("a message from rank ", parts_[first].peer,
                                  " is not what that rank has sent: its checksum differs"));
  }
}

void Messages::begin(MpiContext& context, std::size_t part, bool confirmed) {
  Part& it = parts_[part];
  // MPI would copy several blocks piece by piece, a few in each poll.
  if (!it.receives && it.blocks.size() > 1 && it.bytes <= kMaxPacked) {
    it.packed = context.staging.take(it.bytes);
    std::int64_t done = 0;
    for (const Buffer& block : it.blocks) {
      std::memcpy(it.packed.get() + done, block.data, static_cast<std::size_t>(block.count));
      done += block.count;
    }
    it.blocks = {{it.packed.get(), it.bytes, DType::u8}};
  }
  MPI_Request* const request = &requests_[part];
  const auto start = [&](void* data, int count, MPI_Datatype type) {
    if (it.receives)
      return check_mpi(MPI_Irecv(data, count, type, it.peer, it.tag, context.comm, request),
                       "MPI_Irecv");
    const auto send = confirmed ? MPI_Issend : MPI_Isend;
    check_mpi(send(data, count, type, it.peer, it.tag, context.comm, request),
              confirmed ? "MPI_Issend" : "MPI_Isend");
  };
  if (it.blocks.size() < 2)
    return start(it.blocks.empty() ? nullptr : it.blocks.front().data, it.bytes, MPI_BYTE);
  std::vector<int> lengths;
  std::vector<MPI_Aint> addresses;
  for (const Buffer& block : it.blocks) {
    lengths.push_back(static_cast<int>(block.count));
    check_mpi(MPI_Get_address(block.data, &addresses.emplace_back()), "MPI_Get_address");
  }
  MPI_Datatype type = MPI_DATATYPE_NULL;
  check_mpi(MPI_Type_create_hindexed(static_cast<int>(lengths.size()), lengths.data(),
                                     addresses.data(), MPI_BYTE, &type),
            "MPI_Type_create_hindexed");
  check_mpi(MPI_Type_commit(&type), "MPI_Type_commit");
  start(MPI_BOTTOM, 1, type);
  check_mpi(MPI_Type_free(&type), "MPI_Type_free");  // the message keeps it as long as it needs it
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
    const Part& part = parts_[indices_[i]];
    for (std::size_t held = part.held_begin; held < part.held_end; ++held)
      begin(context, held, false);
    if (!part.receives) continue;
    int bytes = 0;
    check_mpi(MPI_Get_count(&statuses_[i], MPI_BYTE, &bytes), "MPI_Get_count");
    AXONN_CHECK(bytes == part.bytes, "rank ", part.peer, " sent ", bytes, " bytes, want ",
                part.bytes);
  }
  if (pending_ == 0) compare(context);
  return pending_ == 0;
}

void Messages::cancel_receives() {
  for (std::size_t i = 0; i < requests_.size(); ++i)
    if (parts_[i].receives && requests_[i] != MPI_REQUEST_NULL) MPI_Cancel(&requests_[i]);
}

bool Messages::let_go() {
  int all = 0;
  const int result =
      MPI_Testall(static_cast<int>(requests_.size()), requests_.data(), &all, MPI_STATUSES_IGNORE);
  return all != 0 || result != MPI_SUCCESS;
}

int Messages::awaited() const {
  for (const bool receives : {true, false})
    for (std::size_t i = 0; i < requests_.size() && pending_ > 0; ++i)
      if (requests_[i] != MPI_REQUEST_NULL && parts_[i].receives == receives) return parts_[i].peer;
  return -1;
}

}  // namespace axonn
