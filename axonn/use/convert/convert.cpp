#include "axonn/use/convert/convert.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <ranges>
#include <string>
#include <utility>
#include <vector>

#include "axonn/compute/ops/backend.h"
#include "axonn/data/storage/gguf.h"
#include "axonn/data/storage/write_tensors.h"
#include "axonn/foundation/base/check.h"
#include "axonn/foundation/base/clock.h"
#include "axonn/foundation/base/files.h"
#include "axonn/foundation/base/gguf_file.h"
#include "axonn/network/model/families/family.h"
#include "axonn/network/model/gguf_keys.h"
#include "axonn/network/model/gguf_tensors.h"
#include "axonn/network/model/hugging_face.h"
#include "axonn/network/model/merged_source.h"
#include "axonn/network/model/model_files.h"
#include "axonn/network/model/peft.h"
#include "axonn/network/model/peft_modules.h"
#include "axonn/network/model/quantized_source.h"
#include "axonn/network/nn/adapters/layer_adapters.h"
#include "axonn/ranks/comm/self.h"
#include "axonn/run/config/inputs.h"
#include "axonn/run/config/resolve.h"
#include "axonn/run/config/run_text.h"
#include "axonn/run/config/stored_config.h"
#include "axonn/use/convert/gguf_model.h"
#include "axonn/use/convert/mup_source.h"
#include "axonn/use/convert/text_files.h"

namespace axonn {

namespace {

namespace fs = std::filesystem;

std::string torch_name(StoredType type) {
  if (type == StoredType::bf16) return "bfloat16";
  return type == StoredType::f16 ? "float16" : "float32";
}

bool looks_like_a_model(const std::string& folder) {
  const auto has = [&](std::string_view file) { return fs::exists(fs::path(folder) / file); };
  return has("config.json") || has("adapter_config.json") || has(kIndexName);
}

GgufType gguf_type(StoredType type) {
  if (type == StoredType::bf16) return GgufType::bf16;
  return type == StoredType::f16 ? GgufType::f16 : GgufType::f32;
}

/// Returns the parameters that training such a model trains: all, or those of its adapters.
std::vector<ParameterSpec> parameters_of(const ModelConfig& config) {
  const auto world = make_self();
  const Grid grid(*world, {});
  const auto model = make_model(config, grid);
  std::vector<ParameterSpec> all;
  for (const ParameterGroup* group : trained_groups(*model))
    for (const auto& parameter : group->parameters()) all.push_back(parameter->spec());
  return all;
}

StoredParameter stored(const ParameterSpec& spec) {
  return {spec.name, spec.layout.rows, spec.layout.cols};
}

std::unique_ptr<ParameterSource> source_of(const ModelFiles& files, const ModelConfig& config) {
  std::vector<StoredParameter> parameters;
  for (const ParameterSpec& spec : parameters_of(config)) parameters.push_back(stored(spec));
  return files.source(config, std::move(parameters));
}

/// The source of `base` with block-wise adapters merged into it; `lora` has their scales.
std::unique_ptr<ParameterSource> with_adapters(std::unique_ptr<ParameterSource> base,
                                               std::unique_ptr<ParameterSource> adapters,
                                               const LoraConfig& lora, int threads) {
  constexpr std::string_view kA = ".lora_A.weight";
  MergedSource::Parts parts;
  for (const StoredParameter& a : adapters->parameters()) {
    if (!a.name.ends_with(kA)) continue;
    const std::string module = a.name.substr(0, a.name.size() - kA.size()),
                      b_name = module + ".lora_B.weight";
    const auto b = std::ranges::find(adapters->parameters(), b_name, &StoredParameter::name);
    AXONN_CHECK(b != adapters->parameters().end(), "there is no ", b_name);
    const auto own = layer_adapter(lora, module);
    AXONN_CHECK(own, "the config has no adapter of ", module);
    MergedFactors& factors = parts.factors[module + ".weight"];
    factors = {.a = a, .b = *b, .scale = own->scale()};
    const auto m = std::ranges::find(adapters->parameters(), module + ".lora_magnitude_vector",
                                     &StoredParameter::name);
    if (m != adapters->parameters().end()) factors.magnitude = *m;
  }
  std::vector<StoredParameter> parameters = base->parameters();
  parts.base = std::move(base);
  parts.adapters = std::move(adapters);
  return std::make_unique<MergedSource>(std::move(parameters), std::move(parts), threads);
}

/// Writes one folder for a job.
class Converter {
 public:
  Converter(const ConvertJob& job, const Progress& progress) : job_(job), progress_(progress) {}

