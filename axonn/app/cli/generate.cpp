#include <algorithm>
#include <ctime>
#include <fstream>
#include <iostream>
#include <iterator>
#include <optional>

#include <CLI/CLI.hpp>
#include <fmt/chrono.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include "axonn/app/cli/command.h"
#include "axonn/app/cli/flags.h"
#include "axonn/app/cli/model_flags.h"
#include "axonn/data/text/model_text.h"
#include "axonn/foundation/base/check.h"
#include "axonn/foundation/base/files.h"
#include "axonn/foundation/base/log.h"
#include "axonn/ranks/comm/texts.h"
#include "axonn/run/load/launch.h"
#include "axonn/run/train/distillation_term.h"
#include "axonn/use/infer/generator.h"

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
  axonn generate --model Llama-3.2-1B --prompt "The town of" --beams 4 --return-sequences 2
      the two best of four texts, by beam search
  cat letter.txt | axonn generate --model Llama-3.2-1B --prompt - --stop "Yours"
      continues a file, up to a word)";

struct Request : ModelFlags {
  std::string prompts_file, json, draft;
  std::vector<std::string> prompts;
  GenerationOptions wanted{.sampling = {.temperature = 0.8}, .slides = true};
  Generator::Options generator;
  bool stop_when_full = false, gather_weights = false, stats = false;
  bool chat = false;
  std::string chat_template = "auto", chat_template_args, system;
};

/// The prompt in a line of a .jsonl file.
std::string prompt_in(const std::string& line, const std::string& place) {
  const auto object = nlohmann::json::parse(line, nullptr, false);
  if (!object.is_object())
    refuse(place, ": no JSON object; each line of a .jsonl file must be one");
  for (const char* key : {"prompt", "text"})
    if (const auto found = object.find(key); found != object.end() && found->is_string())
      return found->get<std::string>();
  refuse(place, ": neither \"prompt\" nor \"text\" is a string");
}

/// The prompts in `texts`, with "-" replaced by all of standard input, followed by those in `file`,
/// if its name is not empty. A .jsonl file has one JSON object with "prompt" or "text" per line,
/// any other file one prompt per line. Skips empty lines. Throws UsageError, naming the file and
/// the line.
std::vector<std::string> read_prompts(std::vector<std::string> texts, const std::string& file) {
  for (std::string& text : texts)
    if (text == "-")  // a launcher passes standard input to its first process only
      text = speaks_for_all() ? std::string(std::istreambuf_iterator<char>(std::cin), {}) : "";
  if (file.empty()) return texts;
  std::ifstream in(file);
  if (!in) refuse("cannot read ", file);
  const std::size_t before = texts.size();
  int number = 0;
  for (std::string line; std::getline(in, line);) {
    ++number;
    if (!line.empty() && line.back() == '\r') line.pop_back();
    if (line.empty()) continue;
    texts.push_back(file.ends_with(".jsonl") ? prompt_in(line, concat(file, ':', number)) : line);
  }
  if (in.bad()) refuse("cannot read ", file);
  if (texts.size() == before) refuse(file, " has no prompts");
  return texts;
}

std::string rate_line(const GenerationStats& stats) {
  const auto rate = [](std::int64_t tokens, double seconds) {
    return concat(format_count(tokens), " tokens in ", format_duration(seconds), ", ",
                  format_count(std::llround(static_cast<double>(tokens) / std::max(seconds, 1e-9))),
                  " tokens/s");
  };
  return concat("read ", rate(stats.prompt_tokens, stats.prompt_seconds), "; then ",
                rate(stats.tokens, stats.seconds),
                stats.drafted > 0 ? concat(", of ", format_count(stats.drafted), " drafted tokens ",
                                           format_count(stats.kept), " kept")
                                  : "");
}

nlohmann::ordered_json text_json(const Generation& result, bool scored) {
  nlohmann::ordered_json json{
      {"text", result.text}, {"tokens", result.tokens}, {"finish_reason", name_of(result.reason)}};
  if (scored) json["score"] = result.beam_score;
  return json;
}

