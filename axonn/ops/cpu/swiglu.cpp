#include "axonn/ops/rowwise/swiglu.h"

#include "axonn/ops/cpu/launch.h"

template void axonn::ops::Swiglu::run(axonn::cpu::Launch) const;
template void axonn::ops::SwigluBackward::run(axonn::cpu::Launch) const;
