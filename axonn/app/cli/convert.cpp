#include "axonn/use/convert/convert.h"

#include <iostream>
#include <map>
#include <optional>
#include <ranges>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "axonn/app/cli/command.h"
#include "axonn/app/cli/flags.h"
#include "axonn/app/cli/standard_output.h"
#include "axonn/data/storage/gguf.h"
#include "axonn/foundation/base/check.h"
#include "axonn/foundation/base/host.h"
#include "axonn/foundation/base/log.h"
#include "axonn/foundation/options/options.h"

namespace axonn {

namespace {

constexpr const char* kConvertExamples =
    R"(Examples:
  axonn convert --model out/run/checkpoints --out my-model
      the newest checkpoint as a Hugging Face folder, with the run's tokenizer
  axonn convert --model Llama-3.1-8B --out llama.ckpt
      a Hugging Face folder as a checkpoint
  axonn convert --model out/lora/checkpoints --out my-adapter
      adapters in PEFT's format
  axonn convert --model out/lora/checkpoints --merge --out my-model
      the base model with the adapters merged into it
  axonn convert --model Llama-3.1-8B --adapter my-adapter --out my-model --dtype bf16
  axonn convert --model out/run/checkpoints --ema --out my-model
      the averages of the weights, of a run with optimizer.ema_decay
  axonn convert --model out/run/checkpoints --to gguf --out my-model.gguf --dtype q8_0
      a file for llama.cpp and programs built on it)";

/// Adds a flag whose value must be one of the given words.
template <typename T>
void add_choice(CLI::App& app, const char* flag, std::optional<T>& to,
                const std::map<std::string, T>& words, const char* help) {
  const auto set = [flag, &to, words](const std::string& word) {
    const auto found = words.find(word);
    const auto names = std::views::keys(words);
    if (found == words.end())
      refuse(flag, " is '", word, "'; it must be one of ",
             join(std::vector<std::string>(names.begin(), names.end())));
    to = found->second;
  };
  app.add_option_function<std::string>(flag, set, help)->type_name("NAME");
}

/// A value of --dtype: a type, or blocks of codes, which GGUF alone has.
struct ConvertedType {
  std::optional<StoredType> type = {};
  std::optional<GgufType> blocks = {};
  bool nf4 = false;
};

void add_convert_flags(CLI::App& app, ConvertJob& job, std::optional<ConvertedType>& dtype) {
  app.add_option(
         "--model", job.model,
         "a Hugging Face folder, a GGUF file, a checkpoint, or a run's folder (its newest one)")
      ->required()
      ->type_name("DIR");
  app.add_option("--out", job.out, "the folder to create; for gguf the file")
      ->required()
      ->type_name("PATH");
  add_choice<ModelForm>(app, "--to", job.to,
                        {{"hf", ModelForm::hugging_face},
                         {"checkpoint", ModelForm::checkpoint},
                         {"gguf", ModelForm::gguf}},
                        "hf, checkpoint or gguf; default: of the first two the one that the model "
                        "is not");
  add_choice<ConvertedType>(
      app, "--dtype", dtype,
      {{"f32", {StoredType::f32}},
       {"bf16", {StoredType::bf16}},
       {"f16", {StoredType::f16}},
       {"nf4", {.nf4 = true}},
       {"q4_0", {.blocks = GgufType::q4_0}},
       {"q4_1", {.blocks = GgufType::q4_1}},
       {"q5_0", {.blocks = GgufType::q5_0}},
       {"q5_1", {.blocks = GgufType::q5_1}},
       {"q8_0", {.blocks = GgufType::q8_0}},
       {"q3_k", {.blocks = GgufType::q3_k}},
       {"q4_k", {.blocks = GgufType::q4_k}},
       {"q5_k", {.blocks = GgufType::q5_k}},
       {"q6_k", {.blocks = GgufType::q6_k}},
       {"mxfp4", {.blocks = GgufType::mxfp4}}},
      "f32, bf16 or f16, for a Hugging Face folder or GGUF; for a folder also nf4, the 4 bits of "
      "bitsandbytes for linear layers but the head; or for GGUF q4_0, q4_1, q5_0, q5_1, "
      "q8_0, q3_k, q4_k, q5_k, q6_k or mxfp4; default: the type of the folder that the model came "
      "from, or of "
      "its training");
  app.add_flag("--ema", job.ema,
               "the running averages of the checkpoint's weights (optimizer.ema_decay)");
  app.add_option("--max-shard-size", job.most_bytes,
                 "most bytes per file, such as 5GB or 500MB; larger models get several files")
      ->transform(CLI::AsSizeValue(true).description(""))
      ->check(CLI::Validator(CLI::PositiveNumber).description(""))
      ->type_name("SIZE")
      ->default_str("5GB");
  app.add_option("--adapter", job.adapters,
                 "adapters to merge into the model: a PEFT folder or a checkpoint of adapters")
      ->type_name("DIR");
  app.add_flag("--merge", job.merge, "merge a checkpoint of adapters into its base model");
  app.add_option("--base", job.base, "the base model of a checkpoint of adapters, if it has moved")
      ->type_name("DIR");
  app.add_option("--tokenizer", job.tokenizer, "replaces the model's tokenizer")->type_name("DIR");
  app.add_flag("--overwrite", job.overwrite, "replace the model at --out");
}

}  // namespace

int run_convert(const Arguments& arguments) {
  ConvertJob job;
  job.threads = usable_core_count();
  CLI::App app("Converts between checkpoints and Hugging Face folders, and either to GGUF.",
               "axonn convert");
  app.footer(kConvertExamples);
  std::optional<ConvertedType> dtype;
  add_convert_flags(app, job, dtype);
  if (!parse_flags(app, arguments)) return 0;
  if (dtype) {
    job.type = dtype->type;
    job.blocks = dtype->blocks;
    job.nf4 = dtype->nf4;
  }
  Converted done;
  {
    ProgressLine line(standard_error_progress(true), "converting");
    done = convert(job, std::ref(line));
  }
  print_warnings(done.warnings);
  std::cout << fmt::format("wrote {}, {}: {} in {}\n", job.out, done.what, format_bytes(done.bytes),
                           format_duration(done.seconds));
  return 0;
}

}  // namespace axonn
