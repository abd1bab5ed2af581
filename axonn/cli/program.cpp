#include "axonn/cli/program.h"

#include <exception>
#include <iostream>

#include "axonn/base/check.h"
#include "axonn/cli/command.h"
#include "axonn/train/launch.h"

namespace axonn {

int run_program(int argc, char** argv) {
  const auto report = [](const std::exception& error, int code) {
    std::cout << std::flush;
    end_launched(std::current_exception());
    std::cerr << "error: " << error.what() << std::endl;
    return code;
  };
  try {
    return run_axonn(Arguments(argv + (argc > 0 ? 1 : 0), argv + argc));
  } catch (const UsageError& error) {
    return report(error, kUsageError);
  } catch (const std::exception& error) {
    return report(error, kFailed);
  }
}

}  // namespace axonn
