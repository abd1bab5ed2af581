#include "axonn/app/cli/info.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <iostream>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <toml++/toml.h>
#include <unistd.h>

#include "axonn/app/board/run_view.h"
#include "axonn/app/cli/command.h"
#include "axonn/app/cli/flags.h"
#include "axonn/app/serve/http.h"
#include "axonn/compute/ops/backend.h"
#include "axonn/compute/ops/cpu/instructions.h"
#include "axonn/compute/ops/cpu/matmul/blas.h"
#include "axonn/compute/ops/self_test.h"
#include "axonn/data/text/characters.h"
#include "axonn/data/text/sentencepiece/sentencepiece_tokenizer.h"
#include "axonn/data/text/unicode/properties.h"
#include "axonn/foundation/base/check.h"
#include "axonn/foundation/base/host.h"
#include "axonn/foundation/base/log.h"
#include "axonn/ranks/comm/device/nccl.h"
#include "axonn/ranks/comm/mpi/mpi.h"
#include "axonn/ranks/comm/self.h"
#include "axonn/ranks/comm/texts.h"
#include "axonn/run/load/devices.h"
#include "axonn/run/records/run_end.h"
#include "axonn/run/records/run_list.h"

namespace axonn {

namespace {

void line(std::string_view what, const std::string& value) {
  std::cout << fmt::format("{:<13} {}\n", what, value);
}

std::int64_t whole(double value) { return std::isfinite(value) ? std::llround(value) : 0; }

/// The run in a folder as it stands now.
RunView read_run(const std::string& folder, std::time_t now) {
  RunView run(folder, folder);
  while (run.read(1, now)) {
  }
  return run;
}

/// A line for each run: where it is, its state, its step and its losses.
void list_runs(const std::vector<std::string>& folders, std::time_t now) {
  std::size_t width = 3;
  for (const std::string& folder : folders) width = std::max(width, folder.size());
  const auto number = [](double value) {
    return std::isnan(value) ? std::string("-") : fmt::format("{:.4f}", value);
  };
  std::cout << fmt::format("{:<{}}  {:<8} {:>17} {:>9} {:>9} {:>9}\n", "run", width, "state",
                           "step", "loss", "val. loss", "best");
  for (const std::string& folder : folders) {
    const RunView run = read_run(folder, now);
    const RunRows& rows = run.rows();
    const bool any = rows.rows() > 0;
    const std::string step = concat(any ? format_count(rows.last().step) : "0", "/",
                                    run.steps() > 0 ? format_count(run.steps()) : "?");
    std::cout << fmt::format("{:<{}}  {:<8} {:>17} {:>9} {:>9} {:>9}\n", folder, width,
                             name_of(run.state()), step, any ? number(rows.last_of("loss")) : "-",
                             any ? number(rows.last_of("val_loss")) : "-",
                             any ? number(rows.best_validation()) : "-");
  }
}

/// How the run in a folder stands, or the runs below it. Throws UsageError if there is none.
void describe_runs(const std::string& folder) {
  const std::time_t now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  if (!is_run_folder(folder) && read_run_process(folder).text.empty())
    return list_runs(need_runs({folder}), now);
  const RunView run = read_run(folder, now);
  const RunRows& rows = run.rows();
  line("run", folder);
  line("state", concat(name_of(run.state()), run.reason().empty() ? "" : ": ", run.reason()));
  if (rows.rows() > 0) {
    const double validation = rows.last_of("val_loss"), left = run.seconds_left();
    const std::int64_t step = rows.last().step, steps = run.steps();
    line("step",
         concat(
             format_count(step),
             steps > 0 ? fmt::format(" of {} ({}%)", format_count(steps), 100 * step / steps) : "",
             ", ", format_duration(run.seconds_since_line(now)), " ago",
             left > 0 ? concat("; ", format_duration(left), " left") : ""));
    line("loss", fmt::format("{:.4f}", rows.last_of("loss")) +
                     (std::isnan(validation) ? ""
                                             : fmt::format("; validation {:.4f}, best {:.4f}",
                                                           validation, rows.best_validation())));
    line("data", fmt::format("{} tokens", format_short_count(whole(rows.last_of("tokens")))) +
                     (std::isnan(rows.last_of("epoch"))
                          ? ""
                          : fmt::format(", epoch {:.2f}", rows.last_of("epoch"))));
    line("speed", fmt::format("{} tokens/s; {} a step on average",
                              format_count(whole(rows.last_of("tokens_per_s"))),
                              format_duration(rows.seconds() / static_cast<double>(rows.rows()))));
    line("lr", fmt::format("{:.2e}", rows.last_of("lr")));
  }
  line("checkpoint",
       run.checkpoints().empty() ? "none" : "step " + format_count(run.checkpoints().front()));
}

/// The GPU toolkit and libraries of the build, or "none".
std::string gpu_build(const GpuPlatform& platform, const CudaStatus& status,
                      const BuildInfo& build) {
  if (!trouble_of_build(platform, gpu_platform()).empty())
    return fmt::format("none (built without {})", platform.name);
  const std::string attention = cuda_attention_library();
  return fmt::format("{}, {}, {}, {} {}, kernels for {}", status.built_with, cuda_product_library(),
                     attention.empty() ? "no cuDNN" : attention, platform.collectives,
                     nccl_version(), build.gpu_arch);
}

}  // namespace

std::vector<std::pair<std::string_view, std::string>> gpu_lines(
    const GpuPlatform* platform, const CudaStatus& status,
    const std::function<std::string(const CudaGpu& gpu)>& trouble) {
  if (!platform) return {{"GPUs", "none: " + status.trouble}};
  std::vector<std::pair<std::string_view, std::string>> lines;
  const auto say = [&](std::string text) { lines.emplace_back(platform->device, std::move(text)); };
  if (!status.driver.empty())
    say(fmt::format("the driver supports {} up to {}", platform->name, status.driver));
  if (!status.trouble.empty()) say("no GPU: " + status.trouble);
  for (const CudaGpu& gpu : status.gpus) {
    const std::string fault = trouble(gpu);
    say(fmt::format("GPU {}: {}, {}, {} {}, {} of memory; {}", gpu.index, gpu.name,
                    gpu.architecture, gpu.multiprocessors, platform->units,
                    format_bytes(gpu.memory_bytes),
                    fault.empty() ? "passes the self-test" : "does NOT work: " + fault));
  }
  return lines;
}

std::vector<std::pair<std::string_view, std::string>> network_lines(
    NetworkFacts facts, const std::vector<NetworkAdapter>& adapters) {
  std::vector<std::pair<std::string_view, std::string>> lines;
  for (const NetworkAdapter& adapter : adapters)
    lines.emplace_back(
        "network",
        fmt::format("{}: {}, {}", adapter.name, adapter.kind,
                    adapter.bytes_per_s > 0 ? fmt::format("{:g} GB/s", adapter.bytes_per_s * 1e-9)
                                            : "speed unknown"));
  if (facts.gpu.empty()) return lines;
  const auto advice = [&](bool several) {
    facts.several_hosts = several;
    std::vector<std::string> texts;
    for (const NetworkAdvice& one : network_advice(facts))
      texts.push_back((one.kind == NetworkAdvice::Kind::refuse ? "refused: " : "") + one.text);
    return texts;
  };
  const auto has = [](const std::vector<std::string>& texts, const std::string& text) {
    return std::ranges::find(texts, text) != texts.end();
  };
  const std::vector<std::string> here = advice(false), across = advice(true);
  for (const std::string& text : here)
    lines.emplace_back("", (has(across, text) ? "" : "on one host: ") + text);
  for (const std::string& text : across)
    if (!has(here, text)) lines.emplace_back("", "on several hosts: " + text);
  return lines;
}

int run_info(const Arguments& arguments) {
  CLI::App app("Shows what this build and this machine have, or how runs stand.", "axonn info");
  app.footer(
      "Examples:\n"
      "  axonn info            include its output in bug reports\n"
      "  axonn info out/run    how that run stands, or why it ended\n"
      "  axonn info out        a line for each run in that folder");
  std::vector<std::string> runs;
  app.add_option("RUN", runs, "a run's output.dir, or a folder that holds runs");
  if (!parse_flags(app, arguments)) return 0;
  std::ranges::for_each(runs, describe_runs);
  if (!runs.empty()) return 0;
  const BuildInfo& build = build_info();
  line("axonn", fmt::format("{}, {} build for {}", build.version, build.type, machine_name()));
  line("compiler",
       fmt::format("{}, kernels for {}", build.compiler, fmt::join(cpu::kernel_sets(), ", ")));
  line("flags", std::string(build.flags));
  line("oneDNN", cpu::library_version());
  line("BLAS", cpu::blas::library().empty() ? "none" : cpu::blas::library());
  line("MPI", mpi_version());
  line("tokenizers", std::string(kUnicodeVersion));
  line("ICU", characters_library());
  line("SentencePiece", sentencepiece_library());
  line("web server", http_library());
  const CudaStatus gpus = cuda_status();
  for (const GpuPlatform& platform : {kCuda, kHip})
    line(platform.name, gpu_build(platform, gpus, build));
  line("CLI11", CLI11_VERSION);
  line("toml++", fmt::format("{}.{}.{}", TOML_LIB_MAJOR, TOML_LIB_MINOR, TOML_LIB_PATCH));
  line("fmt",
       fmt::format("{}.{}.{}", FMT_VERSION / 10000, FMT_VERSION / 100 % 100, FMT_VERSION % 100));
  line("JSON", fmt::format("{}.{}.{}", NLOHMANN_JSON_VERSION_MAJOR, NLOHMANN_JSON_VERSION_MINOR,
                           NLOHMANN_JSON_VERSION_PATCH));
  std::cout << '\n';
  line("cpu", processor_name());
  line("", fmt::format("{} cores for this process, {} online", usable_cores().size(),
                       ::sysconf(_SC_NPROCESSORS_ONLN)));
  line("", fmt::format("has {}; in use: {}{}", cpu::processor_instructions(),
                       cpu::instructions_in_use(),
                       cpu::multiplies_bf16() ? "" : "; bf16 is multiplied as f32"));
  const std::int64_t page = ::sysconf(_SC_PAGESIZE);
  line("", fmt::format("{} of memory, {} free", format_bytes(::sysconf(_SC_PHYS_PAGES) * page),
                       format_bytes(::sysconf(_SC_AVPHYS_PAGES) * page)));
  if (const double bytes = memory_without_processors(); bytes > 0)
    line("", fmt::format("of it {} in NUMA nodes without processors, such as GPUs': not counted",
                         format_bytes(bytes)));
  const auto trouble = [](const CudaGpu& gpu) {
    std::string found;
    const std::string fault = fault_of([&] { found = self_test(*make_cuda_backend(gpu.index)); });
    return fault.empty() ? found : fault;
  };
  for (const auto& [what, text] : gpu_lines(gpu_platform(), gpus, trouble)) line(what, text);
  for (const auto& [what, text] : network_lines(
           network_facts(gpus.gpus.empty() ? "" : gpus.gpus.front().name), network_adapters()))
    line(what, text);
  const DeviceChoice choice = choose_device({}, *make_self());
  line("device", concat("auto is ", kDeviceKinds[static_cast<std::size_t>(choice.device)]));
  if (!choice.remark.empty()) line("", choice.remark);
  return 0;
}

}  // namespace axonn
