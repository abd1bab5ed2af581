#pragma once

#include <cstdint>
#include <ctime>
#include <string>
#include <utility>
#include <vector>

#include "axonn/data/text/jinja/jinja_program.h"

namespace axonn::jinja {

struct RenderOptions {
  /// The time that strftime_now() shows, as local time; nullptr: strftime_now() throws.
  const std::tm* now = nullptr;
  /// Of the interpreter (Session::charge()). Published templates take some thousands for each
  /// message.
  std::int64_t most_steps = 20'000'000;
};

using Variables = std::vector<std::pair<std::string, Value>>;

/// Renders a template as transformers does. Throws UsageError with the location in the template if
/// it uses a value wrongly, or exceeds a limit; and RaisedException with the template's own words
/// if it calls raise_exception(). Thread-safe.
Text render(const Program& program, const Variables& variables, const RenderOptions& options);

}  // namespace axonn::jinja