  Converted run() {
    const double began = now_seconds();
    open();
    const bool adapters = model_->adapters(), folder = !model_->checkpoint();
    if (folder && text_.tokenizer == model_->path())
      text_.tokenizer = fs::absolute(text_.tokenizer).lexically_normal();
    check_out({{"--model", job_.model},
               {"--model", source_->path()},
               {"--adapter", job_.adapters},
               {"--base", adapters ? "" : base_},
               {"--tokenizer", job_.tokenizer.empty() ? text_.tokenizer : job_.tokenizer}});
    if (!job_.tokenizer.empty()) text_.tokenizer = job_.tokenizer;
    form_ =
        job_.to.value_or(folder && !adapters_ ? ModelForm::checkpoint : ModelForm::hugging_face);
    if (form_ != ModelForm::checkpoint && config_.mup_base > 0) {
      source_ = without_mup(std::move(source_), config_);
      config_ = without_mup(config_);
    }
    Converted done;
    if (job_.nf4 && (form_ != ModelForm::hugging_face || adapters))
      refuse("--dtype nf4 is for a model as a Hugging Face folder: --to hf");
    if (job_.blocks && form_ != ModelForm::gguf)
      refuse("--dtype ", name_of(*job_.blocks), " is for --to gguf");
    if (form_ == ModelForm::gguf) {
      done.what = plan_gguf();
      std::ranges::copy(gguf_differences(config_), std::back_inserter(warnings_));
    } else if (form_ == ModelForm::checkpoint) {
      if (adapters)
        refuse("--to checkpoint: ", job_.model,
               " is a checkpoint of adapters; merge them into their base with --merge");
      if (job_.type) refuse("--dtype is for a Hugging Face folder; checkpoints are in F32");
      for (const StoredParameter& parameter : source_->parameters())
        total_ += parameter.count() * 4;
      done.what = "a checkpoint";
    } else {
      type_ = job_.type.value_or(adapters ? StoredType::f32 : model_->form().type);
      plan_tensors();
      done.what = concat(adapters ? "adapters in PEFT's format (" : "a Hugging Face folder (",
                         job_.nf4 ? "NF4, " : "", name_of(type_), ')');
    }
    write();
    for (const auto* files : {model_ ? &*model_ : nullptr, adapters_ ? &*adapters_ : nullptr})
      if (files) std::ranges::copy(files->notes(), std::back_inserter(warnings_));
    done.warnings = std::move(warnings_);
    done.bytes = total_;
    done.seconds = now_seconds() - began;
    return done;
  }

 private:
  /// Opens the model to write: with adapters merged into it, or of adapters alone.
  void open() {
    model_.emplace(job_.model, job_.ema ? StoredWeights::averages : StoredWeights::trained);
    if (model_->adapters()) {
      open_adapters();
    } else {
      if (!job_.base.empty())
        refuse("--base is for a checkpoint of adapters; ", job_.model, " is not one");
      if (job_.adapters.empty() && job_.merge)
        refuse("--merge: nothing is to be merged; name adapters with --adapter");
      if (!job_.adapters.empty()) adapters_.emplace(ModelFiles::of_adapters(job_.adapters));
      base_ = model_->base();
      text_ = text_of_files(*model_, adapters_ ? &*adapters_ : nullptr);
    }
    config_ = model_->config();
    if (adapters_ && adapters_->untie()) config_.tied = false;
    if (job_.to == ModelForm::gguf) config_.mtp_layers = 0;  // no text is generated with them there
    parameters_ = parameters_of(config_);
    if (adapters_ && adapters_->only_merge()) {
      std::vector<StoredParameter> all;
      for (const ParameterSpec& spec : parameters_) all.push_back(stored(spec));
      source_ = adapters_->merged_into(*model_, config_, std::move(all));
      return;
    }
    source_ = source_of(*model_, config_);
    if (adapters_) merge();
  }

  /// For a job whose model holds adapters.
  void open_adapters() {
    if (!job_.adapters.empty())
      refuse("--adapter: ", job_.model, " holds adapters itself; name a model with --model");
    if (!model_->checkpoint())
      refuse(job_.model,
             " holds adapters in PEFT's format; name their base model with --model, and ",
             "this folder with --adapter");
    base_ = job_.base.empty() ? model_->base() : job_.base;
    if (!job_.merge) {
      text_ = text_of_files(*model_);
      return;
    }
    if (base_.empty())
      refuse(model_->checkpoint()->folder(),
             " does not state the base model of its adapters; name it with --base");
    adapters_ = std::exchange(model_, ModelFiles(base_));
    if (model_->adapters()) refuse(base_, " holds adapters, not their base model");
    base_ = model_->base();
    text_ = text_of_files(*model_, &*adapters_);
  }

