#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "axonn/data/storage/gguf.h"
#include "axonn/data/storage/parameter_source.h"
#include "axonn/data/storage/safetensors/safetensors_source.h"
#include "axonn/network/model/config.h"

namespace axonn {

class GgufModelKeys;
class Grid;
class JsonReader;
class Model;
struct JsonObject;
struct ModelType;
class OptionList;

/// Values of a model or file that a reader or writer does not support, for one message.
using Unsupported = std::vector<std::string>;

/// All that the library knows of a family: its keys, its model, and its files. families() lists
/// them; a program registers its own with register_architecture() instead.
struct Family {
  std::string_view name;  ///< the value of model.family

  /// Adds the keys of [model] that only this family reads.
  void (*list_options)(ModelConfig&, OptionList&);
  /// Throws UsageError for values that do not fit one another; sizes and heads are checked before.
  void (*validate)(const ModelConfig&);
  /// Makes this rank's part of a model from a resolved config.
  std::unique_ptr<Model> (*make)(const ModelConfig&, const Grid&);
  /// Sets the options with which a dense model has every operation of the family.
  void (*use_all_operations)(ModelConfig&);

  /// The forms in which its models are published.
  std::span<const ModelType> (*types)();
  /// Whether a model with these options is published in that form.
  bool (*is_of_type)(const ModelConfig&, const ModelType&);
  /// The options by which is_of_type() tells forms apart: "qkv_bias = true"; "" if all have their
  /// defaults.
  std::string (*type_options)(const ModelConfig&);
  /// Reads a config.json; adds features that models here do not have.
  ModelConfig (*read_config)(const JsonReader& file, const ModelType&, Unsupported&);
  /// Adds the keys that all types of the family have, and those that ModelType states.
  void (*write_config)(const ModelConfig&, const ModelType&, JsonObject& out);
  /// Adds values that a type does not support because it is not like others of the family.
  void (*check)(const ModelConfig&, const ModelType&, Unsupported&) = nullptr;
  /// How a Hugging Face folder of this type, null for a model of none, stores a parameter.
  StoredName (*stored_name)(const ModelConfig&, const ModelType*, const std::string& parameter);
  std::string_view embedding = {};  ///< the parameter that is the output layer's, too, if tied
  /// In front of all names in some folders: "transformer."; "" if there is none.
  std::string_view prefix = {};
  /// llama.cpp's name of a parameter; "" if it has none. Null if no type is in GGUF.
  std::string (*gguf_name)(const ModelConfig&, const std::string& parameter) = nullptr;
  bool conv1d = false;  ///< files store the weights of products transposed, as GPT-2's
};

/// How llama.cpp reads YaRN in an architecture: not as files here could say it; with a factor of
/// cosines and sines; or with DeepSeek's factor of scores, the former being 1.
enum class GgufYarn { none, rotary, scores };

/// How llama.cpp stores a type's models.
struct GgufForm {
  std::string_view architecture = {};      ///< "" if it does not, or not as files here are written
  bool interleaved = false;                ///< the rows of queries and keys
  bool biases = false;                     ///< it reads those of all products
  std::string_view mlp_norm = "ffn_norm";  ///< the norm before the MLP
  bool windows = false;  ///< llama.cpp attends to the window alone, where the type has it
  /// Every so many layers the last one has no window there, or no rotary positions; 0: no layer.
  std::int64_t full_every = 0, nope_every = 0;
  bool partial_rotary = false;  ///< it rotates a part of a head's columns
  bool experts = false;         ///< it has experts, all of a layer in a tensor
  bool gate_in_up = false;      ///< the gate's rows come before those of ffn_up, in its tensor
  GgufYarn yarn = GgufYarn::none;
  /// It has linear scaling, and the rotary frequencies of Gemma 3's layers with the window.
  bool linear_and_window_ropes = false;
  /// Names of parameters that others do not have, or otherwise: in blocks, and without "model.".
  std::span<const std::array<std::string_view, 2>> names = {};
  /// Says how a parameter lies in its tensor; null: as it is.
  void (*arrange)(const ModelConfig&, const std::string& parameter, GgufTensor&) = nullptr;
  /// What divides the rotary frequencies, a tensor; null: nothing but Llama 3.1's.
  std::vector<float> (*rope_factors)(const ModelConfig&) = nullptr;
  /// Further keys, and other values of those that all have, without the architecture:
  /// "logit_scale"; null: there are none.
  GgufKeys (*keys)(const ModelConfig&) = nullptr;
  /// Sets options that follow from further keys, or that the type has there; null: there are none.
  void (*read)(const GgufModelKeys&, ModelConfig&) = nullptr;
  /// Parameters with this in their names are not tensors, but numbers of lists that have one for
  /// each layer, of values(); the list's key is kept_key and the rest of the name: "xielu.alpha_p".
  std::string_view kept_in_keys = {}, kept_key = {};
  GgufKeys (*values)(const ModelConfig&, ParameterSource&) = nullptr;
  /// Adds values, "tied = true", with which llama.cpp computes another model; null: there are none.
  void (*check)(const ModelConfig&, Unsupported&) = nullptr;
};

/// A form in which models of a family are published: a model_type of Hugging Face's config.json.
struct ModelType {
  std::string_view name, architecture;  ///< "qwen3", "Qwen3ForCausalLM"
  /// The options that make a model one of this type, and the values that transformers gives to keys
  /// that a file does not have. Has ModelConfig::type if another type may have the same options.
  ModelConfig defaults = {};
  /// What its files say of single layers.
  struct {
    bool windows = false;  ///< which have the window
    bool nopes = false;    ///< which have no rotary positions: none or some
    bool ropes = false;    ///< the rotary frequencies of those with the window and of the others
    /// In older files, the key of the base of those with the window; null: there was none.
    const char* window_theta = nullptr;
  } by_layer = {};
  /// The biases that its files have keys for.
  struct {
    bool attention = false;  ///< attention_bias: of queries, keys, values and the output projection
    bool qkv = false;        ///< attention_bias: of queries, keys and values
    bool out = false;        ///< attention_out_bias: of the output projection
    bool mlp = false;        ///< mlp_bias
    bool all = false;        ///< use_bias: of all products
  } bias_keys = {};
  const char* norm_key = "rms_norm_eps";  ///< of the eps of norms
  /// What its files can say of rotary positions, beside what those of Llama can.
  struct {
    bool part = false;      ///< partial_rotary_factor
    bool longrope = false;  ///< no scaling but longrope, which has older names, as in Phi-3
    bool alpha = false;     ///< a scaling, "dynamic", that multiplies the base, as in HunYuan
    bool growth = false;    ///< llama_4_scaling_beta: ModelConfig::query_growth
    bool pairs = false;     ///< rope_interleave: ModelConfig::rope_pairs
    bool share = false;     ///< the scaling proportional, of layers without the window
    bool sections = false;  ///< mrope_section: positions in images, which text has none of
  } rope_keys = {};
  /// The factors that its files have, ModelConfig::embedding_scale and so on.
  struct {
    bool embedding = false, attention = false, residual = false, logit = false;
    bool caps = false;  ///< ModelConfig::score_cap and logit_cap
  } scale_keys = {};
  bool groups_experts = false;  ///< n_group and topk_group: ModelConfig::expert_groups
  /// Folders may have layers that predict further tokens (ModelConfig::mtp_layers), which
  /// transformers passes over.
  struct Further {
    const char* key = nullptr;  ///< says how many; null: there are none
    std::int64_t silent = 0;    ///< how many there may be without the key; the weights tell
    bool named = false;  ///< at most one, called mtp; else they are layers behind the model's
  } further = {};
  /// A model is of this type if ModelConfig::type says so; norms of queries and keys and an MLP
  /// beside experts are as it likes.
  bool is_named = false;
  bool dense_or_experts = false;  ///< its models have experts or none, whatever the defaults say
  /// Whether a model with the same options as the defaults is one of this type; null: it is.
  bool (*fits)(const ModelConfig&) = nullptr;
  /// Published models: sizes by name. The names are choices of model.name.
  std::vector<ModelConfig> (*known)() = nullptr;

