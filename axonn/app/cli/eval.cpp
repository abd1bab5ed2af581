#include <algorithm>
#include <array>
#include <iostream>
#include <span>
#include <utility>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "axonn/app/cli/command.h"
#include "axonn/app/cli/flags.h"
#include "axonn/app/cli/model_flags.h"
#include "axonn/data/corpus/tokens/tokenize.h"
#include "axonn/foundation/base/check.h"
#include "axonn/foundation/base/clock.h"
#include "axonn/foundation/base/files.h"
#include "axonn/foundation/base/log.h"
#include "axonn/run/load/launch.h"
#include "axonn/use/infer/evaluate.h"
#include "axonn/use/infer/multiple_choice.h"

namespace axonn {

namespace {

constexpr const char* kEvalExamples =
    R"(Reads the text in consecutive windows of --seq-len inputs and as many targets. Every token
but the first is a target exactly once. docs/evaluation.md has the definitions.

Examples:
  axonn eval --model out/quickstart/checkpoints --data book.txt --seq-len 256 --json scores.json
  axonn eval --model Llama-3.2-1B/ --data book.txt --seq-len 2048 --dtype bf16 --grid 2,1,1,1
  axonn eval --model out/checkpoints/step-200 --data tokens.bin --seq-len 1024
  axonn eval --model out/laptop-chat --data chats.jsonl
  axonn eval --model Llama-3.2-1B/ --choices questions.jsonl --json answers.json
      lines of {"question": text, "choices": [text, ...], "answer": index, letter or text})";

struct EvalFlags : ModelFlags {
  std::string data, choices, json, chat_template, chat_template_args;
  std::optional<DocumentMode> documents;
  std::int64_t seq_len = 0, batch = 0;
  KeptForm kept;
};

void add_eval_flags(CLI::App& app, EvalFlags& flags) {
  add_model_flags(app, flags);
  auto* data =
      app.add_option("--data", flags.data,
                     "a file of text or JSON lines, also compressed, or a token file of llm.c "
                     "or Megatron; of conversations the answers are scored");
  data->type_name("FILE");
  app.add_option("--choices", flags.choices, "instead: multiple-choice questions")
      ->type_name("FILE.jsonl")
      ->excludes(data);
  app.add_option("--seq-len", flags.seq_len,
                 "inputs per window; default: as the model was trained, else 1,024")
      ->check(count_from(1))
      ->needs(data);
  app.add_option("--context-ranks", flags.context,
                 "neighbours along z that share sequences, for long ones; divides the grid's z")
      ->check(count_from(1))
      ->capture_default_str();
  add_choice_flag(
      app, "--document-mode", kDocumentModes,
      [&flags](int i) { flags.documents = static_cast<DocumentMode>(i); },
      "what the documents of a window are to each other, as data.documents; default: as the model "
      "was trained, else joined")
      ->needs(data);
  app.add_option("--chat-template", flags.chat_template,
                 "for conversations: as data.chat_template; default: as the model was trained")
      ->needs(data);
  app.add_option("--chat-template-args", flags.chat_template_args,
                 "variables of the template, such as '{\"enable_thinking\": false}'")
      ->type_name("JSON")
      ->needs(data);
  app.add_option("--batch", flags.batch,
                 "windows or choices that each (z, data) coordinate computes at a time")
      ->check(count_from(1));
  add_kv_cache_flag(app, flags.kept);
  app.add_option("--json", flags.json, "also write the results to this file")->type_name("FILE");
}

std::int64_t seq_len_of(const LoadedModel& loaded, const EvalFlags& flags) {
  if (flags.seq_len > 0) return flags.seq_len;
  const std::int64_t trained = loaded.config().training.seq_len;
  return std::min<std::int64_t>(trained > 0 ? trained : 1024, loaded.config().model.positions);
}

using Json = nlohmann::ordered_json;

Json or_null(const auto& value) { return value ? Json(*value) : Json(); }

/// Writes the results, if the flags ask for them, with the settings of the evaluation.
void write_json(const EvalFlags& flags, Json json, const LoadedModel& loaded, double seconds) {
  json["dtype"] = name_of(loaded.config().training.dtype);
  json["grid"] = to_string(loaded.grid().shape());
  json["seconds"] = seconds;
  if (!flags.json.empty()) write_file_atomically(flags.json, json.dump(2) + "\n");
}

/// Sequences per (z, data) coordinate at a time.
std::int64_t batch_of(const EvalFlags& flags, const Grid& grid, std::int64_t length,
                      std::int64_t count) {
  return flags.batch > 0 ? flags.batch : usual_batch(grid, length, count);
}

void score_text(LoadedModel& loaded, const EvaluationText& text, const EvalFlags& flags) {
  const std::int64_t seq_len = seq_len_of(loaded, flags);
  const std::int64_t windows = evaluation_windows(text, seq_len);
  const double begin = now_seconds();
  ProgressLine line(loaded.progress(), "scoring", "windows");
  const TextScore score = evaluate(loaded, text, seq_len,
                                   {.batch = batch_of(flags, loaded.grid(), seq_len, windows),
                                    .report = [&](std::int64_t done) { line(done, windows); },
                                    .kept = flags.kept});
  if (loaded.grid().world().rank() != 0) return;
  line.clear();
  const double seconds = now_seconds() - begin,
               tokens_per_s = static_cast<double>(score.tokens) / seconds;
  const auto bits = score.bits_per_byte();
  std::cout << fmt::format("loss            {:.6f}\nperplexity      {:.4f}\nbits per byte   {}\n",
                           score.loss(), score.perplexity(),
                           bits          ? fmt::format("{:.6f}", *bits)
                           : text.tokens ? "unknown (no tokenizer)"
                                         : "not for conversations")
            << fmt::format("tokens          {}{}, {} a second\n", format_count(score.tokens),
                           score.bytes ? " of " + format_count(*score.bytes) + " bytes" : "",
                           format_count(static_cast<std::int64_t>(tokens_per_s)));
  write_json(flags,
             {{"loss", score.loss()},
              {"perplexity", score.perplexity()},
              {"bits_per_byte", or_null(bits)},
              {"tokens", score.tokens},
              {"bytes", or_null(score.bytes)},
              {"seq_len", seq_len},
              {"documents", kDocumentModes[static_cast<int>(text.documents.mode)]},
              {"tokens_per_s", tokens_per_s}},
             loaded, seconds);
}

/// The accuracies by the names of lm-evaluation-harness.
std::array<std::pair<const char*, Accuracy>, 3> accuracies_of(const ChoiceReport& report) {
  return {{{"acc", report.accuracy},
           {"acc_norm", report.accuracy_by_character},
           {"acc_bytes", report.accuracy_by_byte}}};
}

Json to_json(const ChoiceReport& report, std::span<const ChoiceQuestion> questions) {
  Json each = Json::array();
  for (std::size_t q = 0; q < questions.size(); ++q) {
    const ChoiceScore& score = report.questions[q];
    each.push_back({{"answer", questions[q].answer},
                    {"chosen", score.chosen},
                    {"chosen_norm", score.chosen_by_character},
                    {"chosen_bytes", score.chosen_by_byte},
                    {"log_likelihoods", score.log_likelihoods},
                    {"greedy", score.greedy}});
  }
  Json json;
  for (const auto& [name, accuracy] : accuracies_of(report)) {
    json[name] = accuracy.share;
    json[concat(name, "_stderr")] = accuracy.error;
  }
  json["count"] = questions.size();
  json["questions"] = std::move(each);
  return json;
}

void score_choices(LoadedModel& loaded, std::span<const ChoiceQuestion> questions,
                   const Tokenizer& tokenizer, const EvalFlags& flags) {
  std::int64_t count = 0;
  for (const ChoiceQuestion& question : questions) count += std::ssize(question.choices);
  constexpr std::int64_t kUsualLength = 64;
  const double begin = now_seconds();
  ProgressLine line(loaded.progress(), "scoring", "choices");
  const ChoiceReport report =
      evaluate_choices(loaded, questions, tokenizer,
                       {.batch = batch_of(flags, loaded.grid(), kUsualLength, count),
                        .report = [&](std::int64_t done) { line(done, count); },
                        .kept = flags.kept});
  if (loaded.grid().world().rank() != 0) return;
  line.clear();
  std::cout << fmt::format("questions       {}\n", format_count(std::ssize(questions)));
  for (const auto& [name, accuracy] : accuracies_of(report))
    std::cout << fmt::format("{:<15} {:.4f} +- {:.4f}\n", name, accuracy.share, accuracy.error);
  write_json(flags, to_json(report, questions), loaded, now_seconds() - begin);
}

}  // namespace

