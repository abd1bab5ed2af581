# The headers that are installed: those below and all that they include, directly or not. Sets
# axonn_public_headers to their paths from the root of the source tree. docs/library.md lists the
# first ones.
set(axonn_public_headers)
set(todo axonn/axonn.h axonn/data/corpus/batches.h axonn/data/corpus/corpus.h
         axonn/use/infer/evaluate.h axonn/use/infer/generator.h
         axonn/use/rewards/reward_function.h)
while(todo)
  list(POP_FRONT todo header)
  list(APPEND axonn_public_headers ${header})
  file(STRINGS ${PROJECT_SOURCE_DIR}/${header} includes REGEX "^#include \"axonn/")
  foreach(include IN LISTS includes)
    string(REGEX REPLACE "^#include \"([^\"]+)\".*" "\\1" include "${include}")
    if(NOT include IN_LIST axonn_public_headers AND NOT include IN_LIST todo)
      list(APPEND todo ${include})
    endif()
  endforeach()
endwhile()
list(LENGTH axonn_public_headers count)
set(most 75)
if(count GREATER most)
  list(SORT axonn_public_headers)
  list(JOIN axonn_public_headers "\n  " text)
  message(FATAL_ERROR "there are ${count} public headers, more than ${most}:\n  ${text}")
endif()
