#include "axonn/convert/convert.h"

#include <algorithm>
#include <array>
#include <filesystem>

#include "axonn/base/check.h"
#include "axonn/base/clock.h"
#include "axonn/base/files.h"
#include "axonn/model/hugging_face.h"
#include "axonn/model/stored_names.h"
#include "axonn/storage/checkpoint/checkpoint_index.h"
#include "axonn/storage/write_tensors.h"
#include "axonn/text/tokenizer.h"
#include "axonn/train/opened_model.h"
#include "axonn/train/stored_model.h"

namespace axonn {

namespace {

namespace fs = std::filesystem;

/// Files that programs expect beside the model in a Hugging Face folder.
constexpr std::array kTokenizerFiles = {
    "tokenizer.json",    "tokenizer_config.json", "tokenizer.model",         "vocab.json",
    "merges.txt",        "added_tokens.json",     "special_tokens_map.json", "chat_template.jinja",
    "chat_template.json"};
constexpr const char* kGenerationConfig = "generation_config.json";

std::string torch_name(StoredType type) {
  if (type == StoredType::bf16) return "bfloat16";
  return type == StoredType::f16 ? "float16" : "float32";
}

/// Whether `inner` is `outer` or lies in it.
bool lies_in(const std::string& inner, const std::string& outer) {
  const fs::path a = fs::weakly_canonical(inner), b = fs::weakly_canonical(outer);
  return std::mismatch(a.begin(), a.end(), b.begin(), b.end()).second == b.end();
}

bool looks_like_a_model(const std::string& folder) {
  return std::ranges::any_of(
      std::array<std::string, 3>{"config.json", "adapter_config.json", std::string(kIndexName)},
      [&](const std::string& file) { return fs::exists(folder + '/' + file); });
}

/// Writes one folder for a job.
class Converter {
 public:
  Converter(const ConvertJob& job, const CheckpointReader::Progress& progress)
      : job_(job), progress_(progress) {}

  Converted run();

 private:
  OpenedModel open() const;
  void check_out(std::initializer_list<std::string> inputs) const;
  void plan_folder(const OpenedModel& model);
  void plan_adapters(const OpenedModel& adapters);
  void write(const OpenedModel& model);
  void write_folder(const OpenedModel& model, const std::string& to);
  void write_adapters(const OpenedModel& adapters, const std::string& to);
  HuggingFaceDetails copy_tokenizer(const std::string& tokenizer, const std::string& to) const;

