#include <algorithm>
#include <array>
#include <filesystem>
#include <functional>
#include <iostream>
#include <iterator>
#include <optional>
#include <span>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <unistd.h>

#include "axonn/app/cli/command.h"
#include "axonn/app/cli/config_flags.h"
#include "axonn/app/cli/flags.h"
#include "axonn/app/cli/info.h"
#include "axonn/app/cli/model_flags.h"
#include "axonn/app/cli/stop_signals.h"
#include "axonn/app/cli/train.h"
#include "axonn/app/start/start_run.h"
#include "axonn/data/corpus/tokens/token_cache.h"
#include "axonn/data/corpus/tokens/tokenize.h"
#include "axonn/foundation/base/atomic_text.h"
#include "axonn/foundation/base/check.h"
#include "axonn/foundation/base/clock.h"
#include "axonn/foundation/base/files.h"
#include "axonn/foundation/base/hash.h"
#include "axonn/foundation/base/log.h"
#include "axonn/foundation/base/random.h"
#include "axonn/network/model/counts.h"
#include "axonn/plan/measure/dry_run.h"
#include "axonn/run/load/launch.h"
#include "axonn/run/train/distillation_term.h"
#include "axonn/use/infer/evaluate.h"
#include "axonn/use/infer/text_sampler.h"
#include "axonn/use/memorize/audit_part.h"
#include "axonn/use/memorize/near_recite.h"
#include "axonn/use/memorize/origin.h"
#include "axonn/use/memorize/recite.h"
#include "axonn/use/memorize/report/json.h"
#include "axonn/use/memorize/report/text.h"
#include "axonn/use/memorize/study.h"
#include "axonn/use/memorize/study_plan.h"

