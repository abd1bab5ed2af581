#include "axonn/network/model/model_files.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <set>
#include <utility>

#include <nlohmann/json.hpp>

#include "axonn/data/storage/safetensors/safetensors_source.h"
#include "axonn/data/text/gguf_text.h"
#include "axonn/data/text/hub.h"
#include "axonn/foundation/base/check.h"
#include "axonn/foundation/base/clock.h"
#include "axonn/foundation/base/files.h"
#include "axonn/foundation/base/gguf_file.h"
#include "axonn/foundation/options/options_text.h"
#include "axonn/network/model/families/family.h"
#include "axonn/network/model/gguf_config.h"
#include "axonn/network/model/gguf_source.h"
#include "axonn/network/model/hugging_face.h"
#include "axonn/network/model/merged_source.h"
#include "axonn/network/model/peft.h"
#include "axonn/network/model/peft_merge.h"
#include "axonn/network/model/peft_modules.h"
#include "axonn/network/nn/adapters/adapter.h"
#include "axonn/ranks/comm/self.h"
#include "axonn/ranks/comm/texts.h"

namespace axonn {

namespace {

constexpr const char* kAdapterStem = "adapter_model";

bool is_hugging_face(const std::string& path) {
  return path.ends_with(".json") || path_exists(path + "/config.json");
}

bool is_peft(const std::string& path) { return path_exists(path + "/adapter_config.json"); }

/// Throws UsageError if there is no such path, which may be a name on Hugging Face's hub.
void need_path(const std::string& path) {
  if (path_exists(path)) return;
  refuse("there is no ", path,
         "; give a checkpoint, a run's folder, a Hugging Face folder or a GGUF file",
         download_hint(path));
}

/// Throws UsageError if a folder has the tensors of a Hugging Face folder alone.
void need_config(const std::string& folder) {
  for (const char* file : {"model.safetensors", "model.safetensors.index.json"})
    if (path_exists(concat(folder, '/', file)))
      refuse(folder, " has ", file,
             " but no config.json, which states the model's sizes; copy that ",
             "file of the model into it");
}

bool has_tokenizer(const std::string& folder) {
  return std::ranges::any_of(std::array{"tokenizer.json", "vocab.json", "tokenizer.model"},
                             [&](const char* file) { return path_exists(folder + '/' + file); });
}

/// The names of the tensors of a folder in PEFT's format.
std::vector<std::string> adapter_tensors(const std::string& path) {
  std::vector<std::string> names;
  const SafetensorsFolder folder(path, kAdapterStem);
  for (const auto& [name, tensor] : folder.tensors()) names.push_back(name);
  return names;
}

using Groups = std::span<ParameterGroup* const>;

/// Requests this rank's slices of a parameter.
SliceRequest request_for(const Context& ctx, const Destination& to, const ParameterSpec& spec) {
  SliceRequest request{.parameter = spec.name, .kind = to.kind};
  if (!to.slices && spec.layout.col_axis && spec.layout.even_cols(ctx.grid.shape()))
    request.across = &ctx.grid.along(*spec.layout.col_axis);
  for (const auto& [owner, slice] : to.slices ? *to.slices : to.group->piece_slices())
    if (owner == &spec) request.slices.push_back(slice);
  return request;
}

/// Copies values to their destination. `floats` is a buffer for converted ones.
void put(const Context& ctx, const Destination& to, std::int64_t offset, StoredType type,
         std::span<const std::byte> values, std::vector<float>& floats) {
  const std::size_t count = values.size() / bytes_of(type);
  if (!to.buffer && type != StoredType::f32) {
    const DType dtype = type == StoredType::bf16 ? DType::bf16 : DType::f16;
    if (to.group->takes(dtype)) return to.group->set_values(ctx, offset, dtype, values);
  }
  std::span<const float> all{reinterpret_cast<const float*>(values.data()), count};
  if (type != StoredType::f32) {
    floats.resize(count);
    to_floats(type, values, floats);
    all = floats;
  }
  if (to.buffer)
    ctx.device().copy_from_host(to.buffer + offset, all.data(), std::ssize(all) * 4);
  else
    to.group->set_values(ctx, offset, all);
}

/// Where parameters are stored: at `path`, which `files` may have open already, or nowhere if it is
/// empty.
struct ParameterFiles {
  std::shared_ptr<const ModelFiles> files;
  std::string path;
  const ModelFiles* merged = nullptr;  ///< adapters to merge into them, if they are only merged
  Groups also = {};                    ///< with further parameters of these files
};

/// Opens the parameters of groups, for which `from` keeps the files. Null if they are nowhere.
std::unique_ptr<ParameterSource> open_source(Groups groups, const ModelConfig& config,
                                             ParameterFiles& from) {
  if (from.path.empty()) return nullptr;
  if (!from.files || from.files->path() != from.path)
    from.files = std::make_shared<const ModelFiles>(from.path);
  if (from.merged && from.merged->only_merge())
    return from.merged->merged_into(*from.files, config, stored_parameters(groups));
  std::vector<StoredParameter> all = stored_parameters(groups);
  std::ranges::copy(stored_parameters(from.also), std::back_inserter(all));
  return from.files->source(config, std::move(all));
}

/// Reads the parameters of groups, or gives them initial values if they are stored nowhere.
LoadCost load_or_initialise(const Context& ctx, Groups groups, const ModelConfig& config,
                            ParameterFiles from, const Progress& progress) {
  if (groups.empty()) return {};
  const auto source = open_source(groups, config, from);
  if (!source) {
    for (ParameterGroup* group : groups) group->initialise(ctx, ctx.seed);
    return {};
  }
  std::vector<Destination> to;
  for (ParameterGroup* group : groups) to.push_back({.group = group});
  return load(ctx, to, *source, progress);
}

/// The groups of a model with adapters.
struct GroupsBesideAdapters {
  GroupsBesideAdapters(Model& model, Groups trained) {
    for (ParameterGroup* group : model.groups()) {
      const bool learns = std::ranges::find(trained, group) != trained.end();
      (!learns ? frozen : is_of_adapters(*group) ? adapters : whole).push_back(group);
    }
  }
  std::vector<ParameterGroup*> frozen, whole, adapters;
};

/// Leaves out the first two matrices of an expert, which one product reads, unless both have the
/// same kind.
void keep_experts_alike(KeptKinds::ByName& kinds) {
  constexpr std::string_view kGate = ".gate_proj.", kUp = ".up_proj.";
  for (auto [one, other] : {std::pair{kGate, kUp}, std::pair{kUp, kGate}})
    std::erase_if(kinds, [&, one = one, other = other](const auto& kept) {
      std::string name = kept.first;
      const std::size_t at = name.find(one);
      if (at == name.npos || name.find(".experts.") == name.npos) return false;
      const auto beside = kinds.find(name.replace(at, one.size(), other));
      return beside == kinds.end() || beside->second != kept.second;
    });
}

/// The keys of a stage that name its token files.
struct StageTokens {
  std::vector<std::string> tokens;
};

void list_tokens(StageTokens& stage, OptionList& list) {
  list.section("stage", "");
  list.add("tokens", &stage.tokens, {});
}

}  // namespace

ModelFiles::ModelFiles(std::string path, StoredWeights weights)
    : ModelFiles(path,
                 is_gguf(path)           ? Format::gguf
                 : is_hugging_face(path) ? Format::hugging_face
                 : is_peft(path)         ? Format::peft
                                         : Format::checkpoint,
                 weights) {}

ModelFiles ModelFiles::of_adapters(std::string path) {
  ModelFiles files = is_peft(path) ? ModelFiles(path, Format::peft) : ModelFiles(path);
  if (!files.adapters()) refuse(path, " holds a model, not adapters");
  return files;
}

ModelFiles::ModelFiles(std::string path, Format format, StoredWeights weights)
    : path_(std::move(path)),
      format_(format),
      weights_(weights),
      tokenizer_(has_tokenizer(path_) ? path_ : "") {
  if (weights == StoredWeights::averages && format != Format::checkpoint)
    refuse("--ema: ", path_, " is not a checkpoint; only checkpoints hold averages of weights");
  if (format == Format::hugging_face) {
    config_ = resolved(read_hugging_face_config(path_, &notes_), 0, 0);
    if (is_folder(path_)) look_at_weights();
  } else if (format == Format::gguf) {
    gguf_ = std::make_shared<const GgufFile>(path_);
    config_ = resolved(read_gguf_config(*gguf_), 0, 0);
    if (has_tokenizer(*gguf_)) tokenizer_ = path_;
  } else if (format == Format::peft) {
    StoredAdapterConfig stored = read_adapter_config(path_);
    const std::vector<std::string> tensors = adapter_tensors(path_);
    base_ = stored.base;
    config_.lora = stored.lora;
    if (needs_merging(stored, tensors))
      merge_ = std::make_shared<const StoredAdapterConfig>(std::move(stored));
    else
      config_.lora = stored_adapters(stored, tensors, path_);
  } else {
    need_path(path_);
    need_config(path_);
    checkpoint_.emplace(path_);
    if (weights == StoredWeights::averages && !checkpoint_->has_kind(kAveragesKind))
      refuse("--ema: ", checkpoint_->folder(), " has no averages of its weights; leave --ema out, ",
             "or train with optimizer.ema_decay, such as 0.999");
    std::string tokenizer = "bytes", dtype = "f32";
    OptionList list;
    list_options(config_, list);
    list.section("data", "");
    list.add("tokenizer", &tokenizer, {});
    std::vector<std::string> tokens;
    list.add("tokens", &tokens, {});
    std::vector<StageTokens> stages;
    list.repeated("stage", "", stages, list_tokens);
    list.section("training", "");
    list.add("dtype", &dtype, {});
    Origins origins;
    read_toml_text(list, checkpoint_->text("config.toml"), checkpoint_->folder() + "/config.toml",
                   origins, UnknownSections::skip_keys);
    config_ = resolved(config_, 0, 0);
    base_ = config_.path;
    for (const StageTokens& stage : stages)
      tokens.insert(tokens.end(), stage.tokens.begin(), stage.tokens.end());
    if (!tokenizer.empty() && (tokenizer != "bytes" || tokens.empty())) tokenizer_ = tokenizer;
    if (dtype == "bf16") trained_in_ = StoredType::bf16;
    if (dtype == "f16") trained_in_ = StoredType::f16;
  }
  constexpr std::int64_t kBytes = 256;
  if (tokenizer_.empty() && (config_.vocab == kBytes || config_.vocab == 0)) tokenizer_ = "bytes";
}

void ModelFiles::look_at_weights() {
  const std::string whole = path_ + "/model.safetensors", index = whole + ".index.json";
  if (path_exists(whole) && path_exists(index))
    notes_.push_back(concat(index,
                            " is not read, because the folder has model.safetensors; remove ",
                            "the one that is not the model's"));
  const bool found = path_exists(whole) || path_exists(index);
  if (!found) config_.mtp_layers = 0;
  if (!found || (!config_.tied && config_.mtp_layers == 0)) return;
  try {
    const SafetensorsFolder folder(path_);
    if (!has_mtp_layers(config_, folder)) config_.mtp_layers = 0;
    if (!has_own_head(config_, folder)) return;
  } catch (const UsageError&) {
    return;  // sizes are read without weights; who needs these is told what is wrong with them
  }
  config_.tied = false;
  notes_.push_back(concat(path_, "/config.json ties the output layer to the embedding, but its ",
                          "weights have an lm_head.weight with other values: both are read, and ",
                          "the model counts as not tied"));
}

std::optional<ModelFiles::Form> ModelFiles::origin() const {
  Form form{.type = trained_in_};
  if (checkpoint_) {
    if (!checkpoint_->has_text(kOriginName)) return {};
    const auto origin = nlohmann::json::parse(checkpoint_->text(kOriginName), nullptr, false);
    if (!origin.is_object())
      refuse(checkpoint_->folder(), '/', kOriginName, " is not a JSON object");
    for (const StoredType known : {StoredType::f32, StoredType::bf16, StoredType::f16})
      if (origin.value("type", "") == name_of(known)) form.type = known;
    form.prefix = origin.value("prefix", "");
    return form;
  }
  if (gguf_) return form;
  const SafetensorsFolder folder(path_, format_ == Format::peft ? kAdapterStem : "model");
  std::set<StoredType> types;
  for (const auto& [name, tensor] : folder.tensors()) {
    const StoredType type = tensor.entry->type;
    types.insert(is_float(type) ? type : StoredType::bf16);  // others are packed
  }
  form.type = types.size() == 1 ? *types.begin() : StoredType::f32;
  const Family* const family = find_family(config_);
  for (const auto& [name, tensor] : folder.tensors())
    if (family && !family->prefix.empty() && name.starts_with(family->prefix))
      form.prefix = family->prefix;
  return form;
}

std::unique_ptr<ParameterSource> ModelFiles::source(const ModelConfig& model,
                                                    std::vector<StoredParameter> parameters) const {
  if (checkpoint_) {
    const char* kind = weights_ == StoredWeights::averages ? kAveragesKind : kWeightsKind;
    // Layers that predict further tokens, and of which fewer are wanted.
    const auto passed_over = [&](std::string_view parameter) {
      return model.mtp_layers < config_.mtp_layers &&
             is_beyond(parameter, model.layers + model.mtp_layers);
    };
    return std::make_unique<CheckpointSource>(*checkpoint_, std::move(parameters),
                                              std::vector<std::string>{kind}, passed_over);
  }
  const bool peft = format_ == Format::peft;
  if (gguf_ && config_.tied == model.tied) return gguf_source(gguf_, model, std::move(parameters));
  if (!peft && config_.tied && !model.tied) return untied_source(model, std::move(parameters));
  if (!is_folder(path_))
    refuse(path_, " gives only sizes; to read weights, give the path of their folder");
  return std::make_unique<SafetensorsSource>(
      SafetensorsFolder(path_, peft ? kAdapterStem : "model"), std::move(parameters),
      peft ? adapter_names(model) : base_names(model));
}

void ModelFiles::set_kinds(ModelConfig& model) const {
  if (model.quantize == Quantization::file) model.file_kinds = kinds();
}

KeptKinds ModelFiles::kinds() const {
  KeptKinds::ByName kinds;
  if (gguf_ || (format_ == Format::hugging_face && is_folder(path_))) {
    ModelConfig plain = config_;
    plain.mtp_layers = 0;
    const auto world = make_self();
    const Grid grid(*world, {});
    const auto model = make_model(plain, grid);
    const auto from = source(plain, stored_parameters(model->groups()));
    for (const StoredParameter& one : from->parameters())
      if (const Quantization kind = from->stored_as(one.name);
          kind != Quantization::none && one.cols > 1)
        kinds.emplace(one.name, kind);
    keep_experts_alike(kinds);
  }
  return KeptKinds(std::move(kinds));
}

LoraConfig ModelFiles::adapters_of(const ModelConfig& model) const {
  return format_ == Format::peft ? adapters_in_model(model, config_.lora) : config_.lora;
}

/// The parameters of a model that is not tied any more: its output layer begins as the embedding.
std::unique_ptr<ParameterSource> ModelFiles::untied_source(
    const ModelConfig& model, std::vector<StoredParameter> parameters) const {
  ModelConfig tied = model;
  tied.tied = true;
  MergedSource::Parts parts{.base = source(tied, base_parameters(parameters, true))};
  parts.aliases.emplace(kHeadWeight, find_family(model)->embedding);
  return std::make_unique<MergedSource>(std::move(parameters), std::move(parts), 1);
}

ModelFiles ModelFiles::to_train(const ModelFiles& base) const {
  AXONN_CHECK(merge_, path_, ": these adapters are not only merged");
  if (base.format_ != Format::hugging_face || !is_folder(base.path_))
    refuse(path_, " has base layers, or modules that were trained whole: to train them further, ",
           "model.path must be the Hugging Face folder of their base, not ", base.path_);
  ModelFiles files = of_adapters(path_);
  files.config_.lora = adapters_to_train(*merge_, SafetensorsFolder(path_, kAdapterStem),
                                         SafetensorsFolder(base.path_), base.config_);
  files.merge_ = nullptr;
  return files;
}

bool ModelFiles::untie() const {
  if (merge_) return unties(adapter_tensors(path_));
  return adapters() && changes_ends(config_);
}

std::unique_ptr<ParameterSource> ModelFiles::merged_into(
    const ModelFiles& base_model, const ModelConfig& model,
    std::vector<StoredParameter> parameters) const {
  AXONN_CHECK(merge_, path_, ": these adapters are not only merged");
  ModelConfig base = model;
  base.tied = base_model.config().tied;
  auto source = base_model.source(base, base_parameters(parameters, base.tied));
  return merged_source(std::move(source), SafetensorsFolder(path_, kAdapterStem), *merge_, model,
                       std::move(parameters));
}

bool is_model_file(std::string_view name) {
  return name == "config.json" || name == "adapter_config.json" || name.ends_with(".safetensors") ||
         name.ends_with(".safetensors.index.json") ||
         std::ranges::find(kTokenizerFiles, name) != kTokenizerFiles.end();
}

std::string to_text(const ModelFiles::Form& form) {
  return nlohmann::json{{"type", name_of(form.type)}, {"prefix", form.prefix}}.dump(2) + "\n";
}

std::vector<StoredParameter> stored_parameters(std::span<ParameterGroup* const> groups) {
  std::vector<StoredParameter> all;
  for (const ParameterGroup* group : groups)
    for (const auto& parameter : group->parameters()) {
      const ParameterSpec& spec = parameter->spec();
      all.push_back({spec.name, spec.layout.rows, spec.layout.cols});
    }
  return all;
}

namespace {

/// Lets values that were read go to the file of their memory, if they have one, before there are
/// many of them.
class ReadDestinations {
 public:
  void add(const Destination& to, std::int64_t bytes) {
    constexpr std::int64_t kAtOnce = std::int64_t{64} << 20;
    with_values_.insert(&to);
    bytes_ += bytes;
    if (bytes_ < kAtOnce) return;
    bytes_ = 0;
    for (const Destination* one : std::exchange(with_values_, {})) {
      one->group->put_away();
      for (const Tensor& tensor : one->tensors) tensor.put_away();
    }
  }

