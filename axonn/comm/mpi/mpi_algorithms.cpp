#include "axonn/comm/mpi/mpi_algorithms.h"

#include <cstring>

#include "axonn/base/clock.h"

namespace axonn {

namespace {

/// How long a failed message waits for a mismatch of calls to be found, which would explain it. The
/// mismatch may be between two other ranks.
constexpr double kExplainSeconds = 1;

enum Phase { header_phase = kPhases - 1 };

}  // namespace

MpiAlgorithm::MpiAlgorithm(MpiContext& context, const MpiGroup& group, const Call& call,
                           std::int64_t sequence)
    : context_(context),
      group_(group),
      call_(call),
      sequence_(sequence),
      tag_(group.id * kTagsPerGroup +
           kPhases * static_cast<int>(call.is_pair() ? kSlots : sequence % kSlots)),
      mine_(pack(call)) {
  if (call.operation != Operation::recv)
    sends_header_to_ = call.is_pair() ? call.peer : (rank() + 1) % size();
  if (call.operation != Operation::send)
    gets_header_from_ = call.is_pair() ? call.peer : (rank() + size() - 1) % size();
}

MpiAlgorithm::~MpiAlgorithm() = default;

void MpiAlgorithm::begin() {
  if (gets_header_from_ >= 0)
    headers_.recv(context_, &theirs_, sizeof theirs_, group_.members[gets_header_from_],
                  tag_ + header_phase);
  if (sends_header_to_ >= 0)
    headers_.send(context_, &mine_, sizeof mine_, group_.members[sends_header_to_],
                  tag_ + header_phase);
  start();
}

bool MpiAlgorithm::advance() {
  const bool header_done = check_header();
  if (failure_.empty()) {
    try {
      data_done_ = data_done_ || step();
      return data_done_ && header_done;
    } catch (const Error& error) {
      failure_ = error.what();
      failed_at_ = now_seconds();
    }
  }
  AXONN_CHECK(now_seconds() < failed_at_ + kExplainSeconds, describe(call_, sequence_, group_.name),
              ": ", failure_, "; all ranks of a group must make the same calls in the same order");
  return false;
}

void MpiAlgorithm::send(Messages& messages, Buffer data, int to, int phase) {
  messages.send(context_, data.data, data.bytes(), group_.members[to], tag_ + phase);
}

void MpiAlgorithm::recv(Messages& messages, Buffer data, int from, int phase) {
  messages.recv(context_, data.data, data.bytes(), group_.members[from], tag_ + phase);
}

bool MpiAlgorithm::check_header() {
  if (!headers_.advance(context_)) return false;
  if (header_checked_ || gets_header_from_ < 0) return true;
  header_checked_ = true;
  const Call theirs = unpack(theirs_);
  AXONN_CHECK(agree(call_, theirs), describe(call_, sequence_, group_.name), " on rank ",
              group_.members[rank()], " does not match ", describe(theirs), " on rank ",
              group_.members[gets_header_from_],
              "; all ranks of a group must make the same calls in the same order");
  return true;
}

MpiAlgorithm::Header MpiAlgorithm::pack(const Call& call) {
  Header header{};
  header.operation = call.operation;
  header.op = call.op;
  header.out_type = call.out.dtype;
  header.inp_type = call.inp.dtype;
  header.peer = call.peer;
  header.out_count = call.out.count;
  header.inp_count = call.inp.count;
  call.label.copy(header.label, sizeof header.label - 1);
  return header;
}

Call MpiAlgorithm::unpack(const Header& header) {
  Call call{header.operation, header.op, {}, {}, header.peer, header.label};
  call.out = {nullptr, header.out_count, header.out_type};
  call.inp = {nullptr, header.inp_count, header.inp_type};
  return call;
}

}  // namespace axonn
