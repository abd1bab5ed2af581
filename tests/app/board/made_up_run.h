#pragma once

#include <filesystem>
#include <fstream>
#include <string>

#include "axonn/foundation/base/check.h"
#include "axonn/foundation/base/files.h"

namespace axonn::testing_support {

/// A line of metrics.jsonl with its end.
inline std::string step_line(std::int64_t step, const std::string& loss = "2.5",
                             const std::string& more = "") {
  return concat(R"({"step": )", step, R"(, "loss": )", loss, R"(, "tokens": )", step * 768,
                R"(, "step_ms": 100.000, "tokens_per_s": 7680.0, "mfu": null, )",
                R"("exposed_comm_ms": 3.500, "memory_bytes": 9018496)", more, "}\n");
}

/// A line of samples.jsonl with its end.
inline std::string sample_line(std::int64_t step, const std::string& prompt) {
  return concat(R"({"step": )", step, R"(, "time": 1.5, "prompt": ")", prompt,
                R"(", "text": "\u00e9 after )", step, R"(", "tokens": 3, "end": "max_tokens"})",
                "\n");
}

/// Appends to a file, as a run does.
inline void append(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::app) << text;
}

/// The folder of a run that has written this many steps of `steps`. Its process is not known.
inline std::string make_run(const std::string& folder, std::int64_t written, std::int64_t steps,
                            const std::string& lr = "0.001") {
  make_folders(folder + "/logs");
  append(folder + "/config.toml",
         concat("# Repeats this run.\n\n[training]\nsteps = ", steps,
                "\n# threads = 0  # no effect\n\n[optimizer]\nlr = ", lr, "\n"));
  for (std::int64_t step = 1; step <= written; ++step)
    append(folder + "/metrics.jsonl",
           step_line(step, concat(4.0 / static_cast<double>(step)),
                     concat(R"(, "exposed_comm_ms_by": {"z all_gather": 1.5, )",
                            R"("z reduce_scatter": 0.5, "data all_reduce": 1.5})",
                            step % 5 == 0 ? R"(, "val_loss": 1.25)" : "")));
  return folder;
}

}  // namespace axonn::testing_support