std::string to_json(const std::vector<std::string>& prompts, const std::vector<Generation>& results,
                    const GenerationStats& stats, const BeamOptions& beams) {
  nlohmann::ordered_json all;
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    nlohmann::ordered_json one{{"prompt", prompts[i]}};
    one.update(text_json(results[i], beams.beams > 1));
    for (const Generation& other : results[i].others)
      one["others"].push_back(text_json(other, true));
    all["generations"].push_back(std::move(one));
  }
  all["tokens"] = stats.tokens;
  all["drafted_tokens"] = stats.drafted;
  all["kept_drafted_tokens"] = stats.kept;
  all["seconds"] = stats.seconds;
  all["prompt_tokens"] = stats.prompt_tokens;
  all["prompt_seconds"] = stats.prompt_seconds;
  // A model may write invalid UTF-8, which JSON cannot hold.
  return all.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + '\n';
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

/// Writes a single prompt's text as it is generated, the texts of several prompts at the end.
void write_texts(LoadedModel& loaded, const Tokenizer& tokenizer, Request request) {
  Communicator& world = loaded.grid().world();
  const std::vector<std::string> texts = broadcast_texts(world, request.prompts);
  std::vector<std::vector<std::int32_t>> prompts;
  std::int64_t longest = 0;
  for (const std::string& text : texts) {
    prompts.push_back(tokenizer.encode_prompt(text));
    if (prompts.back().empty()) refuse("--prompt is empty: give at least one character");
    longest = std::max(longest, std::ssize(prompts.back()));
  }
  // The longest sequence that can arise: a longer context would waste memory in every slot.
  const std::int64_t positions = loaded.config().model.positions, room = positions - longest;
  if (request.generator.context == 0)
    request.generator.context =
        request.wanted.max_tokens < room ? longest + request.wanted.max_tokens : positions;
  Generator generator(loaded, request.generator);
  const bool speaks = world.rank() == 0, single = texts.size() == 1;
  if (speaks && single) std::cout << texts.front() << std::flush;
  const std::vector<Generation> results = generator.generate(
      prompts, request.wanted, [&](std::size_t, std::string_view text, const Generation&) {
        if (speaks && single) std::cout << text << std::flush;
      });
  if (!speaks) return;
  if (!request.json.empty())
    write_file_atomically(request.json,
                          to_json(texts, results, generator.stats(), request.wanted.beams));
  if (single) std::cout << std::endl;
  for (std::size_t i = 0; i < texts.size(); ++i) {
    if (!single)
      std::cout << "--- " << i + 1 << " of " << texts.size() << '\n'
                << texts[i] << results[i].text << std::endl;
    for (const Generation& other : results[i].others)
      std::cout << "--- or, with a score of " << other.beam_score << " in place of "
                << results[i].beam_score << '\n'
                << texts[i] << other.text << std::endl;
  }
  say_what_happened(results, generator.context());
  if (request.stats || isatty(STDERR_FILENO) != 0)
    std::cerr << rate_line(generator.stats()) << '\n';
}

/// Reads the user's next line, for every rank; empty at the end of the input.
std::optional<std::string> next_line(Communicator& world) {
  std::vector<std::string> said;
  if (world.rank() == 0) {
    if (isatty(STDIN_FILENO) != 0) std::cout << "> " << std::flush;
    std::string line;
    while (line.empty() && std::getline(std::cin, line))
      if (!line.empty() && line.back() == '\r') line.pop_back();
    if (!line.empty()) said.push_back(line);
  }
  said = broadcast_texts(world, said);
  if (said.empty()) return {};
  return said.front();
}

/// The conversation as tokens. Drops the oldest turns until the smaller of `room` and half of the
/// context is free for the answer.
std::vector<std::int32_t> prompt_of(const ChatTemplate& form, std::vector<Message>& messages,
                                    std::int64_t context, std::int64_t room, bool& dropped) {
  const std::size_t first = messages.front().role == "system" ? 1 : 0;
  const std::int64_t most = context - std::min(room, context / 2);
  std::vector<std::int32_t> tokens = form.prompt(messages);
  while (std::ssize(tokens) > most && messages.size() > first + 1) {
    const auto oldest = messages.begin() + static_cast<std::ptrdiff_t>(first);
    messages.erase(oldest, oldest + 2);  // a question and its answer
    tokens = form.prompt(messages);
    dropped = true;
  }
  return tokens;
}

