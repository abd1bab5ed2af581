#pragma once

#include <string>
#include <vector>

namespace axonn {

/// As the system names it: "AMD EPYC 9654 96-Core Processor".
std::string processor_name();

/// The cores that the calling thread may run on, which a launcher may have limited; ascending.
std::vector<int> usable_cores();

/// From now on the calling thread, and threads that it starts, may run on these cores alone. False
/// where the system refuses: then nothing has changed.
bool bind_this_thread(const std::vector<int>& cores);

}  // namespace axonn
