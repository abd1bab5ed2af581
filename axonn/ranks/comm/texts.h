#pragma once

#include <functional>
#include <string>
#include <vector>

#include "axonn/foundation/base/check.h"
#include "axonn/ranks/comm/communicator.h"

/// Exchange of texts and error messages between ranks. All but fault_of() are collective.

namespace axonn {

/// Runs `work` and returns the message of its exception; empty if it throws none. Aborted passes
/// through.
std::string fault_of(const std::function<void()>& work);

/// An error that all ranks got alike, so that all may handle it alike and go on.
class AgreedError : public Error {
 public:
  using Error::Error;
};

/// Throws the same AgreedError on all ranks if any has a fault: "ASKED failed on rank 3: FAULT",
/// for the first such rank.
void agree(Communicator& world, const std::string& asked, const std::string& fault);

/// Broadcasts the text of rank `root`.
std::string broadcast_text(Communicator& world, std::string text, int root);

/// Broadcasts rank 0's texts.
std::vector<std::string> broadcast_texts(Communicator& world, std::vector<std::string> texts);

/// Sends every rank's text to rank 0, which calls `take` with one after the other in rank order and
/// so never holds them all.
void gather_texts(Communicator& world, const std::string& mine,
                  const std::function<void(std::string text)>& take);

}  // namespace axonn
