#include "axonn/ops/cpu/launch.h"
#include "axonn/ops/rowwise/keep_heads.h"
#include "axonn/ops/rowwise/rotary.h"

template void axonn::ops::RotaryEmbedding::run(axonn::cpu::Launch) const;
template void axonn::ops::KeepHeads::run(axonn::cpu::Launch) const;