  const ConvertJob& job_;
  CheckpointReader::Progress progress_;
  ModelForm form_ = ModelForm::hugging_face;
  StoredType type_ = StoredType::f32;
  std::vector<PlannedTensor> tensors_;
  std::int64_t total_ = 0, done_ = 0;
};

/// Opens the model to write: with adapters merged into it, or of adapters alone.
OpenedModel Converter::open() const {
  OpenedModel model = open_model(job_.model);
  const bool adapters_alone = model.config.lora.rank > 0;
  if (!adapters_alone) {
    if (!job_.base.empty())
      refuse("--base is for a checkpoint of adapters; ", job_.model, " is not one");
    if (job_.adapters.empty()) {
      if (job_.merge) refuse("--merge: nothing is to be merged; name adapters with --adapter");
      return model;
    }
    const OpenedModel adapters = open_adapters(job_.adapters, model.config);
    return merged(std::move(model), adapters, job_.threads);
  }
  if (!job_.adapters.empty())
    refuse("--adapter: ", job_.model, " holds adapters itself; name a model with --model");
  if (!job_.base.empty()) model.base = job_.base;
  if (!job_.merge) return model;
  if (model.base.empty())
    refuse(model.path, " does not state the base model of its adapters; name it with --base");
  OpenedModel base = open_model(model.base);
  if (base.tokenizer == "bytes") base.tokenizer = model.tokenizer;
  return merged(std::move(base), model, job_.threads);
}

void Converter::check_out(std::initializer_list<std::string> inputs) const {
  for (const std::string& input : inputs)
    if (!input.empty() && input != "bytes" && fs::exists(input) && lies_in(input, job_.out))
      refuse("--out ", job_.out, " would replace ", input, ", which is read; name another folder");
  std::error_code ignored;
  if (!fs::exists(job_.out, ignored) || fs::is_empty(job_.out, ignored)) return;
  if (!job_.overwrite) refuse("--out ", job_.out, " exists already; --overwrite replaces it");
  if (!looks_like_a_model(job_.out))
    refuse("--out ", job_.out, " exists and holds no model; it is not replaced");
}

void Converter::plan_folder(const OpenedModel& model) {
  for (const ParameterSpec& spec : model.parameters) {
    const StoredName stored = stored_name(model.config.family, spec.name);
    const bool plain = model.prefix.empty() || spec.name == "lm_head.weight";
    tensors_.push_back({.name = plain ? stored.names.front() : model.prefix + spec.name,
                        .parameter = spec.name,
                        .rows = spec.layout.rows,
                        .cols = spec.layout.cols,
                        .type = type_,
                        .vector = spec.layout.cols == 1 && !spec.decays,
                        .transposed = stored.transposed});
  }
}

void Converter::plan_adapters(const OpenedModel& adapters) {
  for (const ParameterSpec& spec : adapters.parameters)
    tensors_.push_back(
        {.name = stored_adapter_name(adapters.config.family, spec.name).names.front(),
         .parameter = spec.name,
         .rows = spec.layout.rows,
         .cols = spec.layout.cols,
         .type = type_});
}

HuggingFaceDetails Converter::copy_tokenizer(const std::string& tokenizer,
                                             const std::string& to) const {
  HuggingFaceDetails details{.type = torch_name(type_)};
  if (tokenizer == "bytes" || tokenizer.empty()) return details;
  if (!fs::exists(tokenizer))
    refuse("the tokenizer of this model, ", tokenizer,
           ", does not exist; name it with --tokenizer");
  const fs::path path(tokenizer), from = fs::is_directory(path) ? path : path.parent_path();
  const auto read = make_tokenizer(tokenizer);
  details.begin_of_text = read->begin_of_text();
  details.end_of_text = read->end_of_text();
  for (const char* name : kTokenizerFiles)
    if (fs::exists(from / name)) write_text(to + '/' + name, read_text((from / name).string()));
  // The end of an answer may be one of several tokens, which only this file lists.
  if (fs::exists(from / kGenerationConfig))
    write_text(to + '/' + kGenerationConfig, read_text((from / kGenerationConfig).string()));
  return details;
}

void Converter::write_folder(const OpenedModel& model, const std::string& to) {
  const HuggingFaceDetails details = copy_tokenizer(model.tokenizer, to);
  write_text(to + "/config.json", to_hugging_face_config(model.config, details));
  if (!fs::exists(to + '/' + kGenerationConfig))
    write_text(to + '/' + kGenerationConfig, to_generation_config(details));
}

void Converter::write_adapters(const OpenedModel& adapters, const std::string& to) {
  ModelConfig config = adapters.config;
  config.lora.targets.clear();
  for (const ParameterSpec& spec : adapters.parameters)
    if (const std::string layer = adapted_layer(spec.name);
        std::ranges::find(config.lora.targets, layer) == config.lora.targets.end())
      config.lora.targets.push_back(layer);
  copy_tokenizer(adapters.tokenizer, to);
  write_text(to + "/adapter_config.json", to_adapter_config(config, adapters.base));
}

void Converter::write(const OpenedModel& model) {
  const auto wrote = [this](std::int64_t bytes) {
    done_ += bytes;
    if (progress_) progress_(done_, total_);
  };
  const std::int64_t room = free_bytes(job_.out);
  AXONN_CHECK(room >= total_, job_.out, " needs ", total_, " bytes, but there is room for only ",
              room, "; free space there, or write to another disk");
  TemporaryFolder folder(job_.out);
  const std::string& to = folder.path();
  if (form_ == ModelForm::checkpoint) {
    std::vector<CheckpointParameter> parameters;
    for (const ParameterSpec& spec : model.parameters)
      parameters.push_back({spec.name, spec.layout.rows, spec.layout.cols});
    StateTexts texts{{"config.toml", stored_config_text(model.config, model.tokenizer)}};
    if (model.hugging_face) texts.emplace(kOriginName, origin_text(model));
    write_checkpoint(to, {parameters, std::move(texts), job_.most_bytes}, *model.source, wrote);
  } else if (model.config.lora.rank > 0) {
    write_adapters(model, to);
    write_tensors(to + "/adapter_model.safetensors", tensors_, *model.source, wrote);
  } else {
    write_folder(model, to);
    write_safetensors_folder(to, tensors_, job_.most_bytes, *model.source, wrote);
  }
  folder.publish();
}

Converted Converter::run() {
  const double began = now_seconds();
  OpenedModel model = open();
  const bool adapters = model.config.lora.rank > 0;
  check_out({job_.model, job_.adapters, model.path, model.tokenizer, adapters ? "" : model.base});
  if (!job_.tokenizer.empty()) model.tokenizer = job_.tokenizer;
  const bool whole = model.hugging_face && job_.adapters.empty() && !job_.merge;
  form_ = job_.to.value_or(whole ? ModelForm::checkpoint : ModelForm::hugging_face);
  Converted done;
  if (form_ == ModelForm::checkpoint) {
    if (adapters)
      refuse("--to checkpoint: ", job_.model,
             " is a checkpoint of adapters; merge them into their base with --merge");
    if (job_.type) refuse("--dtype is for a Hugging Face folder; checkpoints are in F32");
    model.config.path.clear();
    for (const ParameterSpec& spec : model.parameters) total_ += spec.layout.count() * 4;
    done.what = "a checkpoint";
  } else {
    type_ = job_.type.value_or(adapters ? StoredType::f32 : model.type);
    if (adapters)
      plan_adapters(model);
    else
      plan_folder(model);
    for (const PlannedTensor& tensor : tensors_) total_ += tensor.bytes();
    done.what = concat(adapters ? "adapters in PEFT's format (" : "a Hugging Face folder (",
                       name_of(type_), ')');
  }
  write(model);
  done.bytes = total_;
  done.seconds = now_seconds() - began;
  return done;
}

}  // namespace

Converted convert(const ConvertJob& job,
                  const std::function<void(std::int64_t done, std::int64_t total)>& progress) {
  if (job.out.empty()) refuse("--out is empty; name the folder to create");
  return Converter(job, progress).run();
}

}  // namespace axonn