  // Null: the type has nothing of its own there.

  /// Reads the keys that other types of the family do not have, or mean otherwise.
  void (*read)(const JsonReader& file, ModelConfig&, Unsupported&) = nullptr;
  /// Writes them.
  void (*write)(const ModelConfig&, JsonObject& out) = nullptr;
  /// Adds values, "window = 64", that the type does not support.
  void (*check)(const ModelConfig&, Unsupported&) = nullptr;
  /// Changes the names of a parameter in its folders.
  void (*rename)(const ModelConfig&, const std::string& parameter, StoredName&) = nullptr;
  /// Numbers that its folders store.
  std::vector<StoredNumber> (*numbers)(const ModelConfig&) = nullptr;
  GgufForm gguf = {};
};

/// The families of this library, in the order of ModelFamily.
std::span<const Family* const> families();
/// Null for a family that a program registered.
const Family* find_family(const ModelConfig& model);
/// The type of a model of a family; null if none has its options.
const ModelType* find_type(const Family& family, const ModelConfig& model);
/// The same; throws UsageError with the options, and the types that there are.
const ModelType& need_type(const Family& family, const ModelConfig& model);

/// Why a model does not read the keys of a family: another has it, or a file its sizes. "" if it
/// reads them, or if that is not known of a registered family.
std::string why_unread(const Family& family, const ModelConfig& model);
/// The reason if a file has the model's sizes; else "".
std::string why_sizes_unread(const ModelConfig& model);

/// Sizes of a published model.
struct KnownSizes {
  const char* name;
  std::int64_t layers, hidden, heads, kv_heads = 0, ffn = 0;
};
/// Adds models that differ from `model` in their sizes.
void add_known(std::vector<ModelConfig>& models, ModelConfig model,
               std::initializer_list<KnownSizes> all);

}  // namespace axonn
