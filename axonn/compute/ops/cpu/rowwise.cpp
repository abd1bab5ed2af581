#include "axonn/compute/ops/cpu/launch.h"
#include "axonn/compute/ops/rowwise/adafactor.h"
#include "axonn/compute/ops/rowwise/dequantize.h"
#include "axonn/compute/ops/rowwise/embedding.h"
#include "axonn/compute/ops/rowwise/experts.h"
#include "axonn/compute/ops/rowwise/heads.h"
#include "axonn/compute/ops/rowwise/moments.h"
#include "axonn/compute/ops/rowwise/optimizer.h"
#include "axonn/compute/ops/rowwise/order.h"
#include "axonn/compute/ops/rowwise/reduce.h"
#include "axonn/compute/ops/rowwise/word_sums.h"

namespace axonn::ops {

template void Dequantize::run(cpu::Launch, const Checker&) const;
template void DequantizeRows::run(cpu::Launch, const Checker&) const;
template void Embedding::run(cpu::Launch, const Checker&) const;
template void EmbeddingBackward::run(cpu::Launch, const Checker&) const;
template void PositionsBackward::run(cpu::Launch, const Checker&) const;
template void RotaryEmbedding::run(cpu::Launch, const Checker&) const;
template void KeepHeads::run(cpu::Launch, const Checker&) const;
template void RoundHeads::run(cpu::Launch, const Checker&) const;
template void ChunkStarts::run(cpu::Launch, const Checker&) const;
template void CopyHeads::run(cpu::Launch, const Checker&) const;
template void AddSinks::run(cpu::Launch, const Checker&) const;
template void SinkTerms::run(cpu::Launch, const Checker&) const;
template void OrderBlocks::run(cpu::Launch, const Checker&) const;
template void BranchCopies::run(cpu::Launch, const Checker&) const;
template void ExpertOrder::run(cpu::Launch, const Checker&) const;
template void ExpertFactors::run(cpu::Launch, const Checker&) const;
template void ExpertFactorTerms::run(cpu::Launch, const Checker&) const;
template void SpreadRows::run(cpu::Launch, const Checker&) const;
template void CombineRows::run(cpu::Launch, const Checker&) const;
template void CombineRowsBackward::run(cpu::Launch, const Checker&) const;
template void AdamW::run(cpu::Launch, const Checker&) const;
template void Sgd::run(cpu::Launch, const Checker&) const;
template void Lion::run(cpu::Launch, const Checker&) const;
template void ScheduleFreeAdamW::run(cpu::Launch, const Checker&) const;
template void AddSquares::run(cpu::Launch, const Checker&) const;
template void AdafactorSquares::run(cpu::Launch, const Checker&) const;
template void Adafactor::run(cpu::Launch, const Checker&) const;
template void Clamp::run(cpu::Launch, const Checker&) const;
template void Momentum::run(cpu::Launch, const Checker&) const;
template void DivideByNorm::run(cpu::Launch, const Checker&) const;
template void WeightedSum::run(cpu::Launch, const Checker&) const;
template void WordSums::run(cpu::Launch, const Checker&) const;
template void MovingAverage::run(cpu::Launch, const Checker&) const;
template void EncodeDynamic::run(cpu::Launch, const Checker&) const;
template void DecodeDynamic::run(cpu::Launch, const Checker&) const;
template void RoundAtRandom::run(cpu::Launch, const Checker&) const;
template void Sum::run(cpu::Launch, const Checker&) const;
template void SquaredSum::run(cpu::Launch, const Checker&) const;
template void PowerSum::run(cpu::Launch, const Checker&) const;
template void LargestSize::run(cpu::Launch, const Checker&) const;
template void ClipFactor::run(cpu::Launch, const Checker&) const;
template void CountNonfinite::run(cpu::Launch, const Checker&) const;

}  // namespace axonn::ops