/// Holds a conversation: reads a line from standard input and writes the model's answer, until the
/// input ends. Reuses the keys and values of earlier turns; drops the oldest turns when the context
/// is full. Rank 0 reads and writes.
void converse(LoadedModel& loaded, const std::shared_ptr<const Tokenizer>& tokenizer,
              Request request) {
  constexpr std::int64_t kContext = 4096;
  if (request.generator.context == 0)
    request.generator.context = std::min(kContext, loaded.config().model.positions);
  Generator generator(loaded, request.generator);
  const DataConfig& data = loaded.config().data;
  const ModelText own = with_tokenizer(data.model_text.get(), data.tokenizer);
  ChatArguments arguments = chat_arguments(request.chat_template, request.chat_template_args, own,
                                           "--chat-template-args");
  if (request.chat_template_args.empty()) arguments.now.reset();  // that of the training
  if (!arguments.now) {  // the same on every rank, around midnight too
    const std::string today = fmt::format("{:%Y-%m-%d}", fmt::localtime(std::time(nullptr)));
    arguments.now = parse_chat_date(broadcast_texts(loaded.grid().world(), {today}).front(), "now");
  }
  const ChatTemplate form(tokenizer, find_chat_format(request.chat_template, own),
                          std::move(arguments));
  GenerationOptions& wanted = request.wanted;
  wanted.slides = false;
  const std::vector<std::int32_t>& end = form.end_of_turn();
  if (end.size() == 1)
    wanted.stop_tokens.push_back(end.front());
  else if (!end.empty())
    wanted.stop_strings.push_back(tokenizer->decode(end));

  Communicator& world = loaded.grid().world();
  const bool speaks = world.rank() == 0;
  std::vector<Message> messages;
  if (!request.system.empty()) messages.push_back({"system", request.system});
  while (const auto line = next_line(world)) {
    messages.push_back({"user", *line});
    bool dropped = false;
    const auto prompt = prompt_of(form, messages, generator.context(), wanted.max_tokens, dropped);
    if (dropped && speaks)
      std::cerr << "note: the context of " << generator.context()
                << " tokens is full; the oldest turns are dropped\n";
    const auto answer =
        generator.generate({prompt}, wanted, [&](std::size_t, auto text, const auto&) {
          if (speaks) std::cout << text << std::flush;
        });
    if (speaks) std::cout << std::endl;
    messages.push_back({"assistant", answer.front().text});
    ++wanted.seed;  // samples differently in every turn
  }
}

void add_sampling_flags(CLI::App& app, Sampling& sampling) {
  app.add_option("--temperature", sampling.temperature, "0: always the most likely token")
      ->capture_default_str()
      ->check(number_from(0, kMostTemperature));
  app.add_option("--top-k", sampling.top_k, "only the k most likely tokens; 0: all")
      ->capture_default_str()
      ->check(count_from(0));
  app.add_option("--top-p", sampling.top_p,
                 "only the most likely tokens that together have this probability; 0: only one")
      ->capture_default_str()
      ->check(number_from(0, 1));
  app.add_option("--repetition-penalty", sampling.repetition_penalty,
                 "divides the logits of earlier tokens by this; 1: no penalty")
      ->capture_default_str()
      ->check(number_from(kLeastPenalty, kMostPenalty));
}

void add_beam_flags(CLI::App& app, Request& request) {
  BeamOptions& beams = request.wanted.beams;
  app.add_option("--beams", beams.beams,
                 "beam search: continues so many texts at once, and takes the best; it draws none")
      ->capture_default_str()
      ->check(CLI::Range(std::int64_t{1}, kMostBeams));
  app.add_option("--return-sequences", beams.returned, "so many of the best texts of a beam search")
      ->capture_default_str()
      ->check(CLI::Range(std::int64_t{1}, kMostBeams));
  app.add_option("--length-penalty", beams.length_penalty,
                 "scores of a beam search are divided by the length to this power")
      ->capture_default_str()
      ->check(number_from(-kMostLengthPenalty, kMostLengthPenalty));
  add_choice_flag(app, "--early-stopping", beams.early_stopping, kEarlyStoppings,
                  "when as many texts have ended as there are beams: true ends the search, false "
                  "goes on while a text could be better at its length so far, never at any length");
}

