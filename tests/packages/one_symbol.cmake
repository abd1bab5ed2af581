# Fails if an object of a set of instructions (OBJECTS) defines another symbol for the linker than
# the function that makes its backend, or has groups of sections. The linker might then keep, of an
# inline function or a template, this set's copy for code that runs on every processor.
foreach(object IN LISTS OBJECTS)
  execute_process(COMMAND ${NM} --extern-only --defined-only --format=posix ${object}
                  OUTPUT_VARIABLE symbols COMMAND_ERROR_IS_FATAL ANY)
  if(NOT symbols MATCHES "^axonn_cpu_backend_[a-z0-9_]+ T [^\n]*\n$")
    message(SEND_ERROR "${object} defines more than its backend:\n${symbols}")
  endif()
  execute_process(COMMAND ${READELF} --section-groups --wide ${object}
                  OUTPUT_VARIABLE groups COMMAND_ERROR_IS_FATAL ANY)
  if(NOT groups MATCHES "no section groups")
    message(SEND_ERROR "${object} has groups of sections:\n${groups}")
  endif()
endforeach()
