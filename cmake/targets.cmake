# How the project declares its libraries and tests: one line each.

add_library(axonn_flags INTERFACE)
# Errors of arithmetic are found by looking at values, so no operation needs errno or traps; NaN
# and infinity keep their meaning (-ffast-math is never used).
target_compile_options(axonn_flags INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-fno-math-errno> $<$<COMPILE_LANGUAGE:CXX>:-fno-trapping-math>)
target_include_directories(axonn_flags INTERFACE
  $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}> $<INSTALL_INTERFACE:include>)
target_compile_features(axonn_flags INTERFACE cxx_std_20)

# The rows of kernels are vectorised for this machine unless another is named.
set(AXONN_MARCH "native" CACHE STRING "-march= of the CPU kernels")

# axonn_optimise(TARGET FLAG): how Release compiles it.
function(axonn_optimise target flag)
  target_compile_options(${target} PRIVATE
    $<$<AND:$<CONFIG:Release>,$<COMPILE_LANGUAGE:CXX>>:${flag}>)
endfunction()

# axonn_library(FOLDER SOURCES a.cpp ... [DEPENDS folder ...] [LINK public libraries]
#               [PRIVATE libraries] [BATCH n] [SEPARATE a.cpp ...] [HOT | COLD]): the library of one
# folder of axonn/. BATCH and SEPARATE are axonn_unity()'s. HOT: it has loops over values or bytes
# that take a run's time, so Release compiles it with -O3 in place of -O2. COLD: it has none, and
# -O1 compiles a third faster.
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

add_custom_target(unit_tests)

# axonn_test(NAME SOURCES a_test.cpp ... LINK libraries [LABELS ...] [RANKS n] [TIMEOUT s] [COST s]
#            [ARGUMENTS ...] [SEPARATE a.cpp ...]): one test program, run with these arguments;
# with RANKS it runs as that many MPI processes. LABELS defaults to unit. COST is about how long it
# takes: ctest starts the longest first. Target unit_tests builds the programs that sanitizers run:
# those of label unit without label project, in which sanitizers would find nothing. SEPARATE is
# axonn_unity()'s.
function(axonn_test name)
  cmake_parse_arguments(
    ARG "" "RANKS;TIMEOUT;COST" "SOURCES;LINK;LABELS;ARGUMENTS;SEPARATE" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  axonn_unity(${name} 12 SEPARATE ${ARG_SEPARATE})
  target_link_libraries(${name} PRIVATE ${ARG_LINK} axonn_test_main GTest::gmock)
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR})
  # GoogleTest's headers are most of a test's time to compile, and hardly any of its time to run.
  target_compile_options(${name} PRIVATE $<IF:$<CONFIG:Release>,-O1,-O0>)
  set(command $<TARGET_FILE:${name}> ${ARG_ARGUMENTS})
  set(labels ${ARG_LABELS})
  if(NOT labels)
    set(labels unit)
  endif()
  if(ARG_RANKS)
    set(command ${MPIEXEC_EXECUTABLE} --allow-run-as-root --oversubscribe --bind-to none
                --mca mpi_yield_when_idle 1 -np ${ARG_RANKS} ${command})
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
endfunction()

# axonn_test_instructions(NAME COMMAND...): the tests NAME.avx2 and NAME.avx512, which run the
# command with oneDNN held to the instructions of a lesser processor than this one may be.
function(axonn_test_instructions name)
  foreach(limit avx2:AVX2 avx512:AVX512_CORE)
    string(REGEX REPLACE ":.*" "" suffix ${limit})
    string(REGEX REPLACE ".*:" "" isa ${limit})
    add_test(NAME ${name}.${suffix} COMMAND ${ARGN})
    set_tests_properties(${name}.${suffix} PROPERTIES
      LABELS instructions TIMEOUT 900 ENVIRONMENT DNNL_MAX_CPU_ISA=${isa})
  endforeach()
endfunction()
