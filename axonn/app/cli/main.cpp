#include "axonn/app/cli/program.h"

int main(int argc, char** argv) { return axonn::run_program(argc, argv); }