  void merge() {
    ModelConfig config = adapters_->checkpoint() ? adapters_->config() : model_->config();
    config.lora = adapters_->adapters_of(config);
    if (config.quantize != Quantization::none) {
      model_->set_kinds(config);
      source_ = quantized_source(std::move(source_), config);
      warnings_.push_back(concat("the adapters were trained beside weights in ",
                                 name_of(config.quantize),
                                 ", so they are merged into the values that those stand for"));
    }
    source_ =
        with_adapters(std::move(source_), source_of(*adapters_, config), config.lora, job_.threads);
  }

  /// Throws UsageError unless `out` may be written: a model, where that is allowed.
  void check_out(const NamedPaths& inputs) const {
    claim_output({"--out", job_.out}, inputs, job_.overwrite);
    std::error_code ignored;
    if (!fs::exists(job_.out, ignored) || fs::is_empty(job_.out, ignored)) return;
    if (job_.to == ModelForm::gguf ? !begins_as_gguf(job_.out) : !looks_like_a_model(job_.out))
      refuse("--out ", job_.out, " exists and holds no model; it is not replaced");
  }

  void plan_tensors() {
    if (model_->adapters()) return plan_adapters();
    const TensorNames names = base_names(config_);
    std::string prefix = model_->form().prefix;
    // transformers 4 finds no weights in a file with an output layer and names without prefixes.
    if (const Family* const family = find_family(config_);
        prefix.empty() && family && !config_.tied)
      prefix = family->prefix;
    for (const ParameterSpec& spec : parameters_) {
      const StoredName as = names.of(spec.name);
      if (as.joined.usual) {
        plan_part(as.joined, stored(spec));
        continue;
      }
      const bool plain = prefix.empty() || spec.name == "lm_head.weight";
      tensors_.push_back({.name = plain ? as.names.front() : prefix + spec.name,
                          .parameter = stored(spec),
                          .type = type_,
                          .vector = spec.layout.cols == 1 && !spec.decays && !as.transposed,
                          .transposed = as.transposed,
                          .depthwise = as.depthwise});
      if (job_.nf4 && spec.hidden) tensors_.back().nf4 = true;
    }
    if (job_.nf4) check_nf4();
    for (const auto& [name, parameter] : names.copies) {
      const auto spec = std::ranges::find(parameters_, parameter, &ParameterSpec::name);
      AXONN_CHECK(spec != parameters_.end(), name, ": there is no ", parameter);
      tensors_.push_back({.name = prefix.empty() ? name : prefix + name,
                          .parameter = stored(*spec),
                          .type = type_});
    }
    for (const auto& [spellings, value] : names.numbers)
      tensors_.push_back({.name = spellings.front(),
                          .parameter = {"", 1, 1},
                          .type = type_,
                          .number = static_cast<float>(value)});
    for (const PlannedTensor& tensor : tensors_) total_ += tensor.bytes();
  }

  /// transformers reads neither experts nor GPT-2's transposed matrices in NF4.
  void check_nf4() const {
    const bool whole = std::ranges::all_of(tensors_, [](const PlannedTensor& tensor) {
      return tensor.more.empty() && tensor.outer == 0 && !(tensor.nf4 && tensor.transposed);
    });
    if (config_.experts > 0 || !whole)
      refuse(
          "--dtype nf4 is for models whose linear layers are each a matrix of its own, (out, in), "
          "in a Hugging Face folder, without experts; convert this one with --dtype bf16, and "
          "train adapters with model.quantize = \"nf4\"");
  }

  void plan_adapters() {
    adapted_ = peft_adapters(std::move(source_), config_);
    check_written_adapters(config_, adapted_.modules);
    source_ = std::move(adapted_.source);
    const TensorNames names = adapter_names(config_);
    for (const StoredParameter& parameter : source_->parameters()) {
      const auto spec = std::ranges::find(parameters_, parameter.name, &ParameterSpec::name);
      const bool ours = spec != parameters_.end();
      const StoredName as = ours ? names.of(parameter.name) : StoredName{.names = {parameter.name}};
      const bool vector = ours ? parameter.cols == 1 && !spec->decays && !as.transposed
                               : parameter.name.ends_with("lora_magnitude_vector");
      tensors_.push_back({.name = as.names.front(),
                          .parameter = parameter,
                          .type = type_,
                          .vector = vector,
                          .transposed = as.transposed});
      total_ += tensors_.back().bytes();
    }
  }

