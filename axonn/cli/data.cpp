#include <fstream>
#include <iostream>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "axonn/base/check.h"
#include "axonn/base/clock.h"
#include "axonn/base/log.h"
#include "axonn/cli/command.h"
#include "axonn/cli/flags.h"
#include "axonn/data/corpus.h"
#include "axonn/data/show.h"
#include "axonn/data/synthetic.h"
#include "axonn/data/synthetic_records.h"
#include "axonn/data/tokenize.h"

namespace axonn {

namespace {

constexpr const char* kHelp =
    R"(axonn data COMMAND: token files and text to make them from.

  tokenize   text to a token file: llm.c's format (FILE.bin), else Megatron's (PREFIX.bin, .idx)
  show       what is in a token file, or what training makes of a JSONL file
  synthetic  readable text with facts in it, of any size

axonn data COMMAND --help explains one.

Examples:
  axonn data tokenize --tokenizer bytes --text book.txt --output book.bin
  axonn data tokenize --tokenizer gpt2/ --text corpus/ --output corpus.bin
  axonn data show book.bin --tokenizer bytes
  axonn data show chats.jsonl --tokenizer llama/ --seq-len 4096
  axonn data synthetic --bytes 10000000 --output facts.txt
  axonn data synthetic --conversations 2000 --output chats.jsonl
  axonn data synthetic --records 800 --output register.jsonl
)";

int tokenize_command(const Arguments& arguments) {
  TokenizeJob job{.tokenizer = "bytes"};
  CLI::App app("Turns text into a token file.", "axonn data tokenize");
  app.add_option("--tokenizer", job.tokenizer, "bytes, or a folder or file of a tokenizer")
      ->capture_default_str();
  app.add_option("--text", job.text, "files, or folders of *.txt")->required();
  app.add_option("--output", job.output, "FILE.bin: llm.c's format; else a prefix: Megatron's")
      ->required();
  if (!parse_flags(app, arguments)) return 0;
  const double start = now_seconds();
  const bool redraw = stdout_is_interactive();
  const auto line = [&](const TokenizeProgress& p) {
    return fmt::format("tokenizing {} of {}, {} tokens, {}/s", format_bytes(p.bytes),
                       format_bytes(p.total_bytes), format_count(p.tokens),
                       format_bytes(static_cast<std::int64_t>(static_cast<double>(p.bytes) /
                                                              (now_seconds() - start))));
  };
  const auto report = [&](const TokenizeProgress& p) {
    if (redraw) std::cout << '\r' << line(p) << std::flush;
  };
  const TokenizeProgress done = tokenize_files(job, {.report = report});
  std::cout << (redraw ? "\r" : "") << line(done) << '\n' << "wrote " << job.output << '\n';
  return 0;
}

/// What training makes of a JSONL file.
std::string show_examples(const DataConfig& data, std::int64_t seq_len, std::int64_t sequence) {
  const Corpus corpus = open_corpus(data, {});
  const PackedDocuments packed(corpus.train_documents, seq_len, 0);
  return describe(packed, seq_len, {.tokenizer = corpus.tokenizer.get(), .sequence = sequence});
}

int show_command(const Arguments& arguments) {
  std::string file, tokenizer_name;
  DataConfig examples{.validation = ""};
  std::int64_t seq_len = 1024, sequence = 0;
  ShowOptions options;
  CLI::App app("Says what is in a token file, or what training makes of a JSONL file.",
               "axonn data show");
  app.add_option("FILE", file, "llm.c's FILE.bin, the prefix of Megatron's, or FILE.jsonl")
      ->required();
  app.add_option("--tokenizer", tokenizer_name,
                 "shows the first tokens as text too; for JSONL the model's, or bytes");
  app.add_option("--first", options.first, "how many tokens to show")
      ->capture_default_str()
      ->check(CLI::NonNegativeNumber);
  app.add_option("--chat-template", examples.chat_template, "of JSONL, as data.chat_template")
      ->capture_default_str();
  app.add_option("--seq-len", seq_len, "of JSONL: how long sequences are")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  app.add_option("--sequence", sequence, "of JSONL: which sequence is shown")
      ->capture_default_str();
  if (!parse_flags(app, arguments)) return 0;
  if (file.ends_with(".jsonl")) {
    examples.jsonl = {file};
    if (!tokenizer_name.empty()) examples.tokenizer = tokenizer_name;
    std::cout << show_examples(examples, seq_len, sequence);
    return 0;
  }
  std::shared_ptr<const Tokenizer> tokenizer;
  if (!tokenizer_name.empty()) tokenizer = make_tokenizer(tokenizer_name);
  options.tokenizer = tokenizer.get();
  std::cout << describe(TokenFile(file), options);
  return 0;
}

int synthetic_command(const Arguments& arguments) {
  std::int64_t bytes = 1'000'000, conversations = 0, records = 0;
  std::uint64_t seed = 1;
  std::string output;
  CLI::App app("Writes readable text with facts in it.", "axonn data synthetic");
  app.add_option("--bytes", bytes, "how much")->capture_default_str()->check(CLI::PositiveNumber);
  app.add_option("--conversations", conversations,
                 "instead: so many questions and answers about the same world, as JSONL")
      ->check(CLI::PositiveNumber);
  app.add_option("--records", records,
                 "instead: so many entries of a register, as JSONL, each with the bits of its last "
                 "50 bytes that no rule predicts: for axonn memorize")
      ->check(CLI::PositiveNumber);
  app.add_option("--seed", seed, "another seed, another world")->capture_default_str();
  app.add_option("--output", output, "a file")->required();
  if (!parse_flags(app, arguments)) return 0;
  std::ofstream file(output, std::ios::binary);
  const std::string text = records > 0         ? synthetic_records(records, seed)
                           : conversations > 0 ? synthetic_conversations(conversations, seed)
                                               : synthetic_text(bytes, seed);
  file << text << std::flush;
  if (!file)
    fail(Where::here(), "cannot write ", output, "; is the folder there, and is there room?");
  std::cout << "wrote " << format_bytes(std::ssize(text)) << " to " << output << '\n';
  return 0;
}

}  // namespace

int run_data(const Arguments& arguments) {
  if (arguments.empty() || arguments.front() == "--help" || arguments.front() == "-h") {
    std::cout << kHelp;
    return 0;
  }
  const Arguments rest(arguments.begin() + 1, arguments.end());
  if (arguments.front() == "tokenize") return tokenize_command(rest);
  if (arguments.front() == "show") return show_command(rest);
  if (arguments.front() == "synthetic") return synthetic_command(rest);
  refuse("axonn data has no command '", arguments.front(),
         "'; the commands are tokenize, show and synthetic");
}

}  // namespace axonn
