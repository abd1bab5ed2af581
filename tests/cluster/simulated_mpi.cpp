// The functions of MPI that the mpi transport calls, for ranks that are threads of the simulation,
// in place of the library's own: what a rank sends lies in the network until its time has come, and
// a fault may make a message late, cut it, change its bytes, or lose it. Those of one tag between
// two ranks stay in order. Also the variables by which a launcher tells a process its rank.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <list>
#include <map>
#include <string>
#include <tuple>
#include <type_traits>
#include <vector>

#include <mpi.h>
#include <unistd.h>

#include "tests/cluster/simulation.h"

namespace axonn::cluster {

namespace {

/// MPI's handles are pointers or numbers; those of the simulation are numbers.
template <typename Handle>
Handle handle_of(std::intptr_t number) {
  if constexpr (std::is_pointer_v<Handle>)
    return reinterpret_cast<Handle>(number);
  else
    return static_cast<Handle>(number);
}
template <typename Handle>
std::intptr_t number_of(Handle handle) {
  if constexpr (std::is_pointer_v<Handle>)
    return reinterpret_cast<std::intptr_t>(handle);
  else
    return static_cast<std::intptr_t>(handle);
}

struct Block {
  char* data = nullptr;
  std::int64_t bytes = 0;
};
using Blocks = std::vector<Block>;

/// A message in the network, or one that no receive waits for yet.
struct Letter {
  int from = 0, tag = 0;
  std::vector<char> bytes;
  std::int64_t arrives = 0;
  std::intptr_t confirms = 0;  ///< the request of its sender that is done when it is taken; 0: none
};

struct Request {
  std::intptr_t comm = 0;
  int rank = 0, from = 0, tag = 0;
  Blocks into;  ///< of a receive
  bool done = false;
  int error = MPI_SUCCESS, source = -1, bytes = 0;
};

/// All that the ranks of a job share.
struct Network {
  std::map<std::pair<std::intptr_t, int>, std::list<Letter>> letters;  // of a communicator, to
  std::map<std::pair<std::intptr_t, int>, std::list<std::intptr_t>> receives;  // posted, likewise
  std::map<std::intptr_t, Request> requests;
  std::map<std::intptr_t, Blocks> types;
  // When the last message arrives, of a communicator, from, to, of a tag.
  std::map<std::tuple<std::intptr_t, int, int, int>, std::int64_t> last;
  std::map<int, int> communicators;  // how many a rank has made
  std::intptr_t made = 0;            // requests and types
  std::vector<char> gathered;
  int gathering = 0, gathers = 0;  // ranks that have come to the gather, and gathers that are done
};

Network& network() {
  static Network one;
  return one;
}

int size() { return simulation().mpi.ranks; }
int rank() { return simulation().scheduler->rank(); }

Blocks blocks_of(const void* data, int count, MPI_Datatype type) {
  if (type == MPI_BYTE) return {{static_cast<char*>(const_cast<void*>(data)), count}};
  return network().types.at(number_of(type));
}

/// Gives a receive its message.
void take(Request& request, Letter& letter) {
  std::int64_t room = 0, at = 0;
  for (const Block& block : request.into) room += block.bytes;
  const auto bytes = std::ssize(letter.bytes);
  for (const Block& block : request.into) {
    const std::int64_t here = std::min(block.bytes, bytes - at);
    if (here <= 0) break;
    std::memcpy(block.data, letter.bytes.data() + at, here);
    at += here;
  }
  request.done = true;
  request.error = bytes > room ? MPI_ERR_TRUNCATE : MPI_SUCCESS;
  request.source = letter.from;
  request.bytes = static_cast<int>(at);
  if (letter.confirms != 0) network().requests.at(letter.confirms).done = true;
}

/// Gives the receives of the calling rank the messages that have arrived.
void deliver() {
  Network& n = network();
  const std::int64_t now = simulation().scheduler->now_ns();
  for (auto& [at, posted] : n.receives) {
    if (at.second != rank()) continue;
    std::list<Letter>& letters = n.letters[at];
    std::erase_if(posted, [&](std::intptr_t number) {
      Request& request = n.requests.at(number);
      auto best = letters.end();
      for (auto one = letters.begin(); one != letters.end(); ++one) {
        const bool fits = one->tag == request.tag &&
                          (request.from == MPI_ANY_SOURCE || request.from == one->from);
        if (fits && one->arrives <= now && (best == letters.end() || one->arrives < best->arrives))
          best = one;
      }
      if (best == letters.end()) return false;
      take(request, *best);
      letters.erase(best);
      return true;
    });
  }
}

std::intptr_t add_request(Request request) {
  Network& n = network();
  n.requests.emplace(++n.made, std::move(request));
  return n.made;
}

MPI_Request send(const Blocks& blocks, int to, int tag, std::intptr_t comm, bool confirmed) {
  Network& n = network();
  Letter letter{.from = rank(), .tag = tag, .bytes = {}};
  for (const Block& block : blocks)
    letter.bytes.insert(letter.bytes.end(), block.data, block.data + block.bytes);
  // The transport's own notes are on its second communicator: MPI itself would not lose them.
  MessageFault::Kind what = MessageFault::Kind::none;
  const bool collective = comm == 1 && !letter.bytes.empty();
  const std::int64_t delay = simulation().mpi.at_message(rank(), collective, what);
  if (what == MessageFault::Kind::cut) letter.bytes.resize(letter.bytes.size() / 2);
  if (what == MessageFault::Kind::torn)
    for (std::size_t i = letter.bytes.size() / 2; i < letter.bytes.size(); ++i)
      letter.bytes[i] = static_cast<char>(letter.bytes[i] ^ 0x55);
  std::int64_t& last = n.last[{comm, rank(), to, tag}];
  last = letter.arrives = std::max(last, simulation().scheduler->now_ns() + delay);
  const std::intptr_t number = add_request({.comm = comm, .rank = rank(), .done = !confirmed});
  if (confirmed) letter.confirms = number;
  if (what != MessageFault::Kind::lost) n.letters[{comm, to}].push_back(std::move(letter));
  return handle_of<MPI_Request>(number);
}

/// Ends a request that is done, and tells of it. Returns its error.
int finish(MPI_Request& handle, MPI_Status* status) {
  Network& n = network();
  const auto found = n.requests.find(number_of(handle));
  const int error = found->second.error;
  if (status) {
    status->MPI_SOURCE = found->second.source;
    status->MPI_ERROR = error;
    status->MPI_TAG = found->second.bytes;  // for MPI_Get_count; the transport asks for no tags
  }
  n.requests.erase(found);
  handle = MPI_REQUEST_NULL;
  return error;
}

bool is_done(const MPI_Request& handle) {
  return handle == MPI_REQUEST_NULL || network().requests.at(number_of(handle)).done;
}

/// A point of the schedule, behind which the calls of this thread go to the C library.
class Call {
 public:
  explicit Call(const char* what) { simulation().scheduler->point(what); }

