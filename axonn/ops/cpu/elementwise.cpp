#include "axonn/ops/rowwise/elementwise.h"

#include "axonn/ops/cpu/launch.h"

template void axonn::ops::Gelu::run(axonn::cpu::Launch) const;
template void axonn::ops::GeluBackward::run(axonn::cpu::Launch) const;
template void axonn::ops::Add::run(axonn::cpu::Launch) const;
template void axonn::ops::Cast::run(axonn::cpu::Launch) const;
template void axonn::ops::ColumnSum::run(axonn::cpu::Launch) const;
