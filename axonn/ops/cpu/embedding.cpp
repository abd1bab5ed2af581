#include "axonn/ops/rowwise/embedding.h"

#include "axonn/ops/cpu/launch.h"

template void axonn::ops::Embedding::run(axonn::cpu::Launch) const;
template void axonn::ops::EmbeddingBackward::run(axonn::cpu::Launch) const;
template void axonn::ops::PositionsBackward::run(axonn::cpu::Launch) const;
