#include "axonn/ops/rowwise/arithmetic.h"

#include "axonn/ops/cpu/launch.h"
#include "axonn/ops/rowwise/softmax.h"

template void axonn::ops::Activation::run(axonn::cpu::Launch) const;
template void axonn::ops::ActivationBackward::run(axonn::cpu::Launch) const;
template void axonn::ops::Multiply::run(axonn::cpu::Launch) const;
template void axonn::ops::Scale::run(axonn::cpu::Launch) const;
template void axonn::ops::Softmax::run(axonn::cpu::Launch) const;
template void axonn::ops::RowDots::run(axonn::cpu::Launch) const;
template void axonn::ops::SoftmaxBackward::run(axonn::cpu::Launch) const;
