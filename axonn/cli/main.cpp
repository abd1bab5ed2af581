#include <exception>
#include <iostream>

#include "axonn/base/check.h"
#include "axonn/cli/command.h"
#include "axonn/cli/launch.h"

int main(int argc, char** argv) {
  const auto report = [](const std::exception& error, int code) {
    std::cout << std::flush;
    axonn::end_launched(std::current_exception());
    std::cerr << "error: " << error.what() << std::endl;
    return code;
  };
  try {
    return axonn::run_axonn(axonn::Arguments(argv + (argc > 0 ? 1 : 0), argv + argc));
  } catch (const axonn::UsageError& error) {
    return report(error, axonn::kUsageError);
  } catch (const std::exception& error) {
    return report(error, axonn::kFailed);
  }
}