 private:
  std::set<const Destination*> with_values_;
  std::int64_t bytes_ = 0;
};

/// Reads a quantized group. Returns the bytes that were read.
std::int64_t quantize(const Context& ctx, ParameterGroup& group, ParameterSource& source) {
  std::int64_t bytes = 0;
  const auto values = [&](const ParameterSpec& spec, const Slice& slice, std::span<float> out) {
    bytes += source.read_slice(spec.name, slice, out);
    ctx.grid.world().note_progress();
  };
  const auto records = [&](const ParameterSpec& spec, std::int64_t first,
                           std::span<std::byte> out) {
    const auto read = source.read_records(spec.name, group.quantization(), first, out);
    bytes += read.value_or(0);
    ctx.grid.world().note_progress();
    return read.has_value();
  };
  group.quantize_values(ctx, values, records);
  group.put_away();
  return bytes;
}

}  // namespace

LoadCost load(const Context& ctx, std::span<const Destination> destinations,
              ParameterSource& source, const Progress& progress) {
  const double began = now_seconds();
  std::vector<SliceRequest> wanted;
  std::vector<const Destination*> destination_of;
  std::int64_t total = 0, done = 0, bytes = 0;  // elements, but `bytes`: of those that are done
  for (const Destination& to : destinations) {
    if (to.group->quantization() != Quantization::none) continue;
    for (const auto& parameter : to.group->parameters()) {
      wanted.push_back(request_for(ctx, to, parameter->spec()));
      destination_of.push_back(&to);
      for (const Slice& slice : wanted.back().slices) total += slice.count();
    }
  }
  std::vector<float> floats;
  ReadDestinations with_values;
  const auto take = [&](std::size_t i, std::int64_t offset, StoredType type,
                        std::span<const std::byte> values) {
    put(ctx, *destination_of[i], offset, type, values, floats);
    with_values.add(*destination_of[i], std::ssize(values));
    bytes += std::ssize(values);
    done += std::ssize(values) / bytes_of(type);
    const double each = static_cast<double>(bytes) / static_cast<double>(done);
    ctx.grid.world().note_progress();
    if (progress) progress(bytes, std::llround(each * static_cast<double>(total)));
  };
  LoadCost cost;
  std::string fault;
  try {
    cost.bytes = source.read(wanted, take);
    for (const Destination& to : destinations)
      if (to.group->quantization() != Quantization::none)
        cost.bytes += quantize(ctx, *to.group, source);
  } catch (const UsageError& error) {  // the files are at fault; other errors end all ranks anyway
    fault = error.what();
  }
  try {
    agree(ctx.grid.world(), "loading " + source.path(), fault);
  } catch (const Aborted&) {
    throw;
  } catch (const Error& error) {
    refuse(error.what());
  }
  for (const Destination& to : destinations)
    if (to.kind == kWeightsKind) to.group->publish_values(ctx);
  cost.seconds = now_seconds() - began;
  return cost;
}

LoadCost initialise(const Context& ctx, Model& model, std::span<ParameterGroup* const> trained,
                    const ModelConfig& config, const OpenFiles& files, const Progress& progress) {
  if (config.lora.rank == 0)  // all groups: a model that is not trained may be quantized
    return load_or_initialise(
        ctx, model.groups(), config,
        {.files = files.model, .path = config.path, .merged = files.adapters.get()}, progress);
  const GroupsBesideAdapters of(model, trained);
  LoadCost cost = initialise_frozen(ctx, model, trained, config, files, progress);
  const auto add = [&](Groups groups, ParameterFiles from) {
    const LoadCost more = load_or_initialise(ctx, groups, config, std::move(from), progress);
    cost.bytes += more.bytes;
    cost.seconds += more.seconds;
  };
  if (config.lora.choices.empty() && !config.lora.path.empty()) {
    add(trained, {.files = files.adapters, .path = config.lora.path});
  } else if (config.lora.choices.empty()) {
    add(of.whole, {.files = files.model, .path = config.path, .also = of.frozen});
    add(of.adapters, {});
    model.initialise_from_others(ctx);
  }
  for (std::size_t i = 0; i < config.lora.choices.size(); ++i) {
    std::vector<ParameterGroup*> groups(trained.begin(), trained.end());
    std::erase_if(groups, [&](const ParameterGroup* group) {
      return !is_of_choice(*group, static_cast<std::int64_t>(i));
    });
    add(groups, {.files = i < files.choices.size() ? files.choices[i] : nullptr,
                 .path = config.lora.choices[i].path});
  }
  return cost;
}

LoadCost initialise_frozen(const Context& ctx, Model& model,
                           std::span<ParameterGroup* const> trained, const ModelConfig& config,
                           const OpenFiles& files, const Progress& progress) {
  const GroupsBesideAdapters of(model, trained);
  return load_or_initialise(ctx, of.frozen, config,
                            {.files = files.model, .path = config.path, .also = of.whole},
                            progress);
}

void check_files(Model& model, Groups trained, const ModelConfig& config, const OpenFiles& files,
                 bool resumes) {
  ParameterFiles base{.files = files.model, .path = config.path},
      adapters{.files = files.adapters, .path = config.lora.path};
  const GroupsBesideAdapters of(model, trained);
  if (config.lora.rank > 0) {
    base.also = of.whole;
    open_source(of.frozen, config, base);
    if (!resumes) open_source(trained, config, adapters);
  } else if (!resumes) {
    base.merged = files.adapters.get();
    open_source(model.groups(), config, base);
  }
}

}  // namespace axonn
