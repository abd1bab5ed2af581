# Functions that declare a library or a test in one line.

add_library(axonn_flags INTERFACE)
# Arithmetic errors are detected by checking values, so no operation needs errno or traps. NaN and
# infinity keep their meaning (-ffast-math is never used).
target_compile_options(axonn_flags INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-fno-math-errno> $<$<COMPILE_LANGUAGE:CXX>:-fno-trapping-math>)
target_include_directories(axonn_flags INTERFACE
  $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}> $<INSTALL_INTERFACE:include>)
target_compile_features(axonn_flags INTERFACE cxx_std_20)

# axonn_optimise(TARGET FLAG): compiles the target's C++ with FLAG in Release builds.
function(axonn_optimise target flag)
  target_compile_options(${target} PRIVATE
    $<$<AND:$<CONFIG:Release>,$<COMPILE_LANGUAGE:CXX>>:${flag}>)
endfunction()

# axonn_library(FOLDER SOURCES a.cpp ... [DEPENDS folder ...] [LINK public libraries]
#               [PRIVATE libraries] [BATCH n] [SEPARATE a.cpp ...] [HOT | COLD]): declares the
# library of one folder of axonn/. BATCH and SEPARATE are those of axonn_unity(). HOT: the library
# has loops over values or bytes that dominate a run's time, so Release compiles it with -O3 instead
# of -O2. COLD: it has none, so Release uses -O1, which compiles a third faster.
function(axonn_library folder)
  cmake_parse_arguments(ARG "HOT;COLD" "BATCH" "SOURCES;DEPENDS;LINK;PRIVATE;SEPARATE" ${ARGN})
  if(NOT ARG_BATCH)
    set(ARG_BATCH 0)
  endif()
  add_library(axonn_${folder} STATIC ${ARG_SOURCES})
  axonn_unity(axonn_${folder} ${ARG_BATCH} SEPARATE ${ARG_SEPARATE})
  if(ARG_HOT)
    axonn_optimise(axonn_${folder} -O3)
  elseif(ARG_COLD)
    axonn_optimise(axonn_${folder} -O1)
  endif()
  add_library(axonn::${folder} ALIAS axonn_${folder})
  set_target_properties(axonn_${folder} PROPERTIES EXPORT_NAME ${folder})
  list(TRANSFORM ARG_DEPENDS PREPEND axonn_)
  target_link_libraries(axonn_${folder} PUBLIC axonn_flags ${ARG_DEPENDS} ${ARG_LINK})
  foreach(library IN LISTS ARG_PRIVATE)
    target_link_libraries(axonn_${folder} PRIVATE ${library})
  endforeach()
  set_property(GLOBAL APPEND PROPERTY AXONN_LIBRARIES axonn_${folder})
endfunction()

# axonn_page(CONSTANT OUTPUT [SCRIPT.js ...]): page.html, with its scripts (page.js if none are
# named) in the places of their tags, as the constant axonn::CONSTANT of the source OUTPUT.
function(axonn_page constant output)
  set(scripts ${ARGN})
  if(NOT scripts)
    set(scripts page.js)
  endif()
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS page.html)
  file(READ page.html page)
  foreach(name IN LISTS scripts)
    file(REAL_PATH ${name} path)
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${path})
    file(READ ${path} script)
    string(REPLACE "<script src=\"${name}\"></script>" "<script>\n${script}</script>"
           page "${page}")
  endforeach()
  file(CONFIGURE OUTPUT ${output} @ONLY CONTENT [=[
namespace axonn {
extern const char @constant@[];
const char @constant@[] = R"PAGE(@page@)PAGE";
}  // namespace axonn
]=])
endfunction()

add_custom_target(unit_tests)
add_custom_target(gpu_tests)

# axonn_test_options(TARGET): the options of a test program's sources. GoogleTest's macros become
# much code that takes little run time: -Og compiles it in two thirds of the time of -O1.
function(axonn_test_options target)
  target_link_libraries(${target} PRIVATE axonn_test_main)
  target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR})
  target_compile_options(${target} PRIVATE -Og)
endfunction()

# Declares a program that does nothing, whose precompiled headers test programs use: those of
# GoogleTest and of the standard library, which take a tenth of the time to compile a test. g++
# wants the same options for them as for the tests.
function(axonn_precompiled_headers)
  if(NOT AXONN_UNITY)
    return()
  endif()
  add_executable(axonn_test_precompiled EXCLUDE_FROM_ALL support/precompiled.cpp)
  axonn_unity(axonn_test_precompiled 1)
  axonn_test_options(axonn_test_precompiled)
  target_precompile_headers(axonn_test_precompiled PRIVATE
    <gmock/gmock.h> <gtest/gtest.h> <algorithm> <atomic> <chrono> <cmath> <condition_variable>
    <filesystem> <fstream> <functional> <map> <memory> <mutex> <numeric> <optional> <random> <set>
    <span> <sstream> <string> <thread> <unordered_map> <variant> <vector>)
endfunction()

