#pragma once

#include <string>
#include <vector>

namespace axonn {

/// The processor's model name as the system reports it: "AMD EPYC 9654 96-Core Processor".
std::string processor_name();

/// Bytes of memory that processes may still allocate: what the system has available, or what a
/// container's limit leaves if that is less. `root` is the folder of /proc and /sys; tests set it.
double available_memory(const std::string& root = "");

/// The cores that the calling thread may run on, ascending. A launcher may have limited them.
std::vector<int> usable_cores();
inline int usable_core_count() { return static_cast<int>(usable_cores().size()); }

/// Binds the calling thread, and threads that it starts later, to these cores. Returns false, and
/// changes nothing, if the system refuses.
bool bind_this_thread(const std::vector<int>& cores);

}  // namespace axonn
