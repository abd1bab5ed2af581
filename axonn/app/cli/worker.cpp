#include "axonn/app/worker/worker.h"

#include <iostream>

#include <CLI/CLI.hpp>

#include "axonn/app/cli/command.h"
#include "axonn/app/cli/model_flags.h"
#include "axonn/data/text/model_text.h"
#include "axonn/foundation/base/check.h"

namespace axonn {

namespace {

constexpr const char* kWorkerExamples =
    R"(The Python package starts it (docs/python.md). It ends when its standard input does.

Examples:
  axonn worker --model out/quickstart/checkpoints
  axonn worker --tokenizer Qwen3-0.6B
      without a model: only calls of text)";

/// Ranks wait until a call comes.
constexpr double kWhileNobodyCalls = 1e8;

struct WorkerFlags : ModelFlags {
  ChatFlags chat;
};

/// The texts of a model with the tokenizer of the flags or its own, which may be unknown.
ServedModel text_of(const WorkerFlags& flags, Config& config, const ModelText* own) {
  ServedModel served;
  served.tokenizer = tokenizer_of(config, flags);
  if (!served.tokenizer) return served;
  const ModelText text = with_tokenizer(own, config.data.tokenizer);
  served.chat = chat_of(flags.chat, served.tokenizer, text);
  served.stop_tokens = text.ends;
  return served;
}

}  // namespace

int run_worker(const Arguments& arguments) {
  WorkerFlags flags;
  CLI::App app("Answers calls of the program that started it, on standard input and output.",
               "axonn worker");
  app.footer(kWorkerExamples);
  add_model_flags(app, flags);
  add_chat_flags(app, flags.chat);
  if (!parse_flags(app, arguments)) return 0;
  if (flags.model.empty()) {
    if (flags.tokenizer.empty()) refuse("axonn worker: give --model DIR or --tokenizer DIR");
    Config config;
    answer_calls({.served = text_of(flags, config, nullptr)}, std::cin, std::cout);
    return 0;
  }
  Config config = open_model(flags);
  config.parallelism.timeout_seconds = kWhileNobodyCalls;
  const ServedModel served = text_of(flags, config, config.data.model_text.get());
  if (served.tokenizer) check_rows(*served.tokenizer, config.model.vocab);
  with_model(config, [&](LoadedModel& loaded) {
    answer_calls({.served = served, .loaded = &loaded}, std::cin, std::cout);
  });
  return 0;
}

}  // namespace axonn
