# Installs the build in BUILD into a prefix in WORK, then builds the example in SOURCE against it,
# as a user would, and runs it.

function(step)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE code)
  if(code)
    list(JOIN ARGN " " text)
    message(FATAL_ERROR "exit code ${code}: ${text}")
  endif()
endfunction()

file(REMOVE_RECURSE ${WORK})
step(${CMAKE_COMMAND} --install ${BUILD} --prefix ${WORK}/prefix)
step(${CMAKE_COMMAND} -S ${SOURCE} -B ${WORK}/build -G Ninja
     -D CMAKE_PREFIX_PATH=${WORK}/prefix -D CMAKE_CXX_COMPILER=${COMPILER}
     -D CMAKE_BUILD_TYPE=${TYPE} -D CMAKE_CXX_FLAGS_DEBUG=${FLAGS})
step(${CMAKE_COMMAND} --build ${WORK}/build)
step(${WORK}/build/custom_model)
