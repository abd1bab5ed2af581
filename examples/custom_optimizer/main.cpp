// The program axonn with one more optimizer; `custom_optimizer loop` is a training loop of its own.
#include <string_view>

#include "lion.h"
#include "loop.h"

int main(int argc, char** argv) {
  register_lion();
  if (argc == 2 && std::string_view(argv[1]) == "loop") return run_loop();
  return axonn::run_program(argc, argv);
}