namespace axonn {

namespace {

constexpr const char* kMemorizeExamples =
    R"(With a config: the study. Draws documents into buckets, trains a model that sees each bucket
for a number of epochs, and tests which documents it recites; once per loss and trial. The same
command resumes a study and keeps its finished runs. With --audit: no training; tests which of the
given documents a model can recite. docs/memorization.md explains the results.

Examples:
  axonn memorize configs/memorize-tiny.toml
      a small study on generated documents
  axonn memorize configs/memorize-tiny.toml --memorize.trials 3 --output.dir out/three-seeds
  axonn memorize configs/memorize-tiny.toml --dry-run
      what it would do, and the memory of each training
  axonn memorize --audit --model Llama-3.2-1B/ --documents mine.jsonl --control new.jsonl
                 --prompt-lengths 32,64,128 --html audit.html
  axonn memorize --audit --model out/memorize-tiny/trial-1-standard/checkpoints
                 --documents register.jsonl)";

struct MemorizeFlags : ModelFlags {
  bool audit = false, gather_weights = false;
  std::vector<std::string> documents, control;
  std::vector<std::int64_t> prompts;
  std::vector<std::int64_t> offsets, suffixes, n = MemorizeConfig().n;
  std::vector<double> p = MemorizeConfig().p;
  std::int64_t suffix = 50, seq_len = 0, stride = 0, limit = 0, batch = 0;
  std::string json, html, reference;
  std::vector<std::string> policies = ReciteOptions().policies;
  NearRequest near;
  std::string distance = std::string(kTextDistances[static_cast<int>(NearRequest().distance)]);
};

void add_near_flags(CLI::App& app, MemorizeFlags& flags) {
  app.add_option("--near", flags.near.epsilon,
                 "distances in tokens: bounds of the probability, by the first of the policies, "
                 "that a sample is at most so far from a suffix")
      ->type_name("DISTANCES")
      ->check(CLI::Range(0, 100))
      ->delimiter(',');
  app.add_option("--near-beams", flags.near.beams,
                 "prefixes that the search for these texts goes on with; more bring the bounds "
                 "closer")
      ->capture_default_str()
      ->check(count_from(1));
  app.add_option("--near-distance", flags.distance,
                 "hamming, tokens that differ, or levenshtein, tokens to insert, remove or change")
      ->capture_default_str()
      ->check(
          CLI::IsMember(std::vector<std::string>(kTextDistances.begin(), kTextDistances.end())));
  app.add_option("--near-samples", flags.near.samples,
                 "samples of each document, of which those within the distances are counted; 0: "
                 "none")
      ->check(CLI::Range(0, 1'000'000));
}

/// What is swept: lengths and offsets of prompts, numbers of samples and probabilities.
void add_sweep_flags(CLI::App& app, MemorizeFlags& flags) {
  app.add_option("--prompt-lengths", flags.prompts,
                 "lengths of prompts in tokens, in addition to all tokens before the suffix")
      ->check(count_from(1))
      ->delimiter(',');
  app.add_option("--offsets", flags.offsets,
                 "test each of --prompt-lengths also from so many tokens after the beginning of a "
                 "document on; the suffix is what follows it")
      ->check(count_from(0))
      ->delimiter(',');
  app.add_option("--suffix-lengths", flags.suffixes,
                 "further lengths of suffixes; each prompt is tested with each of them, too")
      ->check(count_from(1))
      ->delimiter(',');
  app.add_option("--n", flags.n,
                 "numbers of samples, for the shares of suffixes in so many samples")
      ->check(count_from(1))
      ->delimiter(',')
      ->default_str("1,10,100,1000,10000,100000,1000000");
  app.add_option("--p", flags.p, "probabilities with which so many samples contain them")
      ->check(number_from(0, 1))
      ->delimiter(',')
      ->default_str("0.1,0.5,0.9,0.999");
  app.add_option("--stride", flags.stride,
                 "test windows of --seq-len tokens of longer documents, one every so many tokens; "
                 "0: only the first of each")
      ->check(count_from(0));
}

void add_memorize_flags(CLI::App& app, MemorizeFlags& flags) {
  auto* audit = app.add_flag("--audit", flags.audit, "test an existing model, without training");
  add_model_flags(app, flags);
  app.add_option(
         "--documents", flags.documents,
         "files or folders of documents: each file of text, or each {\"text\": ...} of JSON "
         "lines and tables, is one")
      ->type_name("FILE")
      ->delimiter(',');
  app.add_option("--control", flags.control,
                 "the same for documents that the model cannot have seen")
      ->type_name("FILE")
      ->delimiter(',');
  app.add_option("--reference", flags.reference,
                 "a model with the same tokens that has not seen the documents, for membership")
      ->type_name("DIR");
  add_sweep_flags(app, flags);
  app.add_option("--suffix", flags.suffix, "number of last tokens that the model must recite")
      ->capture_default_str()
      ->check(count_from(1));
  app.add_option(
         "--policies", flags.policies,
         "how a user samples, for the probability that the model writes a suffix: greedy, "
         "or temperature, top-k and top-p as in t=0.7,k=40,p=0.9, of which each may be left "
         "out; several, separated by ;")
      ->type_name("POLICIES")
      ->delimiter(';')
      ->default_str("t=1,k=40;t=1");
  add_near_flags(app, flags);
  app.add_option("--seq-len", flags.seq_len,
                 "cut documents to this many tokens; default: as the model was trained, else "
                 "2,048")
      ->check(count_from(1));
  app.add_option("--limit", flags.limit, "test only this many documents, the first; 0: all")
      ->check(count_from(0));
  app.add_option("--batch", flags.batch, "documents that each (z, data) coordinate tests at a time")
      ->check(count_from(1));
  app.add_flag("--gather-weights", flags.gather_weights,
               "gather weights over z for every token instead of once: slow, but needs only 1/z of "
               "their memory");
  app.add_option("--json", flags.json, "write every document's result to this file")
      ->type_name("FILE");
  app.add_option("--html", flags.html, "write a page with charts and passages to this file")
      ->type_name("FILE");
  for (CLI::Option* option : app.get_options({}))
    if (option != audit && option != app.get_help_ptr()) option->needs(audit);
}

std::int64_t seq_len_of(const Config& config, const MemorizeFlags& flags) {
  constexpr std::int64_t kUsual = 2048;
  const std::int64_t trained = config.training.seq_len, positions = config.model.positions,
                     wanted = flags.seq_len > 0 ? flags.seq_len
                              : trained > 0     ? trained
                                                : kUsual;
  return positions > 0 ? std::min(wanted, positions) : wanted;
}

/// An audit takes all that it needs from the model and its own flags.
void refuse_config(const LoadedConfig& loaded) {
  OptionList list;
  Config config = loaded.config;
  list_options(config, list);
  std::string given = loaded.config.file;
  for (const auto& section : list.sections())
    for (const Option& option : section.options)
      if (given.empty() && loaded.origins.from_flag(option.key()))
        given = loaded.origins.of(option.key());
  if (!given.empty())
    refuse("axonn memorize --audit uses no config: leave out ", given,
           "; axonn memorize --help lists its flags");
}

/// "axonn 0.3.0".
std::string program_name() { return concat("axonn ", build_info().version); }

/// The command line, as a shell reads it.
std::string command_line(const Arguments& arguments) {
  constexpr std::string_view kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_=+./,:@%";
  std::string line = "axonn memorize";
  for (const std::string& word : arguments) {
    line += ' ';
    if (!word.empty() && word.find_first_not_of(kPlain) == std::string::npos) {
      line += word;
      continue;
    }
    line += '\'';
    for (const char c : word) line += c == '\'' ? "'\\''" : std::string(1, c);
    line += '\'';
  }
  return line;
}

ReciteOptions recite_options_of(const MemorizeFlags& flags) {
  ReciteOptions options{.suffix_tokens = flags.suffix,
                        .batch = flags.batch,
                        .hold_weights = !flags.gather_weights,
                        .policies = flags.policies,
                        .near = flags.near};
  options.near.at_once = 0;
  options.near.distance = value_of<TextDistance>(flags.distance, kTextDistances);
  std::ranges::copy(flags.prompts, std::back_inserter(options.prompt_lengths));
  add_sweeps(options, flags.offsets, flags.suffixes);
  return options;
}

/// What the results of an audit depend on, on one line: the questions, the documents, and the files
/// of models, adapters and tokenizer with their sizes and times. "" without a file for it.
std::string audit_text(const MemorizeFlags& flags, const Config& config, const ReciteOptions& asked,
                       const FoundDocuments& documents, const FoundDocuments& control) {
  if (flags.json.empty()) return "";
  std::vector<std::string> files;
  for (const NamedPath& input : inputs_of(flags, config))
    std::ranges::copy(files_below(input.path), std::back_inserter(files));
  if (!flags.reference.empty())
    std::ranges::copy(files_below(flags.reference), std::back_inserter(files));
  std::string how = concat(build_info().version, ' ', flags.dtype, ' ', flags.ema, ' ',
                           flags.suffix, ' ', fmt::format("{}", fmt::join(flags.policies, ";")));
  for (const auto* numbers : {&asked.prompt_lengths, &asked.prompt_offsets, &asked.prompt_suffixes})
    how += fmt::format(" [{}]", fmt::join(*numbers, ","));
  if (!flags.near.epsilon.empty())
    how += fmt::format(" near [{}] {} {} {}", fmt::join(flags.near.epsilon, ","), flags.near.beams,
                       flags.distance, flags.near.samples);
  std::uint64_t hash = 0;
  for (const auto* found : {&documents, &control})
    for (std::int64_t n = 0; n < found->documents.size(); ++n) {
      const StudyDocument one = found->documents[n];
      hash = mix_bits(hash ^ xxh3(one.name)) ^ xxh3(std::as_bytes(std::span(one.tokens)));
    }
  return "axonn memorize" +
         cache_path({.folder = "", .makes = false}, "audit", files, concat(how, ' ', hash));
}

bool is_file_of_its_own(const std::string& path) {
  return !path.empty() &&
         (!std::filesystem::exists(path) || std::filesystem::is_regular_file(path));
}

/// Where an audit keeps tokens, and recitations that it does not go on from: beside its result,
/// where the user has room for it.
std::string work_folder(const MemorizeFlags& flags) {
  for (const std::string& file : {flags.json, flags.html})
    if (is_file_of_its_own(file)) return file + ".work";
  return concat(std::filesystem::temp_directory_path().string(), "/axonn-audit-", ::getuid());
}

/// Lets the audit go on from what an earlier start has made, and keep what it makes. The file is
/// that of rank 0, which tells the others how much there is.
void resume_audit(const std::string& path, const std::string& audit, Communicator& world,
                  ReciteOptions& options, std::optional<AuditPart>& part) {
  if (world.rank() == 0) options.part = &part.emplace(path, audit);
  const AuditCounts made = part ? part->counts() : AuditCounts();
  std::array<double, 2> counts{static_cast<double>(made.recitations),
                               static_cast<double>(made.values)};
  world.broadcast({counts.data(), counts.size(), DType::f64}, 0, "audit").wait();
  options.kept = {.recitations = static_cast<std::int64_t>(counts[0]),
                  .values = static_cast<std::int64_t>(counts[1])};
  if (made.recitations == 0) return;
  std::cerr << "note: goes on after " << format_count(made.recitations) << " recitations"
            << (made.values > 0 ? concat(" and ", format_count(made.values), " further values")
                                : "")
            << " of " << path << "\n";
}

/// The line of what an audit counts at present.
class AuditLine {
 public:
  explicit AuditLine(const ProgressTarget& target) : target_(target) {}

