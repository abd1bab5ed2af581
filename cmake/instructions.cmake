# For which processors the CPU kernels are compiled. AXONN_MARCH is
#
#   native     this machine's processor: for those who build for themselves
#   dispatch   several sets of instructions, from which the program chooses when it starts, so that
#              one binary runs on any x86-64, or on any 64-bit ARM: for packages. Elsewhere it is
#              the compiler's default
#   default    whatever the compiler and its flags say
#   NAME       -march=NAME
#
# With dispatch, the kernels are compiled once for each set. No code of a set may ever stand in for
# code that an older processor runs, but inline functions and templates, also those of the standard
# library, are compiled in every source that uses them, and the linker keeps any one of the copies.
# So each set's object files are joined into one, in which all symbols but one are local: the
# function that makes the set's backend.
include(CheckCXXSourceCompiles)

set(AXONN_MARCH "native" CACHE STRING
    "Processor of the CPU kernels: native, dispatch (sets chosen at run time), default or -march=")

set(AXONN_KERNEL_SETS ${AXONN_MARCH})
set(AXONN_KERNEL_FLAGS -march=${AXONN_MARCH})  # those of other code for this build's processor
set(AXONN_FOR_EACH_SET)  # attribute of functions that are compiled for each set within one source
# axonn/compute/ops/cpu/processor_ARCHITECTURE.cpp tells which sets the processor has.
if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64)$")
  set(AXONN_ARCHITECTURE x86_64)
elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "^(aarch64|arm64)$")
  set(AXONN_ARCHITECTURE aarch64)
else()
  set(AXONN_ARCHITECTURE other)
endif()
if(AXONN_MARCH STREQUAL "dispatch")
  set(AXONN_KERNEL_SETS plain)
  set(AXONN_KERNEL_FLAGS)
  set(axonn_flags_plain)
  if(AXONN_ARCHITECTURE STREQUAL "x86_64")
    list(APPEND AXONN_KERNEL_SETS avx2 avx512 avx512-bf16)
    set(AXONN_FOR_EACH_SET
        [[gnu::target_clones("default", "arch=x86-64-v3", "arch=x86-64-v4")]])
    set(axonn_flags_avx2 -march=x86-64-v3)
    set(axonn_flags_avx512 -march=x86-64-v4 -mprefer-vector-width=512)
    set(axonn_flags_avx512-bf16 ${axonn_flags_avx512} -mavx512bf16 -mavx512vnni)
  elseif(AXONN_ARCHITECTURE STREQUAL "aarch64")
    # Of SVE, what processors have whose registers are wider than NEON's: A64FX's, Graviton 3's.
    set(AXONN_KERNEL_SETS neon neon-bf16 sve512 sve256-bf16)
    set(axonn_flags_neon)
    set(axonn_flags_neon-bf16 -march=armv8.2-a+bf16+dotprod)
    set(axonn_flags_sve512 -march=armv8.2-a+sve -msve-vector-bits=512 -mtune=a64fx)
    set(axonn_flags_sve256-bf16
        -march=armv8.2-a+sve+bf16 -msve-vector-bits=256 -mtune=neoverse-v1)
  endif()
elseif(AXONN_MARCH STREQUAL "default")
  set(AXONN_KERNEL_FLAGS)
else()
  set(axonn_flags_${AXONN_MARCH} ${AXONN_KERNEL_FLAGS})
endif()

# Sets VARIABLE to whether the compiler has what CODE uses, with the flags of a set.
function(axonn_set_compiles variable set code)
  list(JOIN axonn_flags_${set} " " CMAKE_REQUIRED_FLAGS)
  string(MAKE_C_IDENTIFIER ${variable}_${set} has)
  check_cxx_source_compiles("${code}\nint main() {}" ${has})
  set(${variable} ${${has}} PARENT_SCOPE)
endfunction()

# Sets VARIABLE to whether the kernels of a set have code for AMX's tiles (true or false), and
# AXONN_AVX512_BF16 to whether the set has that.
function(axonn_check_amx variable set)
  axonn_set_compiles(AXONN_AVX512_BF16 ${set} [[
#include <immintrin.h>
__m512 dot(__m512 sum, __m512bh a, __m512bh b) { return _mm512_dpbf16_ps(sum, a, b); }]])
  axonn_set_compiles(AXONN_AMX ${set} [[void release() { asm volatile("tilerelease"); }]])
  set(${variable} false PARENT_SCOPE)
  if(AXONN_AVX512_BF16 AND AXONN_AMX)
    set(${variable} true PARENT_SCOPE)
  endif()
  set(AXONN_AVX512_BF16 ${AXONN_AVX512_BF16} PARENT_SCOPE)
