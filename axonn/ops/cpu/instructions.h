#pragma once

#include <span>
#include <string>
#include <string_view>

namespace axonn::cpu {

/// "2.6.3": the version of oneDNN.
std::string library_version();

/// The best instruction set that oneDNN uses on this processor, in words: "AVX2", "AVX-512",
/// "AVX-512 with bf16 products". oneDNN's environment variable DNNL_MAX_CPU_ISA (AVX2, AVX512_CORE,
/// ...) lowers it.
std::string library_instructions();

/// Whether oneDNN multiplies bf16 by instructions of the processor. Without these it refuses bf16
/// (AVX2) or emulates it at a fraction of the speed of f32 (AVX-512).
bool library_multiplies_bf16();

/// The names that limit_library_instructions() accepts, the smallest set first: "avx2", "avx512",
/// "avx512-bf16".
std::span<const std::string_view> instruction_limits();

/// Makes oneDNN use no instructions beyond this set, as on an older processor. Applies to the whole
/// process; call it before any product. Throws if the name is not in instruction_limits() or a
/// product ran already.
void limit_library_instructions(std::string_view name);

}  // namespace axonn::cpu
