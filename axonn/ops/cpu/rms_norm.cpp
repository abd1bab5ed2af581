#include "axonn/ops/rowwise/rms_norm.h"

#include "axonn/ops/cpu/launch.h"

template void axonn::ops::MomentsAboutZero::run(axonn::cpu::Launch) const;
template void axonn::ops::RmsNormSums::run(axonn::cpu::Launch) const;
template void axonn::ops::HeadNorm::run(axonn::cpu::Launch) const;
template void axonn::ops::HeadNormBackward::run(axonn::cpu::Launch) const;
