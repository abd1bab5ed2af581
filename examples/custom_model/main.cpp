// The program axonn, with one more family of models.
#include <axonn/axonn.h>

#include "neighbours.h"

int main(int argc, char** argv) {
  axonn::register_architecture(
      {.name = "neighbours",
       .help = "Predicts a byte from the bytes before it",
       .keys = {{.name = "context", .value = 4, .help = "bytes that it sees"}},
       .make = [](const axonn::ModelConfig& config, const axonn::Grid& grid) {
         return std::make_unique<Neighbours>(config, grid);
       }});
  return axonn::run_program(argc, argv);
}
