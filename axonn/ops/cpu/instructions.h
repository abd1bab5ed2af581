#pragma once

#include <span>
#include <string>
#include <string_view>

namespace axonn::cpu {

/// "2.6.3": the version of oneDNN.
std::string library_version();

/// The best instruction set that oneDNN's products use on this processor, in words: "AVX2",
/// "AVX-512", "AVX-512 with bf16 products". The environment variable DNNL_MAX_CPU_ISA lowers it
/// (AVX2, AVX512_CORE, ...), as oneDNN's documentation says.
std::string library_instructions();

/// Whether oneDNN multiplies bf16 with instructions of the processor. Without them it refuses bf16
/// (AVX2), or emulates it at a fraction of the speed of f32 (AVX-512).
bool library_multiplies_bf16();

/// The names that limit_library_instructions() knows, least first: "avx2", "avx512",
/// "avx512-bf16".
std::span<const std::string_view> instruction_limits();

/// Has oneDNN use no instructions beyond these, as a lesser processor would. Process-wide, before
/// any product. Errors: a name that is not in instruction_limits(); a product ran already.
void limit_library_instructions(std::string_view name);

}  // namespace axonn::cpu
