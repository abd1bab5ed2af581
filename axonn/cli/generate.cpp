#include <fstream>
#include <iostream>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include "axonn/base/check.h"
#include "axonn/base/log.h"
#include "axonn/cli/chat.h"
#include "axonn/cli/command.h"
#include "axonn/cli/flags.h"
#include "axonn/cli/model_flags.h"
#include "axonn/cli/prompts.h"
#include "axonn/comm/texts.h"
#include "axonn/infer/generator.h"
#include "axonn/text/chat/chat_template.h"

namespace axonn {

namespace {

/// Timeout in seconds for --chat: ranks wait until rank 0 has read a line.
constexpr double kWhileSomebodyTypes = 1e8;

constexpr const char* kGenerateExamples =
    R"(Examples:
  axonn generate --model out/quickstart/checkpoints --prompt "The town of"
  axonn generate --model out/quickstart/checkpoints --tokens 500 --temperature 0
      always the most likely token
  axonn generate --model out/quickstart/checkpoints --grid 2,1,2,1
      the same text, on four ranks
  axonn generate --model Llama-3.2-1B --dtype bf16 --prompts questions.jsonl --json answers.json
      many prompts at once
  axonn generate --model Qwen3-0.6B --dtype bf16 --chat
      a conversation
  cat letter.txt | axonn generate --model Llama-3.2-1B --prompt - --stop "Yours"
      continues a file, up to a word)";

struct Request {
  std::string model, adapter, prompts_file, json, grid = "1,1,1,1", dtype;
  std::vector<std::string> prompts;
  GenerationOptions wanted{.sampling = {.temperature = 0.8}, .slides = true};
  Generator::Options generator;
  bool stop_when_full = false, gather_weights = false, stats = false;
  bool chat = false;
  std::string chat_template = "auto", system;
};

std::string rate_line(const GenerationStats& stats) {
  const auto rate = [](std::int64_t tokens, double seconds) {
    return concat(format_count(tokens), " tokens in ", format_duration(seconds), ", ",
                  format_count(std::llround(static_cast<double>(tokens) / std::max(seconds, 1e-9))),
                  " tokens/s");
  };
  return concat("read ", rate(stats.prompt_tokens, stats.prompt_seconds), "; then ",
                rate(stats.tokens, stats.seconds));
}

void write_json(const std::string& file, const std::vector<std::string>& prompts,
                const std::vector<Generation>& results, const GenerationStats& stats) {
  nlohmann::ordered_json all;
  for (std::size_t i = 0; i < prompts.size(); ++i)
    all["generations"].push_back({{"prompt", prompts[i]},
                                  {"text", results[i].text},
                                  {"tokens", results[i].tokens},
                                  {"finish_reason", name_of(results[i].reason)}});
  all["tokens"] = stats.tokens;
  all["seconds"] = stats.seconds;
  all["prompt_tokens"] = stats.prompt_tokens;
  all["prompt_seconds"] = stats.prompt_seconds;
  std::ofstream out(file);
  // A model may write invalid UTF-8, which JSON cannot hold.
  out << all.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) << '\n';
  if (!out.flush()) refuse("--json: cannot write ", file);
}

/// Notes on stderr where the context was full, which the texts do not show.
void say_what_happened(const std::vector<Generation>& results, std::int64_t context) {
  const auto count = [&](auto has) { return std::ranges::count_if(results, has); };
  const auto full =
      count([](const Generation& one) { return one.reason == FinishReason::context; });
  const auto slid = count([](const Generation& one) { return one.slid; });
  if (full > 0)
    std::cerr << "note: " << full << " of " << results.size() << " ended because the context of "
              << context << " tokens was full\n";
  if (slid > 0)
    std::cerr << "note: " << slid << " of " << results.size() << " filled the context of "
              << context << " tokens and continued from its last half\n";
}

/// Prints the texts, on rank 0: a single prompt's text as it is generated, the texts of several
/// prompts one after another at the end.
class Output {
 public:
  explicit Output(const std::vector<std::string>& prompts)
      : prompts_(prompts), texts_(prompts.size()) {
    if (prompts.size() == 1) std::cout << prompts.front() << std::flush;
  }

