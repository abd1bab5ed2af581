#include "axonn/ops/rowwise/reduce.h"

#include "axonn/ops/cpu/launch.h"

template void axonn::ops::Sum::run(axonn::cpu::Launch) const;
template void axonn::ops::SquaredSum::run(axonn::cpu::Launch) const;
template void axonn::ops::ClipFactor::run(axonn::cpu::Launch) const;
template void axonn::ops::CountNonfinite::run(axonn::cpu::Launch) const;