int run_eval(const Arguments& arguments) {
  EvalFlags flags;
  CLI::App app("Evaluates how well a model predicts a text or answers multiple-choice questions.",
               "axonn eval");
  app.footer(kEvalExamples);
  add_eval_flags(app, flags);
  if (!parse_flags(app, arguments)) return 0;
  if (flags.model.empty()) refuse("axonn eval: no model; give one with --model DIR");
  if (flags.data.empty() == flags.choices.empty())
    refuse("axonn eval: give either --data FILE or --choices FILE.jsonl");

  Config config = open_model(flags);
  NamedPaths inputs = inputs_of(flags, config);
  inputs.push_back({"--data", flags.data});
  inputs.push_back({"--choices", flags.choices});
  claim_result({"--json", flags.json}, inputs, kBeginsJson);
  if (!flags.data.empty()) {
    config.data.documents = flags.documents.value_or(config.data.documents);
    if (!flags.chat_template.empty()) config.data.chat_template = flags.chat_template;
    if (!flags.chat_template_args.empty())
      config.data.chat_template_args = flags.chat_template_args;
    const auto tokenizer = tokenizer_of(config, flags);
    const EvaluationText text = [&] {
      ProgressLine line(speaks_for_all() ? progress_of(config) : ProgressTarget{}, kTokenizing);
      return open_evaluation_text(flags.data, tokenizer, config.model.vocab, config.data,
                                  report_to(line));
    }();
    if (!text.tokens && flags.documents)
      refuse("--document-mode is for texts; the answers of conversations are scored one by one");
    if (text.tokens && !(flags.chat_template.empty() && flags.chat_template_args.empty()))
      refuse("--chat-template is for conversations; ", flags.data, " holds none");
    with_model(config, [&](LoadedModel& loaded) { score_text(loaded, text, flags); });
    return 0;
  }
  const auto tokenizer = need_tokenizer(config, flags);
  const auto questions = read_choice_questions(flags.choices);
  with_model(config,
             [&](LoadedModel& loaded) { score_choices(loaded, questions, *tokenizer, flags); });
  return 0;
}

}  // namespace axonn