# What runs a program that was built for another machine; empty for this one.
set(AXONN_EMULATOR)
if(CMAKE_CROSSCOMPILING)
  set(AXONN_EMULATOR ${CMAKE_CROSSCOMPILING_EMULATOR})
endif()

# axonn_test(NAME SOURCES a_test.cpp ... LINK libraries [LABELS ...] [RANKS n] [TIMEOUT s] [COST s]
#            [ARGUMENTS ...] [SEPARATE a.cpp ...]): declares one test program, run with these
# arguments; with RANKS it runs as that many MPI processes. LABELS defaults to unit. COST is the
# approximate duration: ctest starts the longest tests first. Target unit_tests builds the programs
# that sanitizers run: those with label unit but without label project, whose tests execute too
# little of the library. Target gpu_tests builds the programs with label gpu, which need a GPU, or
# an emulated one. SEPARATE is that of axonn_unity().
function(axonn_test name)
  cmake_parse_arguments(
    ARG "" "RANKS;TIMEOUT;COST" "SOURCES;LINK;LABELS;ARGUMENTS;SEPARATE" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  axonn_unity(${name} 12 SEPARATE ${ARG_SEPARATE})
  target_link_libraries(${name} PRIVATE ${ARG_LINK})
  axonn_test_options(${name})
  if(TARGET axonn_test_precompiled)
    target_precompile_headers(${name} REUSE_FROM axonn_test_precompiled)
  endif()
  set(command ${AXONN_EMULATOR} $<TARGET_FILE:${name}> ${ARG_ARGUMENTS})
  set(labels ${ARG_LABELS})
  if(NOT labels)
    set(labels unit)
  endif()
  if(ARG_RANKS)
    set(command ${AXONN_MPIRUN} -np ${ARG_RANKS} ${command})
  endif()
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 900)
  endif()
  add_test(NAME ${name} COMMAND ${command})
  if(NOT ARG_COST)
    set(ARG_COST 0)
  endif()
  set_tests_properties(${name} PROPERTIES
    LABELS "${labels}" TIMEOUT ${ARG_TIMEOUT} COST ${ARG_COST})
  if("unit" IN_LIST labels AND NOT "project" IN_LIST labels)
    add_dependencies(unit_tests ${name})
  endif()
  if("gpu" IN_LIST labels)
    add_dependencies(gpu_tests ${name})
  endif()
endfunction()

# axonn_python(MODULE PACKAGE): sets AXONN_PYTHON to a Python that has the module, for tests. If
# there is none, it is empty, and a message names Debian's package.
function(axonn_python module package)
  find_package(Python3 COMPONENTS Interpreter QUIET)
  foreach(candidate ${Python3_EXECUTABLE} /usr/bin/python3)
    execute_process(COMMAND ${candidate} -c "import ${module}"
      RESULT_VARIABLE status ERROR_QUIET OUTPUT_QUIET)
    if(status EQUAL 0)
      set(AXONN_PYTHON ${candidate} PARENT_SCOPE)
      return()
    endif()
  endforeach()
  set(AXONN_PYTHON "" PARENT_SCOPE)
  message(STATUS "Tests in Python: some are left out, since ${module} was not found (${package})")
endfunction()

# axonn_test_instructions(NAME TARGET ARGUMENTS...): in a build with -DAXONN_MARCH=dispatch,
# declares tests that run a program with each set of instructions: on x86-64 NAME.plain, NAME.avx2
# and NAME.avx512, with kernels and oneDNN limited to these, beside test NAME with those of the
# processor; in a build for another machine NAME.SET, on a processor that QEMU emulates.
function(axonn_test_instructions name target)
  if(NOT AXONN_MARCH STREQUAL "dispatch")
    return()
  endif()
  if(AXONN_ARCHITECTURE STREQUAL "x86_64")
    foreach(limit plain:SSE41 avx2:AVX2 avx512:AVX512_CORE)
      string(REGEX REPLACE ":.*" "" suffix ${limit})
      string(REGEX REPLACE ".*:" "" isa ${limit})
      add_test(NAME ${name}.${suffix} COMMAND ${target} ${ARGN})
      set_tests_properties(${name}.${suffix} PROPERTIES
        LABELS instructions TIMEOUT 900 ENVIRONMENT DNNL_MAX_CPU_ISA=${isa})
    endforeach()
  elseif(AXONN_ARCHITECTURE STREQUAL "aarch64" AND CMAKE_CROSSCOMPILING)
    foreach(processor neon:neoverse-n1 neon-bf16:max,sve=off sve512:a64fx sve256-bf16:max,sve256=on)
      string(REGEX REPLACE ":.*" "" suffix ${processor})
      string(REGEX REPLACE ".*:" "" cpu ${processor})
      add_test(NAME ${name}.${suffix}
        COMMAND ${AXONN_EMULATOR} -cpu ${cpu} $<TARGET_FILE:${target}> ${ARGN})
      # Threads that spin while they wait take an emulator forever.
      set_tests_properties(${name}.${suffix} PROPERTIES
        LABELS instructions TIMEOUT 900 ENVIRONMENT OMP_WAIT_POLICY=passive)
    endforeach()
  endif()
endfunction()
