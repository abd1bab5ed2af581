# Installs the build in BUILD into a prefix in WORK, then builds the programs of EXAMPLES against
# it, as a user would, and runs them.

function(step)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE code)
  if(code)
    list(JOIN ARGN " " text)
    message(FATAL_ERROR "exit code ${code}: ${text}")
  endif()
endfunction()

file(REMOVE_RECURSE ${WORK})
step(${CMAKE_COMMAND} --install ${BUILD} --prefix ${WORK}/prefix)
foreach(name custom_model custom_optimizer)
  step(${CMAKE_COMMAND} -S ${EXAMPLES}/${name} -B ${WORK}/${name} -G Ninja
       -D CMAKE_PREFIX_PATH=${WORK}/prefix -D CMAKE_CXX_COMPILER=${COMPILER}
       -D CMAKE_BUILD_TYPE=${TYPE} -D CMAKE_CXX_FLAGS_DEBUG=${FLAGS})
  step(${CMAKE_COMMAND} --build ${WORK}/${name})
endforeach()

file(MAKE_DIRECTORY ${WORK}/run)
function(run name)
  step(${CMAKE_COMMAND} -E chdir ${WORK}/run ${WORK}/${name}/${name} ${ARGN})
endfunction()

run(custom_optimizer)

# Every command works for a family that is not the library's.
set(config ${EXAMPLES}/custom_model/neighbours.toml)
run(custom_model check ${config} --grids "1,1,1,1 2,2,2,1" --steps 5)
run(custom_model train ${config} --dry-run --parallelism.grid 2,2,2,1)
run(custom_model train ${config} --neighbours.context 3 --parallelism.grid 2,1,2,1)
run(custom_model train ${WORK}/run/out/config.toml --checkpoint.resume auto --training.steps 22)
run(custom_model generate --model out/checkpoints --prompt "The " --tokens 20 --grid 1,1,2,1)
run(custom_model plan ${config} --devices 8 --machine frontier)

# The hyperparameters of the section [neighbours] went into the checkpoint.
file(GLOB stored ${WORK}/run/out/checkpoints/step-22/config.toml)
file(STRINGS "${stored}" lines REGEX "^context = 3")
if(NOT lines)
  message(FATAL_ERROR "the checkpoint's config.toml lacks 'context = 3'")
endif()
