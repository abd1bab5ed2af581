// The keys of rotary positions in config.json.
#include <algorithm>
#include <cmath>
#include <optional>

#include "axonn/foundation/base/check.h"
#include "axonn/network/model/families/llama/types.h"

namespace axonn {

namespace {

/// The object that describes rotary positions. As in transformers 5, rope_scaling, which people add
/// to files of either form, replaces rope_parameters of newer files wholly.
std::optional<JsonReader> rope_object(const JsonReader& file) {
  const auto scaling = file.object("rope_scaling"), parameters = file.object("rope_parameters");
  return scaling && !scaling->empty() ? scaling : parameters ? parameters : scaling;
}

/// A number above 0; 0 if it is missing or 0.
double real_or_0(const JsonReader& file, const char* key) {
  const nlohmann::json* const value = file.find({key});
  return value && *value != 0 ? file.real({key}, 0) : 0;
}

/// YaRN's factor of cosines and sines; 0: the usual one. mscale and mscale_all_dim count if the
/// file has both.
double attention_factor(const JsonReader& rope, double factor) {
  const double given = rope.real({"attention_factor"}, 0), one = real_or_0(rope, "mscale"),
               other = real_or_0(rope, "mscale_all_dim");
  if (given > 0 || one == 0 || other == 0) return given;
  const double growth = factor > 1 ? 0.1 * std::log(factor) : 0;
  return (one * growth + 1) / (other * growth + 1);
}

/// The name of the scaling's kind.
std::string scaling_kind(const JsonReader& rope, const ModelType& type, Unsupported& unsupported) {
  std::string kind = rope.text({"rope_type", "type"}, "default");
  if (type.rope_keys.longrope && (kind == "su" || kind == "yarn")) kind = "longrope";
  if (type.rope_keys.alpha && kind == "dynamic" && rope.real({"alpha"}, 0) > 0) return "default";
  const bool known = type.rope_keys.longrope ? kind == "longrope"
                     : type.by_layer.ropes
                         ? kind == "llama3" || kind == "yarn" || kind == "linear" ||
                               (type.rope_keys.share && kind == "proportional")
                         : kind != "proportional" && std::ranges::find(kRopeScalingKinds, kind) !=
                                                         kRopeScalingKinds.end();
  if (kind == "default" || known) return kind;
  unsupported.push_back("rope scaling '" + kind + "'");
  return "default";
}

/// Reads a scaling of the frequencies, whose factors have no defaults, but for that of longrope,
/// which is 0 if it is missing. `positions`: those before scaling if the object does not say.
RopeScaling read_scaling(const JsonReader& rope, const ModelType& type, std::int64_t positions,
                         Unsupported& unsupported) {
  RopeScaling scaling;
  const std::string kind = scaling_kind(rope, type, unsupported);
  if (kind == "default") return scaling;
  if (kind == "proportional")
    return {.kind = RopeScalingKind::proportional,
            .factor = 1,
            .share = rope.real({"partial_rotary_factor"}, 1)};
  if (kind == "linear")
    return {.kind = RopeScalingKind::linear, .factor = rope.needed_real("factor")};
  scaling.original_positions =
      rope.integer({"original_max_position_embeddings"}, kMostRows).value_or(positions);
  if (kind == "longrope") {
    scaling.kind = RopeScalingKind::longrope;
    scaling.factor = rope.real({"factor"}, 0);
    scaling.attention_factor = rope.real({"attention_factor"}, 0);
    scaling.short_factors = rope.needed_reals("short_factor");
    scaling.long_factors = rope.needed_reals("long_factor");
    return scaling;
  }
  scaling.factor = rope.needed_real("factor");
  if (kind == "llama3") {
    scaling.kind = RopeScalingKind::llama3;
    scaling.low_freq_factor = rope.needed_real("low_freq_factor");
    scaling.high_freq_factor = rope.needed_real("high_freq_factor");
    return scaling;
  }
  scaling.kind = RopeScalingKind::yarn;
  if (const double fast = real_or_0(rope, "beta_fast"); fast > 0) scaling.beta_fast = fast;
  if (const double slow = real_or_0(rope, "beta_slow"); slow > 0) scaling.beta_slow = slow;
  scaling.attention_factor = attention_factor(rope, scaling.factor);
  return scaling;
}

void need_whole_heads(const JsonReader& rope, Unsupported& unsupported) {
  if (rope.real({"partial_rotary_factor"}, 1) != 1)
    unsupported.push_back("partial_rotary_factor other than 1");
}

/// The base of a model whose object has alpha, with which HunYuan lengthened its sequences.
double stretched_base(const ModelConfig& model, const JsonReader& rope) {
  const auto width = static_cast<double>(model.rotary_width());
  const double alpha = rope.real({"alpha"}, 0);
  for (const char* const key : {"factor", "beta_fast", "beta_slow", "mscale", "mscale_all_dim"})
    rope.find({key});  // they change nothing beside alpha
  return alpha > 0 ? model.rope_theta * std::pow(alpha, width / (width - 2)) : model.rope_theta;
}

}  // namespace

void read_rope(const JsonReader& file, const ModelType& type, ModelConfig& model,
               Unsupported& unsupported) {
  const auto read_common = [&](const JsonReader& from) {
    model.rope_theta = from.real({"rope_theta"}, model.rope_theta);
    if (type.rope_keys.part)
      model.partial_rotary_factor =
          from.real({"partial_rotary_factor"}, model.partial_rotary_factor);
    else
      need_whole_heads(from, unsupported);
  };
  const auto rope = rope_object(file);
  // A type that scales by default has its own base, too, unless the file describes both.
  if (rope || model.rope.kind == RopeScalingKind::none) read_common(file);
  if (type.rope_keys.growth && !(rope && rope->find({"llama_4_scaling_beta"})))
    unsupported.emplace_back("rope_parameters without llama_4_scaling_beta");
  if (!rope) return;
  model.rope.kind = RopeScalingKind::none;
  if (rope->has_objects())
    return unsupported.push_back("rope_parameters of several kinds of layers");
  read_common(*rope);
  if (type.rope_keys.sections)
    for (const char* const key : {"mrope_section", "mrope_interleaved"}) rope->find({key});
  model.rope = read_scaling(*rope, type, model.positions, unsupported);
  if (type.rope_keys.alpha) model.rope_theta = stretched_base(model, *rope);
  if (type.rope_keys.growth) model.query_growth = real_or_0(*rope, "llama_4_scaling_beta");
  if (model.query_growth > 0)
    model.rope.original_positions = rope->needed({"original_max_position_embeddings"}, kMostRows);
  if (model.rope.kind == RopeScalingKind::none) return;
  constexpr std::int64_t kPhis = 4096;  // what a missing key means there, whatever the object says
  model.rope.original_positions =
      file.integer({"original_max_position_embeddings"}, kMostRows)
          .value_or(type.rope_keys.longrope ? kPhis : model.rope.original_positions);
  if (model.rope.factor == 0) model.rope.factor = longrope_factor(model);
  if (model.rope.kind == RopeScalingKind::yarn) model.rope.truncate = rope->flag("truncate", true);
}

void read_ropes(const JsonReader& file, const ModelType& type, ModelConfig& model,
                Unsupported& unsupported) {
  const double usual = model.rope_theta, outer = file.real({"rope_theta"}, usual);
  need_whole_heads(file, unsupported);
  const auto both = file.object("rope_parameters");
  if (both && !both->empty() && !both->has_objects())
    return unsupported.push_back("rope_parameters that are not by kind of layer");
  const auto read = [&](const std::optional<JsonReader>& rope, double& theta) {
    if (!rope) return RopeScaling{};
    theta = rope->real({"rope_theta"}, theta);
    if (rope->text({"rope_type"}, "") != "proportional") need_whole_heads(*rope, unsupported);
    return read_scaling(*rope, type, model.positions, unsupported);
  };
  const auto of_kind = [&](const char* kind) { return both ? both->object(kind) : std::nullopt; };
  const auto full = of_kind("full_attention"), sliding = of_kind("sliding_attention"),
             older = file.object("rope_scaling");
  model.rope_theta = outer;
  model.rope = read(full, model.rope_theta);
  if (older && !older->empty()) {
    const RopeScaling other = read(older, model.rope_theta);
    if (model.rope.kind != RopeScalingKind::none && other != model.rope)
      unsupported.push_back("a rope_scaling other than rope_parameters.full_attention");
    model.rope = other;
  }
  const char* const older_theta = type.by_layer.window_theta;
  double theta = older_theta ? file.real({older_theta}, type.defaults.window_rope_theta) : 0;
  const RopeScaling scaling = read(sliding, theta);
  if (theta == 0 && outer != usual)
    unsupported.push_back(concat("rope_theta other than ", usual, " without one in rope_parameters",
                                 ".sliding_attention (transformers 4 and 5 differ)"));
  if (theta == 0) theta = usual;
  model.window_rope_theta = theta == model.rope_theta ? 0 : theta;
  model.window_rope_scaling = scaling == model.rope;
  if (scaling.kind != RopeScalingKind::none && scaling != model.rope)
    unsupported.push_back("a scaling of sliding_attention of its own in rope_parameters");
}

double read_score_growth(const JsonReader& file, const ModelConfig& model) {
  const auto rope = rope_object(file);
  const double all = rope ? real_or_0(*rope, "mscale_all_dim") : 0;
  const bool scaled = model.rope.kind != RopeScalingKind::none && model.rope.factor > 1;
  const double root = scaled ? 0.1 * all * std::log(model.rope.factor) + 1 : 1;
  return root * root;
}

void write_score_growth(double growth, const ModelConfig& model, JsonObject& out) {
  if (growth == 1) return;
  out["rope_scaling"]["mscale_all_dim"] =
      (std::sqrt(growth) - 1) / (0.1 * std::log(model.rope.factor));
}

double longrope_factor(const ModelConfig& model) {
  return static_cast<double>(model.positions) / static_cast<double>(model.rope.original_positions);
}

nlohmann::json rope_scaling_keys(const RopeScaling& scaling) {
  if (scaling.kind == RopeScalingKind::none) return {{"rope_type", "default"}};
  if (scaling.kind == RopeScalingKind::linear)
    return {{"rope_type", "linear"}, {"factor", scaling.factor}};
  if (scaling.kind == RopeScalingKind::proportional)
    return {{"rope_type", "proportional"}, {"partial_rotary_factor", scaling.share}};
  nlohmann::json keys = {{"factor", scaling.factor},
                         {"original_max_position_embeddings", scaling.original_positions},
                         {"rope_type", kRopeScalingKinds[static_cast<int>(scaling.kind)]}};
  if (scaling.kind == RopeScalingKind::llama3) {
    keys["high_freq_factor"] = scaling.high_freq_factor;
    keys["low_freq_factor"] = scaling.low_freq_factor;
    return keys;
  }
  if (scaling.attention_factor > 0) keys["attention_factor"] = scaling.attention_factor;
  if (scaling.kind == RopeScalingKind::longrope) {
    keys["short_factor"] = scaling.short_factors;
    keys["long_factor"] = scaling.long_factors;
    return keys;
  }
  keys["beta_fast"] = scaling.beta_fast;
  keys["beta_slow"] = scaling.beta_slow;
  if (!scaling.truncate) keys["truncate"] = false;
  return keys;
}

void write_ropes(const ModelConfig& model, JsonObject& out) {
  nlohmann::json full = rope_scaling_keys(model.rope),
                 sliding =
                     rope_scaling_keys(model.window_rope_scaling ? model.rope : RopeScaling{});
  full["rope_theta"] = model.rope_theta;
  sliding["rope_theta"] = model.window_rope_theta > 0 ? model.window_rope_theta : model.rope_theta;
  out["rope_parameters"] = {{"full_attention", full}, {"sliding_attention", sliding}};
}

void need_plain_rope(const ModelConfig& model, Unsupported& unsupported) {
  if (model.rope.kind != RopeScalingKind::none)
    unsupported.push_back(
        concat("rope_scaling = ", kRopeScalingKinds[static_cast<int>(model.rope.kind)]));
}

}  // namespace axonn