 private:
  Serving serving_;
};

const char* launcher_variable(const std::string& name) {
  static std::map<std::string, std::string> texts;
  const auto is = [&](const char* own, int value) {
    return name == own ? texts.try_emplace(name + std::to_string(value), std::to_string(value))
                             .first->second.c_str()
                       : nullptr;
  };
  if (const char* const mine = is("OMPI_COMM_WORLD_RANK", rank())) return mine;
  if (const char* const all = is("OMPI_COMM_WORLD_SIZE", size())) return all;
  return is("OMPI_COMM_WORLD_LOCAL_SIZE", size());
}

}  // namespace

}  // namespace axonn::cluster

using namespace axonn::cluster;

extern "C" {

char* getenv(const char* name) noexcept {
  static char* (*real)(const char*) = nullptr;
  if (!real) real = next<char*(const char*)>("getenv");
  const Scheduler* const s = scheduler();
  if (!s || size() == 0 || s->rank() < 0) return real(name);
  const Serving serving;
  if (const char* const value = launcher_variable(name)) return const_cast<char*>(value);
  return real(name);
}

int MPI_Init_thread(int*, char***, int required, int* provided) {
  const Call call("MPI_Init_thread");
  *provided = required;
  return MPI_SUCCESS;
}
int MPI_Finalize() {
  const Call call("MPI_Finalize");
  return MPI_SUCCESS;
}
/// Ends the job, as mpirun does then.
int MPI_Abort(MPI_Comm, int code) {
  const Call call("MPI_Abort");
  _exit(code);
}

int MPI_Comm_rank(MPI_Comm, int* of) {
  *of = rank();
  return MPI_SUCCESS;
}
int MPI_Comm_size(MPI_Comm, int* of) {
  *of = size();
  return MPI_SUCCESS;
}
/// Ranks make their communicators in the same order.
int MPI_Comm_dup(MPI_Comm, MPI_Comm* made) {
  const Call call("MPI_Comm_dup");
  *made = handle_of<MPI_Comm>(++network().communicators[rank()]);
  return MPI_SUCCESS;
}
int MPI_Comm_free(MPI_Comm* comm) {
  const Call call("MPI_Comm_free");
  *comm = MPI_COMM_NULL;
  return MPI_SUCCESS;
}
int MPI_Comm_set_errhandler(MPI_Comm, MPI_Errhandler) { return MPI_SUCCESS; }
int MPI_Comm_get_attr(MPI_Comm, int, void* value, int* found) {
  static int largest_tag = (1 << 23) - 1;
  *static_cast<int**>(value) = &largest_tag;
  *found = 1;
  return MPI_SUCCESS;
}

int MPI_Allgather(const void* data, int count, MPI_Datatype, void* out, int, MPI_Datatype,
                  MPI_Comm) {
  const Call call("MPI_Allgather");
  Network& n = network();
  const std::size_t bytes = 8 * static_cast<std::size_t>(count);  // MPI_UINT64_T
  n.gathered.resize(bytes * size());
  std::memcpy(n.gathered.data() + bytes * rank(), data, bytes);
  const int gathers = n.gathers;
  if (++n.gathering == size()) {
    n.gathering = 0;
    ++n.gathers;
    simulation().scheduler->wake(&n.gathering, /*all=*/true);
  }
  while (gathers == n.gathers) simulation().scheduler->wait(&n.gathering, "MPI_Allgather");
  std::memcpy(out, n.gathered.data(), n.gathered.size());
  return MPI_SUCCESS;
}

int MPI_Get_address(const void* data, MPI_Aint* address) {
  *address = reinterpret_cast<MPI_Aint>(data);
  return MPI_SUCCESS;
}
int MPI_Type_create_hindexed(int count, const int lengths[], const MPI_Aint addresses[],
                             MPI_Datatype, MPI_Datatype* made) {
  const Serving serving;
  Network& n = network();
  Blocks blocks;
  for (int i = 0; i < count; ++i)
    blocks.push_back({reinterpret_cast<char*>(addresses[i]), lengths[i]});
  n.types.emplace(++n.made, std::move(blocks));
  *made = handle_of<MPI_Datatype>(n.made);
  return MPI_SUCCESS;
}
int MPI_Type_commit(MPI_Datatype*) { return MPI_SUCCESS; }
int MPI_Type_free(MPI_Datatype* type) {
  const Serving serving;
  network().types.erase(number_of(*type));
  *type = MPI_DATATYPE_NULL;
  return MPI_SUCCESS;
}

int MPI_Isend(const void* data, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm,
              MPI_Request* request) {
  const Call call("MPI_Isend");
  *request = send(blocks_of(data, count, type), to, tag, number_of(comm), /*confirmed=*/false);
  return MPI_SUCCESS;
}
int MPI_Issend(const void* data, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm,
               MPI_Request* request) {
  const Call call("MPI_Issend");
  *request = send(blocks_of(data, count, type), to, tag, number_of(comm), /*confirmed=*/true);
  return MPI_SUCCESS;
}
int MPI_Irecv(void* data, int count, MPI_Datatype type, int from, int tag, MPI_Comm comm,
              MPI_Request* request) {
  const Call call("MPI_Irecv");
  const std::intptr_t number = add_request({.comm = number_of(comm),
                                            .rank = rank(),
                                            .from = from,
                                            .tag = tag,
                                            .into = blocks_of(data, count, type)});
  network().receives[{number_of(comm), rank()}].push_back(number);
  *request = handle_of<MPI_Request>(number);
  return MPI_SUCCESS;
}

int MPI_Test(MPI_Request* request, int* done, MPI_Status* status) {
  const Call call("MPI_Test");
  deliver();
  *done = is_done(*request) ? 1 : 0;
  if (*done == 0 || *request == MPI_REQUEST_NULL) return MPI_SUCCESS;
  return finish(*request, status == MPI_STATUS_IGNORE ? nullptr : status);
}
int MPI_Testsome(int count, MPI_Request requests[], int* done, int indices[],
                 MPI_Status statuses[]) {
  const Call call("MPI_Testsome");
  deliver();
  int active = 0, error = MPI_SUCCESS;
  *done = 0;
  for (int i = 0; i < count; ++i) {
    if (requests[i] == MPI_REQUEST_NULL) continue;
    ++active;
    if (!is_done(requests[i])) continue;
    if (finish(requests[i], &statuses[*done]) != MPI_SUCCESS) error = MPI_ERR_IN_STATUS;
    indices[(*done)++] = i;
  }
  if (active == 0) *done = MPI_UNDEFINED;
  return error;
}
int MPI_Testall(int count, MPI_Request requests[], int* done, MPI_Status*) {
  const Call call("MPI_Testall");
  deliver();
  *done = std::all_of(requests, requests + count, is_done) ? 1 : 0;
  for (int i = 0; *done != 0 && i < count; ++i)
    if (requests[i] != MPI_REQUEST_NULL) finish(requests[i], nullptr);
  return MPI_SUCCESS;
}
int MPI_Cancel(MPI_Request* handle) {
  const Call call("MPI_Cancel");
  Request& request = network().requests.at(number_of(*handle));
  network().receives[{request.comm, request.rank}].remove(number_of(*handle));
  request.done = true;
  return MPI_SUCCESS;
}
/// Of a request that is cancelled.
int MPI_Wait(MPI_Request* request, MPI_Status*) {
  const Call call("MPI_Wait");
  return finish(*request, nullptr);
}
int MPI_Get_count(const MPI_Status* status, MPI_Datatype, int* bytes) {
  *bytes = status->MPI_TAG;
  return MPI_SUCCESS;
}

}  // extern "C"
