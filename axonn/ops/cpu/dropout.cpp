#include "axonn/ops/rowwise/dropout.h"

#include "axonn/ops/cpu/launch.h"

template void axonn::ops::Dropout::run(axonn::cpu::Launch) const;
