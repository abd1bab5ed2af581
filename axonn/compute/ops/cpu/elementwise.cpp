#include "axonn/compute/ops/rowwise/elementwise.h"

#include "axonn/compute/ops/cpu/launch.h"
#include "axonn/compute/ops/rowwise/xielu.h"

namespace axonn::ops {

template void Gelu::run(cpu::Launch, const Checker&) const;
template void GeluBackward::run(cpu::Launch, const Checker&) const;
template void Add::run(cpu::Launch, const Checker&) const;
template void Cast::run(cpu::Launch, const Checker&) const;
template void ColumnSum::run(cpu::Launch, const Checker&) const;
template void Activation::run(cpu::Launch, const Checker&) const;
template void ActivationBackward::run(cpu::Launch, const Checker&) const;
template void Multiply::run(cpu::Launch, const Checker&) const;
template void Scale::run(cpu::Launch, const Checker&) const;
template void AddNumber::run(cpu::Launch, const Checker&) const;
template void ScaleByNumber::run(cpu::Launch, const Checker&) const;
template void SoftCap::run(cpu::Launch, const Checker&) const;
template void SoftCapBackward::run(cpu::Launch, const Checker&) const;
template void Swiglu::run(cpu::Launch, const Checker&) const;
template void SwigluBackward::run(cpu::Launch, const Checker&) const;
template void Xielu::run(cpu::Launch, const Checker&) const;
template void XieluBackward::run(cpu::Launch, const Checker&) const;
template void Dropout::run(cpu::Launch, const Checker&) const;

}  // namespace axonn::ops