  void add(std::size_t prompt, std::string_view text) {
    if (prompts_.size() == 1)
      std::cout << text << std::flush;
    else
      texts_[prompt] += text;
  }
  void finish() {
    if (prompts_.size() == 1) std::cout << std::endl;
    for (std::size_t i = 0; i < prompts_.size() && prompts_.size() > 1; ++i)
      std::cout << "--- " << i + 1 << " of " << prompts_.size() << '\n'
                << prompts_[i] << texts_[i] << std::endl;
  }

 private:
  const std::vector<std::string>& prompts_;
  std::vector<std::string> texts_;
};

/// The longest sequence that can arise. A longer context would waste memory in every slot.
std::int64_t context_for(const std::vector<std::vector<std::int32_t>>& prompts,
                         std::int64_t max_tokens, std::int64_t positions) {
  std::size_t longest = 0;
  for (const auto& prompt : prompts) longest = std::max(longest, prompt.size());
  return std::min(positions, static_cast<std::int64_t>(longest) + max_tokens);
}

void write_texts(LoadedModel& loaded, const Tokenizer& tokenizer, Request request) {
  Communicator& world = loaded.grid().world();
  const std::vector<std::string> texts = broadcast_texts(world, request.prompts);
  std::vector<std::vector<std::int32_t>> prompts;
  for (const std::string& text : texts) {
    prompts.push_back(tokenizer.encode_prompt(text));
    if (prompts.back().empty()) refuse("--prompt is empty: give at least one character");
  }
  if (request.generator.context == 0)
    request.generator.context =
        context_for(prompts, request.wanted.max_tokens, loaded.config().model.positions);
  Generator generator(loaded, request.generator);
  if (world.rank() != 0) {
    generator.generate(prompts, request.wanted);
    return;
  }
  Output output(texts);
  const std::vector<Generation> results = generator.generate(
      prompts, request.wanted,
      [&](std::size_t prompt, std::string_view text) { output.add(prompt, text); });
  output.finish();
  say_what_happened(results, generator.context());
  if (request.stats || isatty(STDERR_FILENO) != 0)
    std::cerr << rate_line(generator.stats()) << '\n';
  if (!request.json.empty()) write_json(request.json, texts, results, generator.stats());
}

void converse(LoadedModel& loaded, std::shared_ptr<const Tokenizer> tokenizer, Request request) {
  constexpr std::int64_t kContext = 4096;
  if (request.generator.context == 0)
    request.generator.context = std::min(kContext, loaded.config().model.positions);
  request.wanted.slides = false;
  Generator generator(loaded, request.generator);
  chat(loaded.grid().world(), generator,
       {.format = request.chat_template,
        .tokenizer_path = loaded.config().data.tokenizer,
        .tokenizer = std::move(tokenizer),
        .system = request.system,
        .wanted = request.wanted});
}

void generate(LoadedModel& loaded, std::shared_ptr<const Tokenizer> tokenizer, Request request) {
  request.generator.tokenizer = tokenizer.get();
  if (const auto end = tokenizer->end_of_text()) request.wanted.stop_tokens.push_back(*end);
  if (request.chat)
    converse(loaded, std::move(tokenizer), std::move(request));
  else
    write_texts(loaded, *tokenizer, std::move(request));
}

void add_sampling_flags(CLI::App& app, Sampling& sampling) {
  app.add_option("--temperature", sampling.temperature, "0: always the most likely token")
      ->capture_default_str()
      ->check(CLI::NonNegativeNumber);
  app.add_option("--top-k", sampling.top_k, "only the k most likely tokens; 0: all")
      ->capture_default_str()
      ->check(CLI::NonNegativeNumber);
  app.add_option("--top-p", sampling.top_p,
                 "only the most likely tokens that together have this probability")
      ->capture_default_str()
      ->check(CLI::Range(1e-6, 1.0));
  app.add_option("--repetition-penalty", sampling.repetition_penalty,
                 "divides the logits of earlier tokens by this; 1: no penalty")
      ->capture_default_str()
      ->check(CLI::Range(1e-3, 1e3));
}