/// A beam search draws no tokens, and ends where the context is full.
void set_beams(const CLI::App& app, Request& request) {
  GenerationOptions& wanted = request.wanted;
  if (wanted.beams == BeamOptions()) return;
  if (request.chat) refuse("--chat shows an answer as it comes; --beams finds it at the end");
  if (wanted.beams.returned > wanted.beams.beams)
    refuse("--return-sequences ", wanted.beams.returned, " wants at least as many --beams");
  if (app.get_option("--temperature")->empty()) wanted.sampling.temperature = 0;
  if (wanted.sampling.temperature > 0)
    refuse("--temperature: a beam search draws no tokens; leave it out");
  wanted.slides = false;
}

void add_generate_flags(CLI::App& app, Request& request) {
  add_model_flags(app, request);
  app.get_option("--model")->required();
  app.add_option("--prompt", request.prompts,
                 "text to continue; may be given several times; -: standard input; not with --chat")
      ->allow_extra_args(false);
  const auto prompts =
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
  app.add_option("--min-tokens", request.wanted.min_tokens, "no end before so many tokens")
      ->capture_default_str()
      ->check(count_from(0));
  add_beam_flags(app, request);
  app.add_option("--seed", request.wanted.seed, "a different seed gives a different text")
      ->capture_default_str();
  app.add_option("--batch", request.generator.batch,
                 "prompts at a time per (z, data) coordinate; 0: what fits in 1 GiB, at most 64")
      ->check(count_from(0));
  app.add_option("--context", request.generator.context,
                 "most tokens that the model sees at once; 0: as needed, with --chat at most 4,096")
      ->check(count_from(0));
  app.add_flag("--stop-when-full", request.stop_when_full,
               "end when the context is full, instead of continuing from its last half");
  add_draft_flags(app, request.generator.drafts, request.draft);
  add_integer_products_flag(app, request.generator.integer_products);
  add_kv_cache_flag(app, request.generator.kept);
  app.add_flag("--gather-weights", request.gather_weights,
               "gather weights over z for every token instead of once: slow, but needs only 1/z of "
               "their memory");
  app.add_flag("--stats", request.stats, "print tokens/s even if stderr is not a terminal");
  const auto chatting =
      app.add_flag("--chat", request.chat, "hold a conversation: read a line, answer, repeat")
          ->excludes(prompts);
  app.add_option("--chat-template", request.chat_template,
                 concat("auto (the model's own), a .jinja file, ", kChatTemplates))
      ->needs(chatting);
  app.add_option("--chat-template-args", request.chat_template_args,
                 "variables of the template, such as '{\"enable_thinking\": false}'")
      ->type_name("JSON")
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
  if (request.chat && !request.prompts.empty())
    refuse("--chat reads what is typed; --prompt excludes it: pipe the text to --chat instead");
  if (request.prompts.empty() && request.prompts_file.empty()) request.prompts = {"\n"};
  request.prompts = read_prompts(request.prompts, request.prompts_file);
  request.wanted.slides = !request.stop_when_full;
  set_beams(app, request);
  request.generator.hold_weights = !request.gather_weights;

  Config config = open_model(request);
  NamedPaths inputs = inputs_of(request, config);
  inputs.push_back({"--prompts", request.prompts_file});
  inputs.push_back({"--draft", request.draft});
  claim_result({"--json", request.json}, inputs, kBeginsJson);
  if (request.chat) config.parallelism.timeout_seconds = kWhileSomebodyTypes;
  const auto tokenizer = need_tokenizer(config, request);
  request.generator.tokenizer = tokenizer.get();
  request.wanted.stop_tokens =
      stop_tokens(with_tokenizer(config.data.model_text.get(), config.data.tokenizer), *tokenizer);
  with_model(config, [&](LoadedModel& loaded) {
    const auto draft = load_beside(loaded, {.path = request.draft, .key = "--draft"},
                                   loaded.grid().world(), tokenizer.get());
    Request mine = request;
    mine.generator.draft_model = draft.get();
    if (request.chat)
      converse(loaded, tokenizer, std::move(mine));
    else
      write_texts(loaded, *tokenizer, std::move(mine));
  });
  return 0;
}

}  // namespace axonn
