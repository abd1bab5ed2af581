#pragma once

#include "axonn/base/options.h"
#include "axonn/plan/machine.h"

namespace axonn {

/// The keys of a machine file but its groups'; reading, writing and docs follow from it. A rate of
/// [rowwise] that stays 0 must be taken out of the map again: it is memory's.
void list_options(Machine& machine, OptionList& list);

/// The keys of one [[group]].
void list_options(GroupRate& group, OptionList& list);

}  // namespace axonn
