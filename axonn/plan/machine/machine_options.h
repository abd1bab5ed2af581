#pragma once

#include "axonn/options/options.h"
#include "axonn/plan/machine/machine.h"

namespace axonn {

/// The keys of a machine file except its groups; reading, writing and docs follow from it. The
/// caller must erase rates of [rowwise] that stay 0: those operations have memory_bytes_per_s.
void list_options(Machine& machine, OptionList& list);

/// The keys of one [[group]].
void list_options(GroupRate& group, OptionList& list);

}  // namespace axonn
