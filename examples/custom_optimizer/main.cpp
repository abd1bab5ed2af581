// The program axonn with one more optimizer; `custom_optimizer loop` is a training loop of its own.
#include <string_view>

#include "loop.h"
#include "signum.h"

int main(int argc, char** argv) {
  register_signum();
  if (argc == 2 && std::string_view(argv[1]) == "loop") return run_loop();
  return axonn::run_program(argc, argv);
}
