# Unity builds compile the sources of a library or a test program in few large units, because most
# of the compile time goes into included headers. Preset debug compiles each source separately. This
# rebuilds less after an edit and checks that each source includes everything it uses.

option(AXONN_UNITY "Compile the sources of a library or test program together" ON)

# axonn_unity(TARGET BATCH [SEPARATE a.cpp ...]): compiles BATCH sources of the target as one unit,
# or all if BATCH is 0; those after SEPARATE are compiled separately.
function(axonn_unity target batch)
  cmake_parse_arguments(ARG "" "" "SEPARATE" ${ARGN})
  if(NOT AXONN_UNITY)
    return()
  endif()
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE ${batch})
  set_source_files_properties(${ARG_SEPARATE} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  # In a unity build each source is an included file, so g++ gives warnings that are meant for
  # headers. g++ collects garbage from 128 MB on; with 600 MB a unit compiles an eighth faster.
  target_compile_options(${target} PRIVATE
    $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-subobject-linkage>
    $<$<COMPILE_LANG_AND_ID:CXX,GNU>:--param=ggc-min-heapsize=600000>)
endfunction()
