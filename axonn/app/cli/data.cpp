#include <algorithm>
#include <iostream>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "axonn/app/cli/command.h"
#include "axonn/app/cli/flags.h"
#include "axonn/app/cli/standard_output.h"
#include "axonn/data/corpus/corpus.h"
#include "axonn/data/corpus/files/text_reader.h"
#include "axonn/data/corpus/packed_stream.h"
#include "axonn/data/corpus/synthetic/synthetic.h"
#include "axonn/data/corpus/tokens/token_file.h"
#include "axonn/data/corpus/tokens/tokenize.h"
#include "axonn/foundation/base/check.h"
#include "axonn/foundation/base/clock.h"
#include "axonn/foundation/base/files.h"
#include "axonn/foundation/base/log.h"
#include "axonn/ranks/comm/self.h"
#include "axonn/run/config/inputs.h"
#include "axonn/run/load/devices.h"
#include "axonn/run/load/launch.h"
#include "axonn/run/train/tokenize_on_ranks.h"

namespace axonn {

namespace {

constexpr const char* kHelp =
    R"(axonn data COMMAND: makes and shows training data.

  tokenize   turns text into a token file: llm.c's format (FILE.bin), else Megatron's (PREFIX.bin,
             PREFIX.idx)
  show       shows the contents of a token file, or the training sequences of a JSONL file or of
             documents
  synthetic  generates readable text with facts, of any size

axonn data COMMAND --help explains a command.

Examples:
  axonn data tokenize --tokenizer bytes --text book.txt --out book.bin
  axonn data tokenize --tokenizer gpt2/ --text corpus/ --out corpus.bin
  srun axonn data tokenize --tokenizer gpt2/ --text corpus/ --out corpus.bin
  axonn data tokenize --tokenizer llama/ --text 'c4-train.*.json.gz' --out c4
  axonn data show book.bin --tokenizer bytes
  axonn data show chats.jsonl --tokenizer llama/ --seq-len 4096
  axonn data show register.jsonl --document-mode packed --seq-len 256
  axonn data synthetic --bytes 10000000 --out facts.txt
  axonn data synthetic --conversations 2000 --out chats.jsonl
  axonn data synthetic --records 800 --out register.jsonl
)";

/// Throws UsageError if the files of `output` may not be written.
void claim_token_file(const std::string& output, const std::vector<std::string>& text,
                      const std::string& tokenizer, bool overwrite) {
  Config config;
  config.data.text = text;
  config.data.tokenizer = tokenizer;
  NamedPaths inputs = inputs_of(config);
  for (NamedPath& input : inputs) input.name.replace(0, std::string_view("data.").size(), "--");
  if (output.ends_with(".bin")) return claim_output({"--out", output}, inputs, overwrite);
  for (const char* end : {".bin", ".idx"}) claim_output({"--out", output + end}, inputs, overwrite);
}

int tokenize_command(const Arguments& arguments) {
  std::string tokenizer = "bytes", output;
  bool overwrite = false;
  std::vector<std::string> text;
  TokenizeOptions options;
  CLI::App app("Turns text into a token file.", "axonn data tokenize");
  app.add_option("--tokenizer", tokenizer, "bytes, or a tokenizer's folder or file")
      ->capture_default_str();
  app.add_option("--text", text,
                 "files of text or JSON lines, also compressed (.gz, .zst), or folders of them")
      ->required();
  app.add_option("--field", options.field, "key of a line of JSON whose value is the document")
      ->capture_default_str();
  app.add_option("--out", output,
                 "FILE.bin: llm.c's format; any other name: prefix of Megatron's format")
      ->required();
  add_overwrite_flag(app, overwrite);
  app.footer(
      "Under mpirun or srun all ranks encode, each a part of the files: the output is the same. "
      "Its "
      "folder must be one that they share. Compressed files are not cut, so give several.");
  if (!parse_flags(app, arguments)) return 0;
  claim_token_file(output, text, tokenizer, overwrite);
  print_warnings(make_tokenizer(tokenizer)->notes());
  const double start = now_seconds();
  const auto make = [&](Communicator& world) {
    ProgressLine line(world.rank() == 0 ? standard_error_progress(true) : ProgressTarget{},
                      kTokenizing);
    options.report = report_to(line);
    return tokenize_on_ranks(world, tokenizer, text, output, options);
  };
  TokenizeProgress done{};
  const Config config;
  if (!launches_mpi(config.parallelism)) {
    done = make(*make_self());
  } else {
    launch(config.parallelism, [&](Communicator& world) {
      const OwnCores own(config, world);
      options.threads = own.threads();
      done = make(world);
    });
    if (!speaks_for_all()) return 0;
  }
  const double rate = static_cast<double>(done.bytes) / (now_seconds() - start);
  std::cout << fmt::format("tokenizing {} of {}, {} tokens, {}/s\nwrote {}\n",
                           format_bytes(done.bytes), format_bytes(done.total_bytes),
                           format_count(done.tokens), format_bytes(static_cast<std::int64_t>(rate)),
                           output);
  return 0;
}

/// Describes the sequences of a text or token file whose documents are as `documents` says, and
/// shows one of them.
std::string show_documents(const std::string& file, const DataConfig& data, std::int64_t seq_len,
                           std::int64_t sequence) {
  const Corpus corpus = open_corpus(data, {});
  if (!corpus.tokenizer) refuse(file, ": name the tokenizer that made it with --tokenizer");
  const auto sequences = stream_sequences(corpus.train, seq_len, 0, corpus.documents);
  Sequences::Size size{};
  if (const auto* packed = dynamic_cast<const PackedStream*>(sequences.get())) {
    size = {packed->inputs(), packed->inputs()};  // reading each sequence would pack its run anew
  } else {
    Sequence one;
    for (std::int64_t n = 0; n < sequences->count(); ++n) {
      sequences->read(n, one);
      size.inputs += seq_len;
      size.targets += std::ranges::count_if(one.targets, [](auto target) { return target >= 0; });
    }
  }
  const std::int64_t rows = sequences->count() * seq_len;
  return fmt::format(
             "sequences  {} of {} tokens\ninputs     {}, and {} rows of padding ({:.1f} %)\n"
             "learned    {} targets\n",
             format_count(sequences->count()), format_count(seq_len), format_count(size.inputs),
             format_count(rows - size.inputs),
             100 * static_cast<double>(rows - size.inputs) / static_cast<double>(rows),
             format_count(size.targets)) +
         show_sequence(*sequences, sequence, *corpus.tokenizer);
}

int show_command(const Arguments& arguments) {
  std::string file, tokenizer_name;
  DataConfig examples{.validation = ""};
  std::int64_t first = 32, seq_len = 1024, sequence = 0;
  CLI::App app("Shows the contents of a token file, or the training sequences of a JSONL file.",
               "axonn data show");
  app.add_option("FILE", file,
                 "FILE.bin or .npy of tokens, the prefix of Megatron's files, or a file as for "
                 "data.jsonl")
      ->required();
  app.add_option("--tokenizer", tokenizer_name,
                 "also show the first tokens as text; for JSONL: the model's tokenizer, or bytes");
  add_choice_flag(app, "--token-type", examples.token_type, kRawTokens,
                  "for tokens without a header: as data.token_type");
  app.add_option("--first", first, "tokens to show")->capture_default_str()->check(count_from(0));
  app.add_option("--chat-template", examples.chat_template, "for JSONL: as data.chat_template")
      ->capture_default_str();
  app.add_option("--chat-template-args", examples.chat_template_args,
                 "for JSONL: as data.chat_template_args")
      ->type_name("JSON");
  app.add_flag("--mask-history", examples.mask_history, "for JSONL: as data.mask_history");
  app.add_flag("--train-on-prompt", examples.train_on_prompt, "for JSONL: as data.train_on_prompt");
  add_choice_flag(app, "--excess-length-strategy", examples.excess_length, kExcessLengths,
                  "for JSONL: as data.excess_length_strategy");
  const CLI::Option* documents = add_choice_flag(
      app, "--document-mode", examples.documents, kDocumentModes,
      "show a sequence of a text or token file whose documents are so to each other, as "
      "data.documents; learned text stands between « and »");
  app.add_option("--eod", examples.eod, "with --document-mode: as data.eod")->check(count_from(0));
  app.add_option("--field", examples.text_field, "with --document-mode: as data.text_field")
      ->capture_default_str();
  app.add_option("--seq-len", seq_len, "for JSONL and --document-mode: tokens per sequence")
      ->capture_default_str()
      ->check(count_from(1));
  app.add_option("--sequence", sequence,
                 "for JSONL and --document-mode: index of the sequence to show")
      ->capture_default_str();
  if (!parse_flags(app, arguments)) return 0;
  if (documents->count() > 0) {
    const bool tokens = TokenFile::recognises(file, examples.token_type);
    (tokens ? examples.tokens : examples.text) = {file};
    if (tokens || !tokenizer_name.empty()) examples.tokenizer = tokenizer_name;
    std::cout << show_documents(file, examples, seq_len, sequence);
    return 0;
  }
  if (is_json_lines(file)) {
    examples.jsonl = {file};
    if (!tokenizer_name.empty()) examples.tokenizer = tokenizer_name;
    const Corpus corpus = open_corpus(examples, {});
    print_warnings(corpus.warnings);
    std::cout << describe(PackedDocuments(corpus.train_documents, seq_len, 0, corpus.excess_length),
                          seq_len, *corpus.tokenizer, sequence);
    return 0;
  }
  std::shared_ptr<const Tokenizer> tokenizer;
  if (!tokenizer_name.empty()) tokenizer = make_tokenizer(tokenizer_name);
  std::cout << describe(TokenFile(file, examples.token_type), tokenizer.get(), first);
  return 0;
}

int synthetic_command(const Arguments& arguments) {
  std::int64_t bytes = 1'000'000, conversations = 0, records = 0;
  std::uint64_t seed = 1;
  std::string output;
  CLI::App app("Generates readable text with facts.", "axonn data synthetic");
  app.add_option("--bytes", bytes, "size of the text")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  app.add_option("--conversations", conversations,
                 "instead: this many questions and answers about the same facts, as JSONL")
      ->check(count_from(1));
  app.add_option("--records", records,
                 "instead: this many register entries for axonn memorize, as JSONL, each with the "
                 "number of unpredictable bits in its last 50 bytes")
      ->check(count_from(1));
  app.add_option("--seed", seed, "a different seed gives different facts")->capture_default_str();
  app.add_option("--out", output, "the file to write")->required();
  bool overwrite = false;
  add_overwrite_flag(app, overwrite);
  if (!parse_flags(app, arguments)) return 0;
  claim_output({"--out", output}, {}, overwrite);
  if (const std::int64_t room = free_bytes(output); bytes > room)
    refuse("--bytes ", bytes, " is more than the ", room, " that ", output, " has room for");
  const std::string text = records > 0         ? synthetic_records(records, seed)
                           : conversations > 0 ? synthetic_conversations(conversations, seed)
                                               : synthetic_text(bytes, seed);
  write_file_atomically(output, text);
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
