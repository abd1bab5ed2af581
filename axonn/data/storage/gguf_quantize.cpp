#include "axonn/data/storage/gguf_quantize.h"

#include "axonn/compute/tensor/quantization.h"
#include "axonn/data/storage/gguf_blocks.h"

namespace axonn {

namespace {

template <Quantization kind>
void make_records(std::span<const float> values, std::span<std::byte> blocks) {
  quantize_records({kind, QuantizedForm::most_unit(kind)}, values, blocks);
}

}  // namespace

QuantizeGguf find_gguf_quantizer(std::uint32_t number) {
  QuantizeGguf make = nullptr;
  if (const GgufBlocks* const blocks = find_gguf_blocks(number);
      blocks && blocks->kind != Quantization::none && !is_only_read(blocks->kind))
    with_quantization(blocks->kind, [&](auto kind) { make = make_records<kind()>; });
  return make;
}

}  // namespace axonn
