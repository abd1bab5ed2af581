#include "axonn/ops/rowwise/optimizer.h"

#include "axonn/ops/cpu/launch.h"

template void axonn::ops::AdamW::run(axonn::cpu::Launch) const;
template void axonn::ops::Sgd::run(axonn::cpu::Launch) const;