  void operator()(const char* unit, std::int64_t done, std::int64_t of) {
    if (unit_ != unit) line_.emplace(target_, "testing", unit);
    unit_ = unit;
    (*line_)(done, of);
  }
  void clear() { line_.reset(); }

 private:
  ProgressTarget target_;
  std::optional<ProgressLine> line_;
  std::string unit_;
};

/// Says in the report which model was asked, and where.
void describe_audit(LoadedModel& model, const MemorizeFlags& flags, const std::string& command,
                    MemorizationReport& report) {
  report.origin = {.program = program_name(),
                   .command = command,
                   .date = utc_now(),
                   .machine = describe_machine(model.grid().world(), &model.backend().device())};
  const ModelConfig& sizes = model.config().model;
  report.model = fmt::format("{}: {}, {} layers, width {}", flags.model, parameters_text(sizes),
                             sizes.layers, sizes.hidden);
}

void write_results(const MemorizationReport& report, const MemorizeFlags& flags) {
  if (!flags.json.empty()) {
    AtomicText file(flags.json);
    write_json(report, [&](std::string_view text) { file.append(text); });
    file.commit();
  }
  if (!flags.html.empty()) write_file_atomically(flags.html, html_page(report));
}

int run_audit(const MemorizeFlags& flags, const std::string& command) {
  if (flags.model.empty()) refuse("axonn memorize --audit: no model; give one with --model DIR");
  if (flags.documents.empty())
    refuse("axonn memorize --audit: no documents; give some with --documents FILE");
  parse_policies(flags.policies, "--policies");
  const ExtractionGrid grid = extraction_grid(flags.n, flags.p, "--n", "--p");
  if (!flags.offsets.empty() && flags.prompts.empty())
    refuse("axonn memorize --audit: --offsets needs --prompt-lengths, as in --prompt-lengths 8,32");
  check_suffixes(flags.suffixes, flags.suffix, "--suffix-lengths");
  if (flags.near.samples > 0 && flags.near.epsilon.empty())
    refuse("axonn memorize --audit: --near-samples needs distances; give --near, as in --near 1,5");
  Config config = open_model(flags);
  NamedPaths inputs = inputs_of(flags, config);
  for (const std::string& file : flags.documents) inputs.push_back({"--documents", file});
  for (const std::string& file : flags.control) inputs.push_back({"--control", file});
  claim_result({"--json", flags.json}, inputs, kBeginsJson);
  claim_result({"--html", flags.html}, inputs, kBeginsMarkup);
  const auto tokenizer = need_tokenizer(config, flags);
  const DocumentLimits limits{.least = flags.suffix + 1,
                              .most = seq_len_of(config, flags),
                              .stride = flags.stride,
                              .count = flags.limit};
  const TemporaryFolder work(work_folder(flags));
  const auto read = [&](const std::vector<std::string>& files) {
    FoundDocuments found = read_documents(files, tokenizer, limits, {.folder = work.path()}, {});
    if (found.documents.empty())
      refuse("of ", found.found, " documents in ", files.front(), " none has more than ",
             flags.suffix, " tokens; lower --suffix");
    return found;
  };
  const FoundDocuments documents = read(flags.documents);
  const FoundDocuments control = flags.control.empty() ? FoundDocuments{} : read(flags.control);
  const ReciteOptions asked = recite_options_of(flags);
  check_near(asked, tokenizer->vocab_size());
  const std::string audit = audit_text(flags, config, asked, documents, control),
                    kept = is_file_of_its_own(flags.json) ? flags.json + ".part"
                                                          : work.path() + "/recitations";
  with_model(config, [&](LoadedModel& loaded) {
    AuditLine line(loaded.progress());
    ReciteOptions options = asked;
    options.progress = std::ref(line);
    const auto reference = load_beside(loaded, {.path = flags.reference, .key = "--reference"},
                                       loaded.grid().world(), tokenizer.get());
    options.reference = reference.get();
    std::optional<AuditPart> part;
    resume_audit(kept, audit, loaded.grid().world(), options, part);
    MemorizationReport report = audit_model(loaded, *tokenizer, documents, control, options);
    report.extraction = grid;
    describe_audit(loaded, flags, command, report);
    if (loaded.grid().world().rank() != 0) return;
    line.clear();
    std::cout << to_text(report);
    write_results(report, flags);
    if (part) part->remove();
  });
  return 0;
}

/// Runs the study, then prints the report; if `dry`, says what it would do instead.
int run_trainings(const LoadedConfig& loaded, const std::string& command, bool dry) {
  const PreparedRun run = prepare_run(loaded.config, loaded.origins);
  const Config& config = run.config();
  warn_about(loaded);
  warn_about_files(config);
  if (config.parallelism.automatic())
    refuse(
        "[parallelism] grid = \"auto\" works only with axonn train; set a grid, such as the first "
        "of axonn plan");
  validate_study(config, *loaded.memorize);
  if (dry) {
    const bool speaks = speaks_for_all();
    const std::string study =
        describe_study(run, *loaded.memorize, speaks ? progress_of(config) : ProgressTarget{});
    if (speaks) std::cout << study << "\nEach training:\n";
    return train_dry(run, 0);
  }
  std::ostream terminal(std::cout.rdbuf());  // does not throw
  const TrainOptions options{
      .terminal = &terminal,
      .interactive = stdout_is_interactive() && !launches_mpi(config.parallelism),
      .columns = terminal_columns(),
      .progress = progress_of(config),
      .make_text_sampler = make_text_sampler,
      .stop = &catch_stop_signals()};
  const ReportOrigin origin{.program = program_name(),
                            .command = command,
                            .config = print_config(config, loaded.origins)};
  bool stopped = false;
  start_run(run, [&](const PreparedRun& agreed, Communicator& world) {
    if (world.rank() == 0) refuse_too_large(agreed, limits_here(agreed.config()));
    const auto report = run_study(agreed, *loaded.memorize, world, options, origin);
    if (world.rank() != 0) return;
    stopped = !report;
    if (report)
      std::cout << to_text(*report) << "\nwrote " << config.output.dir << "/report.html and "
                << config.output.dir << "/report.json\n";
  });
  return stopped ? kStoppedEarly : 0;
}

}  // namespace

int run_memorize(const Arguments& arguments) {
  MemorizeFlags flags;
  CLI::App app("Studies what models memorize, or audits one model.", "axonn memorize");
  app.footer(kMemorizeExamples);
  add_memorize_flags(app, flags);
  bool print = false;
  app.add_flag("--print-config", print, "show every value and where it comes from, and stop");
  bool dry = false;
  app.add_flag("--dry-run", dry,
               "check everything without training: documents, steps, memory, disk, data")
      ->excludes("--audit");
  const auto loaded = read_config(app, arguments);
  if (!loaded) return 0;
  if (flags.audit) {
    refuse_config(*loaded);
    return run_audit(flags, command_line(arguments));
  }
  if (print) {
    if (speaks_for_all()) std::cout << print_config(loaded->config, loaded->origins);
    return 0;
  }
  return run_trainings(*loaded, command_line(arguments), dry);
}

}  // namespace axonn
