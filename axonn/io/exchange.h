#pragma once

#include <functional>
#include <string>
#include <vector>

#include "axonn/comm/communicator.h"

/// What ranks tell one another around files: texts and faults. All are collective.

namespace axonn {

/// What `work` throws, as text; empty if it throws nothing. An aborted group still throws.
std::string fault_of(const std::function<void()>& work);

/// Throws the same Error on all ranks if any has a fault: "ASKED failed on rank 3: FAULT", of the
/// first rank that has one.
void agree(Communicator& world, const std::string& asked, const std::string& fault);

/// Rank 0's texts, on all ranks.
std::vector<std::string> broadcast_texts(Communicator& world, std::vector<std::string> texts);

/// Hands every rank's text to rank 0, where `take` is called with them one by one in rank order,
/// so that rank 0 never holds them all.
void gather_texts(Communicator& world, const std::string& mine,
                  const std::function<void(std::string text)>& take);

}  // namespace axonn
