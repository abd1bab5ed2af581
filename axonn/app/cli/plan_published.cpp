#include <algorithm>
#include <cmath>
#include <iostream>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "axonn/app/cli/command.h"
#include "axonn/app/cli/flags.h"
#include "axonn/foundation/base/host.h"
#include "axonn/plan/planner/published/published.h"

namespace axonn {

int run_published_plans(const Arguments& given) {
  CLI::App app("Compares predicted steps with those that other trainers published.",
               "axonn plan --published");
  std::string file;
  bool searches = true;
  app.add_option("--published", file, "a file of steps instead of those that come with axonn")
      ->expected(0, 1)
      ->type_name("[FILE]");
  app.add_flag("!--without-search", searches, "do not look for the best grid of each step");
  if (!parse_flags(app, given)) return 0;
  const PublishedSteps all = read_published_steps(file);
  keep_freed_memory();  // recordings of dry steps, thousands of times
  std::cout << table_head() << std::flush;
  double mean = 0, bias = 0, worst = 0;
  for (const PublishedStep& step : all.steps) {
    const PredictedStep predicted = predict(all, step);
    std::cout << table_row(step, predicted) << std::flush
              << (searches ? best_cells(step, best_plan(all, step)) : " | |") << '\n'
              << std::flush;
    mean += std::abs(predicted.error) / static_cast<double>(all.steps.size());
    bias += predicted.error / static_cast<double>(all.steps.size());
    worst = std::max(worst, std::abs(predicted.error));
  }
  std::cout << fmt::format(
      "\n{} steps: mean error {:.1f} %, worst {:.1f} %; on average predicted {:.1f} % too {}.\n"
      "docs/planning-model.md says what was fitted to them.\n",
      all.steps.size(), 100 * mean, 100 * worst, 100 * std::abs(bias), bias < 0 ? "fast" : "slow");
  return 0;
}

}  // namespace axonn
