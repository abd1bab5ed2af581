#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

namespace axonn {

/// The processor's model name as the system reports it, "AMD EPYC 9654 96-Core Processor", or, of
/// 64-bit ARM, whose registers tell numbers alone, the core's name: "Neoverse V2". `root` is the
/// folder of /proc; tests set it.
std::string processor_name(const std::string& root = "");

/// The machine as the system names its architecture: "x86_64", "aarch64".
std::string machine_name();

/// The name of this machine in its network.
std::string host_name();

/// Bytes of memory that processes may still allocate: what the system has available, or what a
/// container's limit leaves if that is less. `root` is the folder of /proc and /sys; tests set it.
double available_memory(const std::string& root = "");
/// Bytes of memory that all processes may allocate together: the machine's, or a container's limit
/// if that is less.
double total_memory(const std::string& root = "");

/// Bytes of memory in NUMA nodes that have no processors, which the system counts as its own: the
/// GPUs' memory of GH200. The two functions above leave it out.
double memory_without_processors(const std::string& root = "");
/// Makes this thread, and those that it starts later, take memory from NUMA nodes that have
/// processors: otherwise a host that runs out of its own memory takes the GPUs'. Returns false, and
/// changes nothing, if all nodes have processors, a launcher has set a policy, or the system
/// refuses.
bool keep_to_nodes_with_processors(const std::string& root = "");

/// Lets the C library keep memory that this process frees, for its next allocations, instead of
/// giving it back to the system each time.
void keep_freed_memory();

/// The cores that the calling thread may run on, ascending. A launcher may have limited them.
std::vector<int> usable_cores();
inline int usable_core_count() { return static_cast<int>(usable_cores().size()); }

/// Binds the calling thread, and threads that it starts later, to these cores. Returns false, and
/// changes nothing, if the system refuses.
bool bind_this_thread(const std::vector<int>& cores);

/// Makes the scheduler wake this thread without delay although compute threads keep all cores busy.
/// Since 6.12, Linux lets a thread request shorter time slices without privileges. Before 6.6, it
/// wakes sleepers at once anyway. Between these versions, or if this fails, a poll may be some
/// milliseconds late.
void take_short_turns();

/// Calls f(0), ..., f(count - 1) on up to `threads` threads, of which the caller's is one. Each
/// takes the next index that is left. If calls throw, those at later indices may be left out, and
/// the exception of the lowest index is thrown.
void parallel_for(std::size_t count, int threads, const std::function<void(std::size_t)>& f);

}  // namespace axonn
