#pragma once

namespace axonn {

/// The program `axonn`: runs the command that the arguments name, prints errors, and returns the
/// exit code of main(): 0, 1 for errors, 2 for usage errors, 75 if a signal stopped a run that can
/// be resumed. A program of your own calls register_architecture() and register_optimizer() first,
/// and then has every command for its families of models and its optimizers.
int run_program(int argc, char** argv);

}  // namespace axonn