  /// Rows of a joined tensor come in their order, or alternate; those of several tensors in turn.
  void plan_part(const StoredName::Joined& joined, const StoredParameter& part) {
    const std::string& name = joined.names.front();
    const bool transposed = joined.transposed && part.cols > 1;
    if (joined.first == 0)
      return tensors_.push_back({.name = name,
                                 .parameter = part,
                                 .together = transposed ? joined.rows / part.rows : joined.step,
                                 .alternate = joined.step > 1,
                                 .turns = joined.turns,
                                 .type = type_,
                                 .outer = joined.outer,
                                 .vector = part.cols == 1,
                                 .transposed = transposed});
    auto latest_first = std::views::reverse(tensors_);
    const auto tensor = std::ranges::find(latest_first, name, &PlannedTensor::name);
    const std::int64_t turn = joined.first % joined.step,
                       before = joined.first * joined.turns + turn * (part.rows - 1);
    AXONN_CHECK(tensor != latest_first.end() && tensor->rows() == before, part.name,
                " does not follow the rows before it in ", name);
    tensor->more.push_back(part);
  }

  /// Returns what will be made.
  std::string plan_gguf() {
    if (model_->adapters())
      refuse("--to gguf: ", job_.model, " holds adapters; merge them into their base with --merge");
    const ModelConfig config = resolved(config_, 0, 0);
    type_ = job_.type.value_or(job_.blocks ? StoredType::f32 : model_->form().type);
    const GgufType type = job_.blocks.value_or(gguf_type(type_));
    gguf_keys_ = gguf_model_keys(config, fs::path(job_.out).stem().string(), type);
    for (auto& key : gguf_values(config, *source_)) gguf_keys_.push_back(std::move(key));
    for (auto& key : gguf_text_keys(text_, config.vocab, warnings_))
      gguf_keys_.push_back(std::move(key));
    gguf_tensors_ = gguf_tensors(config, parameters_, type);
    for (const GgufTensor& tensor : gguf_tensors_) total_ += tensor.bytes();
    return concat("a GGUF file (", job_.blocks ? name_of(*job_.blocks) : name_of(type_), ')');
  }

  void write_folder(const std::string& to) {
    HuggingFaceDetails details = write_text_files(text_, to, warnings_);
    details.type = torch_name(type_);
    details.nf4 = job_.nf4;
    write_text(to + "/config.json", to_hugging_face_config(config_, details));
  }

  void write_adapters(const std::string& to) {
    ModelConfig config = config_;
    name_layers(config.lora, adapted_.modules, adapted_.whole);
    config = resolved(config, 0, 0);
    write_text_files(text_, to, warnings_);
    write_text(to + "/adapter_config.json", to_adapter_config(config, base_));
  }

  void write() {
    const auto wrote = [this](std::int64_t bytes) {
      done_ += bytes;
      if (progress_) progress_(done_, total_);
    };
    const std::int64_t room = free_bytes(job_.out);
    AXONN_CHECK(room >= total_, job_.out, " needs ", total_, " bytes, but there is room for only ",
                room, "; free space there, or write to another disk");
    if (form_ == ModelForm::gguf)
      return write_gguf(job_.out, gguf_keys_, gguf_tensors_, *source_, wrote);
    TemporaryFolder folder(job_.out);
    const std::string& to = folder.path();
    if (form_ == ModelForm::checkpoint) {
      ModelConfig config = config_;
      config.path.clear();
      if (text_.forms.empty()) text_.forms = forms_beside(text_.tokenizer);
      StateTexts texts{{"config.toml", stored_config_text(config, text_.tokenizer)},
                       {kModelTextName, to_json(text_)}};
      if (!model_->checkpoint()) texts.emplace(kOriginName, to_text(model_->form()));
      write_checkpoint(to, {source_->parameters(), std::move(texts), job_.most_bytes}, *source_,
                       wrote);
    } else if (model_->adapters()) {
      write_adapters(to);
      write_tensors(to + "/adapter_model.safetensors", tensors_, *source_, wrote);
    } else {
      write_folder(to);
      write_safetensors_folder(to, tensors_, job_.most_bytes, *source_, wrote);
    }
    folder.publish();
  }

  const ConvertJob& job_;
  Progress progress_;
  std::optional<ModelFiles> model_;     // to write: a model, or adapters alone
  std::optional<ModelFiles> adapters_;  // to merge into it
  ModelConfig config_;                  // of what is written
  std::string base_;                    // of the model
  ModelText text_;                      // of what is written
  std::vector<std::string> warnings_;
  std::vector<ParameterSpec> parameters_;
  std::unique_ptr<ParameterSource> source_;
  PeftAdapters adapted_;  // adapters to write, without their source
  ModelForm form_ = ModelForm::hugging_face;
  StoredType type_ = StoredType::f32;
  std::vector<PlannedTensor> tensors_;
  GgufKeys gguf_keys_;
  std::vector<GgufTensor> gguf_tensors_;
  std::int64_t total_ = 0, done_ = 0;
};

}  // namespace

Converted convert(const ConvertJob& job, const Progress& progress) {
  if (job.out.empty()) refuse("--out is empty; name the folder to create");
  return Converter(job, progress).run();
}

}  // namespace axonn