endfunction()

# kernel_sets.h: the table of sets.
set(axonn_factories)
set(axonn_kernel_sets)
foreach(name IN LISTS AXONN_KERNEL_SETS)
  string(MAKE_C_IDENTIFIER axonn_cpu_backend_${name} factory)
  set(axonn_factory_${name} ${factory})
  string(APPEND axonn_factories "axonn::Backend* ${factory}(int threads);\n")
  axonn_check_amx(has_amx ${name})
  list(APPEND axonn_kernel_sets "KernelSet{\"${name}\", ${factory}, ${has_amx}}")
endforeach()
list(JOIN axonn_kernel_sets ", " axonn_kernel_sets)
configure_file(${PROJECT_SOURCE_DIR}/axonn/compute/ops/cpu/kernel_sets.h.in
               ${PROJECT_BINARY_DIR}/include/axonn/compute/ops/cpu/kernel_sets.h @ONLY)

# Sets FOLDER to one with the headers of axonn/compute/ops/cpu/ that differ between sets:
# architecture.h, registers.h, codes.h, integers.h, and the arithmetic.h, bf16.h and parts.h on
# which a registers.h is built that is not by AVX-512's bf16 instructions.
function(axonn_registers folder set)
  axonn_check_amx(axonn_has_amx ${set})
  axonn_set_compiles(AXONN_NEON_BF16 ${set} [[
#include <arm_neon.h>
float32x4_t dot(float32x4_t sum, bfloat16x8_t a) { return vbfdotq_f32(sum, a, a); }]])
  axonn_set_compiles(AXONN_SVE ${set} [[
#include <arm_sve.h>
static_assert(__ARM_FEATURE_SVE_BITS > 128);]])
  axonn_set_compiles(AXONN_NEON_DOT ${set} [[
#include <arm_neon.h>
int32x4_t dot(int32x4_t sum, int8x16_t a) { return vdotq_s32(sum, a, a); }]])
  axonn_set_compiles(AXONN_SVE256 ${set} [[
#include <arm_sve.h>
static_assert(__ARM_FEATURE_SVE_BITS == 256);]])
  axonn_set_compiles(AXONN_AVX512 ${set} [[
#include <immintrin.h>
__m512i load(const void* p) { return _mm512_loadu_si512(p); }]])
  axonn_set_compiles(AXONN_AVX512_VNNI ${set} [[
#include <immintrin.h>
__m512i dot(__m512i sum, __m512i a, __m512i b) { return _mm512_dpbusd_epi32(sum, a, b); }]])
  axonn_set_compiles(AXONN_AVX2 ${set} [[
#include <immintrin.h>
float load(const __m256i* p) {
  return _cvtsh_ss(static_cast<unsigned short>(_mm256_extract_epi16(_mm256_srli_epi32(*p, 4), 0)));
}]])
  set(registers portable)
  set(codes portable)
  set(integers none)
  if(AXONN_AVX512)
    set(codes avx512)
    set(integers avx512)
  elseif(AXONN_AVX2)
    set(codes avx2)
    set(integers avx2)
  endif()
  set(axonn_multiplies_bytes false)
  if(AXONN_AVX512_VNNI OR AXONN_NEON_DOT)
    set(axonn_multiplies_bytes true)
  endif()
  set(arithmetic portable)
  set(bf16 portable)
  set(parts portable)
  set(axonn_register_bytes __BIGGEST_ALIGNMENT__)
  if(AXONN_AVX512_BF16)
    set(registers avx512)
  elseif(AXONN_SVE)
    set(axonn_register_bytes "__ARM_FEATURE_SVE_BITS / 8")
    set(arithmetic sve)
    set(codes sve)
    set(parts sve)
    if(AXONN_SVE256)
      set(integers sve)
    endif()
    if(AXONN_NEON_BF16)
      set(bf16 sve_bfdot)
    endif()
  elseif(AXONN_ARCHITECTURE STREQUAL "aarch64")
    set(arithmetic neon)
    set(codes neon)
    set(integers neon)
    set(bf16 neon)
    if(AXONN_NEON_BF16)
      set(bf16 bfdot)
    endif()
  endif()
  set(into ${PROJECT_BINARY_DIR}/include/${set})
  set(axonn_arm64 false)
  if(AXONN_ARCHITECTURE STREQUAL "aarch64")
    set(axonn_arm64 true)
  endif()
  configure_file(${PROJECT_SOURCE_DIR}/axonn/compute/ops/cpu/architecture.h.in
                 ${into}/axonn/compute/ops/cpu/architecture.h @ONLY)
  foreach(header registers codes integers arithmetic bf16 parts)
    configure_file(${PROJECT_SOURCE_DIR}/axonn/compute/ops/cpu/${header}_${${header}}.h
                   ${into}/axonn/compute/ops/cpu/${header}.h COPYONLY)
  endforeach()
  set(${folder} ${into} PARENT_SCOPE)
