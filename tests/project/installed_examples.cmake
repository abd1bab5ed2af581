# Installs the build in BUILD into a prefix in WORK, checks the installed documents, then builds the
# programs of the installed examples against it, as a user would, and runs them.
include(${CMAKE_CURRENT_LIST_DIR}/installed_docs.cmake)

function(step)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE code)
  if(code)
    list(JOIN ARGN " " text)
    message(FATAL_ERROR "exit code ${code}: ${text}")
  endif()
endfunction()

file(REMOVE_RECURSE ${WORK})
step(${CMAKE_COMMAND} --install ${BUILD} --prefix ${WORK}/prefix)
check_installed_docs(${WORK}/prefix ${SOURCE})
set(examples ${WORK}/prefix/share/doc/axonn/examples)
foreach(name custom_model custom_optimizer)
  step(${CMAKE_COMMAND} -S ${examples}/${name} -B ${WORK}/${name} -G Ninja
       -D CMAKE_PREFIX_PATH=${WORK}/prefix -D CMAKE_CXX_COMPILER=${COMPILER}
       -D CMAKE_BUILD_TYPE=${TYPE} -D CMAKE_CXX_FLAGS_DEBUG=${FLAGS})
  step(${CMAKE_COMMAND} --build ${WORK}/${name})
endforeach()

file(MAKE_DIRECTORY ${WORK}/run)
function(run name)
  step(${CMAKE_COMMAND} -E chdir ${WORK}/run ${WORK}/${name}/${name} ${ARGN})
endfunction()

# Fails unless the checkpoint's config.toml has the line.
function(expect_stored checkpoint line)
  file(STRINGS ${WORK}/run/${checkpoint}/config.toml lines REGEX "^${line}")
  if(NOT lines)
    message(FATAL_ERROR "the config.toml of ${checkpoint} lacks '${line}'")
  endif()
endfunction()

# Every command works for a family of models and a layer that are not the library's, also those
# without values: dry runs and plans.
set(config ${examples}/custom_model/neighbours.toml)
run(custom_model check ${config} --grids "1,1,1,1 2,2,2,1" --steps 5)
run(custom_model check ${config} --grids "1,1,1,1 2,2,1,1" --steps 2
    --parallelism.sequence_parallel false)
run(custom_model train ${config} --dry-run --parallelism.grid 2,2,2,1 --training.dtype bf16)
run(custom_model train ${config} --neighbours.context 3 --parallelism.grid 2,1,2,1)
run(custom_model train out/neighbours/config.toml --checkpoint.resume auto --training.steps 22)
run(custom_model generate --model out/neighbours --prompt "The " --tokens 20 --grid 1,1,2,1)
run(custom_model plan ${config} --devices 8 --machine frontier)
run(custom_model train ${config} --output.dir bf16 --training.steps 2 --training.dtype bf16)
expect_stored(out/neighbours/checkpoints/step-22 "context = 3")

# Every command works for an optimizer that is not the library's, and the program axonn runs the
# model that it trained.
run(custom_optimizer loop)
set(config ${examples}/custom_optimizer/signum.toml)
set(out --output.dir signum)
run(custom_optimizer check ${config} --grids "1,1,1,1 2,2,1,1" --steps 2)
run(custom_optimizer train ${config} ${out} --dry-run --training.dtype bf16)
run(custom_optimizer train ${config} ${out} --parallelism.grid 2,1,2,1)
run(custom_optimizer train signum/config.toml --checkpoint.resume auto --training.steps 22)
run(custom_optimizer plan ${config} --devices 8 --machine frontier)
expect_stored(signum/checkpoints/step-22 "beta = 0.95")
step(${CMAKE_COMMAND} -E chdir ${WORK}/run ${WORK}/prefix/bin/axonn generate
     --model signum/checkpoints --prompt "The " --tokens 20)