void add_generate_flags(CLI::App& app, Request& request) {
  app.add_option("--model", request.model,
                 "a checkpoint, the folder of several (the newest), or a Hugging Face folder")
      ->required()
      ->type_name("DIR");
  app.add_option("--adapter", request.adapter,
                 "adapters of that model: a PEFT folder or a checkpoint of adapters")
      ->type_name("DIR");
  app.add_option("--prompt", request.prompts,
                 "text to continue; may be given several times; -: standard input")
      ->allow_extra_args(false);
  app.add_option("--prompts", request.prompts_file,
                 "one prompt per line; in a .jsonl file, objects with \"prompt\" or \"text\"")
      ->type_name("FILE");
  app.add_option("--tokens", request.wanted.max_tokens, "most tokens to generate per prompt")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  add_sampling_flags(app, request.wanted.sampling);
  app.add_option("--stop", request.wanted.stop_strings,
                 "end before this text; may be given several times")
      ->allow_extra_args(false);
  app.add_option("--seed", request.wanted.seed, "a different seed gives a different text")
      ->capture_default_str();
  app.add_option("--grid", request.grid, "x,y,z,data")->capture_default_str();
  app.add_option("--dtype", request.dtype,
                 "f32 or bf16; default: as the model was trained, f32 for folders")
      ->check(CLI::IsMember({"f32", "bf16"}));
  app.add_option("--batch", request.generator.batch,
                 "prompts at a time per (z, data) coordinate; 0: what fits in 1 GiB, at most 64")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--context", request.generator.context,
                 "most tokens that the model sees at once; 0: as needed, with --chat at most 4,096")
      ->check(CLI::NonNegativeNumber);
  app.add_flag("--stop-when-full", request.stop_when_full,
               "end when the context is full, instead of continuing from its last half");
  app.add_flag("--gather-weights", request.gather_weights,
               "gather weights over z for every token instead of once: slow, but needs only 1/z of "
               "their memory");
  app.add_flag("--stats", request.stats, "print tokens/s even if stderr is not a terminal");
  const auto chatting =
      app.add_flag("--chat", request.chat, "hold a conversation: read a line, answer, repeat");
  app.add_option("--chat-template", request.chat_template,
                 concat("auto (the model's own), ", kChatTemplates))
      ->needs(chatting);
  app.add_option("--system", request.system, "the system message")->needs(chatting);
  app.add_option("--json", request.json, "write texts, tokens and times to this file")
      ->type_name("FILE");
}

}  // namespace

int run_generate(const Arguments& arguments) {
  Request request;
  CLI::App app("Generates text with a model.", "axonn generate");
  app.footer(kGenerateExamples);
  add_generate_flags(app, request);
  if (!parse_flags(app, arguments)) return 0;
  if (request.prompts.empty() && request.prompts_file.empty()) request.prompts = {"\n"};
  request.prompts = read_prompts(request.prompts, request.prompts_file);
  request.wanted.slides = !request.stop_when_full;
  request.generator.hold_weights = !request.gather_weights;

  Config config = open_model(request.model, request.adapter);
  if (!request.dtype.empty())
    config.training.dtype = request.dtype == "bf16" ? DType::bf16 : DType::f32;
  config.parallelism.set_grid(parse_grid(request.grid));
  if (request.chat) config.parallelism.timeout_seconds = kWhileSomebodyTypes;
  if (config.data.tokenizer.empty())
    refuse("the model has no tokenizer, which text needs: it was trained on token files");
  const std::shared_ptr<const Tokenizer> tokenizer = make_tokenizer(config.data.tokenizer);
  if (config.model.vocab == 0) config.model.vocab = tokenizer->vocab_size();
  with_model(config, [&](LoadedModel& loaded) { generate(loaded, tokenizer, request); });
  return 0;
}

}  // namespace axonn