endfunction()

# axonn_kernels(TARGET SOURCES a.cpp ... LINK libraries ... OPTIONS ...): adds the CPU kernels to a
# library, for each of AXONN_KERNEL_SETS. AXONN_CPU_BACKEND is the name of the function that makes
# the set's backend.
function(axonn_kernels target)
  cmake_parse_arguments(ARG "" "" "SOURCES;LINK;OPTIONS" ${ARGN})
  target_include_directories(${target} PRIVATE ${PROJECT_BINARY_DIR}/include)
  list(LENGTH AXONN_KERNEL_SETS count)
  set(lto)
  if(CMAKE_CXX_FLAGS MATCHES "-flto")
    set(lto -fno-lto)
  endif()
  foreach(set IN LISTS AXONN_KERNEL_SETS)
    axonn_registers(registers ${set})
    set(compiled ${target})
    if(count EQUAL 1)
      target_sources(${target} PRIVATE ${ARG_SOURCES})
    else()
      set(compiled ${target}_${set})
      add_library(${compiled} OBJECT ${ARG_SOURCES})
      target_link_libraries(${compiled} PRIVATE ${ARG_LINK})
      # Symbols that are unique in a process could not be made local, nor those of objects for LTO.
      target_compile_options(${compiled} PRIVATE
        ${ARG_OPTIONS} $<$<CXX_COMPILER_ID:GNU>:-fno-gnu-unique> ${lto})
      axonn_optimise(${compiled} -O3)
      axonn_join(${target} ${set})
    endif()
    target_include_directories(${compiled} PRIVATE ${registers} ${PROJECT_BINARY_DIR}/include)
    target_compile_options(${compiled} PRIVATE
      "$<$<COMPILE_LANGUAGE:CXX>:${axonn_flags_${set}}>")
    target_compile_definitions(${compiled} PRIVATE AXONN_CPU_BACKEND=${axonn_factory_${set}})
  endforeach()
endfunction()

# axonn_join(TARGET SET): joins the objects of TARGET_SET into one of TARGET that has one symbol.
# Groups are dissolved, or the linker would still keep one set's copy of each of them.
function(axonn_join target set)
  set(objects $<TARGET_OBJECTS:${target}_${set}>)
  set(joined ${CMAKE_CURRENT_BINARY_DIR}/${target}_${set}.o)
  add_custom_command(OUTPUT ${joined}
    COMMAND ${CMAKE_LINKER} -r -d --force-group-allocation ${objects} -o ${joined}.all
    COMMAND ${CMAKE_OBJCOPY} --keep-global-symbol=${axonn_factory_${set}} ${joined}.all ${joined}
    COMMAND ${CMAKE_COMMAND} -E rm ${joined}.all
    DEPENDS ${objects} COMMAND_EXPAND_LISTS VERBATIM
    COMMENT "Joining the CPU kernels for ${set}")
  add_dependencies(${target} ${target}_${set})  # generators of makefiles need this, too
  set_source_files_properties(${joined} PROPERTIES EXTERNAL_OBJECT ON GENERATED ON)
  target_sources(${target} PRIVATE ${joined})
  set_property(TARGET ${target} APPEND PROPERTY AXONN_JOINED ${joined})
endfunction()
