#pragma once

#include <string>
#include <string_view>
#include <vector>

// Which instructions the CPU computes with. Two parts have code for several sets of instructions:
// oneDNN, which computes most products and makes its code when the program runs, and the kernels
// of this folder, which a build with -DAXONN_MARCH=dispatch compiles once for each set. The kernels
// that run are those for the best set that the processor has and that oneDNN may use, so on x86-64
// what limits oneDNN limits both: its environment variable DNNL_MAX_CPU_ISA (SSE41, AVX2,
// AVX512_CORE, AVX512_CORE_BF16), or limit_instructions(). AMX's tiles are no set of their own: the
// kernels for AVX-512 with bf16 use them where they are.

namespace axonn::cpu {

/// The names of the sets of instructions of this architecture, the best last, which
/// limit_instructions() accepts: "plain" (any processor), "avx2", "avx512", "avx512-bf16", "amx",
/// of which each contains those before it; on 64-bit ARM "neon" (any processor), "neon-bf16", and
/// of two that are SVE with registers of so many bits at most one: "sve512", "sve256-bf16".
std::vector<std::string_view> instruction_sets();

/// The best of these sets that the processor has and the operating system allows.
std::string_view processor_instructions();

/// For which instructions this build has kernels: some of instruction_sets(), or one processor, as
/// named to the compiler ("native").
std::vector<std::string_view> kernel_sets();

/// Which of kernel_sets() runs. The first call decides it for the whole process.
std::string_view kernel_instructions();

/// Whether the kernels that run multiply bf16 by AMX's tiles, of which a product of 32 elements of
/// 16 rows and 16 columns takes 16 cycles. The first call decides it for the whole process.
bool uses_amx();

/// "2.6.3": the version of oneDNN.
std::string library_version();

/// The best instructions that oneDNN uses on this processor, in words: "AVX2", "AVX-512", "AVX-512
/// with bf16 products".
std::string library_instructions();

/// Whether oneDNN multiplies bf16 by instructions of the processor. Without these it refuses bf16
/// (AVX2) or emulates it at a fraction of the speed of f32 (AVX-512).
bool library_multiplies_bf16();

/// Whether products of many rows multiply bf16 by instructions of the processor, in oneDNN or in
/// the kernels; else they convert operands to f32.
bool multiplies_bf16();

/// "kernels avx2, products AVX2", "kernels native with AMX, products ...": what this process
/// computes with. Processes for which this text differs may round differently.
std::string instructions_in_use();

/// Makes products and kernels use no set of instructions after this one, as on an older processor.
/// Kernels of a build for one processor stay as they are. Applies to the whole process; call it
/// before any product and before the functions above that tell what is used. Throws if the name is
/// not in instruction_sets() or if it is too late.
void limit_instructions(std::string_view name);

}  // namespace axonn::cpu
