#include "axonn/ops/cpu/launch.h"
#include "axonn/ops/rowwise/layer_norm.h"

template void axonn::ops::RowMoments::run(axonn::cpu::Launch) const;
template void axonn::ops::AddMoments::run(axonn::cpu::Launch) const;
template void axonn::ops::CombineMoments::run(axonn::cpu::Launch) const;
template void axonn::ops::LayerNorm::run(axonn::cpu::Launch) const;
template void axonn::ops::LayerNormSums::run(axonn::cpu::Launch) const;
template void axonn::ops::LayerNormBackward::run(axonn::cpu::Launch) const;
template void axonn::ops::LayerNormWeightBackward::run(axonn::cpu::Launch) const;
