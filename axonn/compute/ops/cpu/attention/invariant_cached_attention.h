#pragma once

#include "axonn/compute/ops/backend.h"
#include "axonn/compute/ops/cpu/launch.h"

namespace axonn::cpu {

/// Backend::cached_attention() with the bits of attention(): in its blocks of keys, counted from
/// position 0, and by its operations, in which the query heads of a key-value head take the place
/// of queries. The caller has checked the arguments.
///
/// Bound by arithmetic, of 16 heads for each key-value head even where there are fewer.
void invariant_cached_attention(const CachedAttention& args, HostScratch& scratch, int threads);

}  // namespace axonn::cpu
