#pragma once

namespace axonn {

/// The program `axonn`: runs the command that the arguments name, prints errors, and returns the
/// exit code of main(). A program of your own calls register_architecture() first, and then has
/// every command for its family of models.
int run_program(int argc, char** argv);

}  // namespace axonn
