#include "axonn/data/text/model_text.h"

#include <algorithm>
#include <array>

#include <nlohmann/json.hpp>

#include "axonn/data/text/gguf_text.h"
#include "axonn/foundation/base/check.h"
#include "axonn/foundation/base/files.h"
#include "axonn/foundation/base/json_node.h"

namespace axonn {

namespace {

/// Keys of generation_config.json that change no answer here.
constexpr std::array<std::string_view, 30> kHarmlessGenerationKeys = {
    // Who wrote the file.
    "_from_model_config", "_commit_hash", "transformers_version", "generation_config_class",
    // Tokens before an answer, which the tokenizer's files have.
    "bos_token_id", "decoder_start_token_id",
    // Sampling, and the length of an answer, which flags and requests state.
    "do_sample", "temperature", "top_k", "top_p", "min_p", "repetition_penalty", "max_length",
    "max_new_tokens", "max_time", "num_return_sequences",
    // What a call returns, and how it computes that.
    "cache_implementation", "disable_compile", "low_memory", "output_attentions",
    "output_hidden_states", "output_logits", "output_scores", "prefill_chunk_size",
    "remove_invalid_values", "renormalize_logits", "return_dict_in_generate", "use_cache",
    // Drafts of answers, which a larger model accepts or not.
    "assistant_confidence_threshold", "num_assistant_tokens"};

/// The tokens of a number or a list of numbers.
std::vector<std::int32_t> tokens_at(const JsonNode& node) {
  std::vector<std::int32_t> tokens;
  if (node.is_null()) return tokens;
  for (const JsonNode& each : node.is_array() ? node.items() : std::vector{node}) {
    const bool none = !each.is_text() && each.got().starts_with('-');
    if (!none) tokens.push_back(static_cast<std::int32_t>(each.number()));
  }
  return tokens;
}

/// Adds to `text` what a file states and `text` does not yet have.
void read_tokens(const std::string& path, ModelText& text) {
  if (!path_exists(path)) return;
  const TextFile file(path);
  const JsonNode node = JsonNode::parse(file.text(), path);
  // The second is that of the text model of a model that also sees images.
  for (const JsonNode& object : {node, node["text_config"]}) {
    if (object.is_null()) continue;
    const auto ends = tokens_at(object["eos_token_id"]), pads = tokens_at(object["pad_token_id"]);
    if (text.ends.empty())
      for (const std::int32_t token : ends) text.add_end(token);
    if (!text.pad && !pads.empty()) text.pad = pads.front();
  }
}

}  // namespace

void ModelText::add_end(std::int32_t token) {
  if (std::ranges::find(ends, token) == ends.end()) ends.push_back(token);
}

std::string to_json(const ModelText& text) {
  nlohmann::ordered_json out{{"tokenizer", text.tokenizer}, {"eos_token_id", text.ends}};
  if (text.pad) out["pad_token_id"] = *text.pad;
  if (!text.arguments.empty()) out["chat_template_args"] = text.arguments;
  for (const ChatFormat::Form& form : text.forms)
    out["chat_template"].push_back({{"name", form.name}, {"template", form.text}});
  // A template or a path may hold invalid UTF-8, which JSON cannot.
  return out.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + '\n';
}

ModelText parse_model_text(std::string_view json, const std::string& file) {
  const JsonNode node = JsonNode::parse(json, file);
  ModelText text{.tokenizer = node["tokenizer"].text_or(""),
                 .arguments = node["chat_template_args"].text_or(""),
                 .ends = tokens_at(node["eos_token_id"])};
  if (const auto pads = tokens_at(node["pad_token_id"]); !pads.empty()) text.pad = pads.front();
  const JsonNode forms = node["chat_template"];
  bool usable = forms.is_null();
  for (const JsonNode& form : forms.items()) {
    text.forms.push_back({form["name"].text(), file + ": chat_template", form["template"].text()});
    usable = usable || text.forms.back().name == "default";
  }
  if (!usable) forms.reject("no entry is named \"default\"");
  return text;
}

ModelText read_model_text(const std::string& folder) {
  ModelText text;
  read_tokens(folder + "/generation_config.json", text);
  read_tokens(folder + "/config.json", text);
  return text;
}

std::string generation_note(const std::string& folder) {
  const std::string path = folder + "/generation_config.json";
  if (!path_exists(path)) return {};
  const TextFile file(path);
  const JsonNode node = JsonNode::parse(file.text(), path);
  node.pass_over({"eos_token_id", "pad_token_id"});
  const std::string unread = node.unread(kHarmlessGenerationKeys);
  return unread.empty() ? "" : concat(path, ": not followed: ", unread);
}

ModelText read_generation(const std::string& path) {
  ModelText text;
  read_tokens(path, text);
  return text;
}

ModelText text_beside(const std::string& tokenizer) {
  if (is_gguf(tokenizer)) return read_gguf_text(GgufFile(tokenizer));
  ModelText text;
  if (!tokenizer.empty() && tokenizer != "bytes")
    text = read_model_text(tokenizer_folder(tokenizer));
  text.tokenizer = tokenizer;
  return text;
}

std::vector<ChatFormat::Form> forms_beside(const std::string& tokenizer) {
  std::vector<ChatFormat::Form> forms = chat_format_in(tokenizer).forms;
  if (std::ranges::find(forms, "default", &ChatFormat::Form::name) == forms.end()) forms.clear();
  return forms;
}

ModelText with_adapters(ModelText base, const ModelText& adapters) {
  // The base may have moved since the adapters were trained, and its tokenizer with it.
  const bool there = adapters.tokenizer != "bytes" && path_exists(adapters.tokenizer);
  if (base.tokenizer.empty() || there) base.tokenizer = adapters.tokenizer;
  if (!adapters.forms.empty()) {
    base.forms = adapters.forms;
    base.arguments = adapters.arguments;
  }
  if (!adapters.ends.empty()) base.ends = adapters.ends;
  if (adapters.pad) base.pad = adapters.pad;
  return base;
}

ChatFormat find_chat_format(const std::string& name, const ModelText& text) {
  if (name != "auto" || text.forms.empty()) return find_chat_format(name, text.tokenizer);
  ChatFormat format = chat_format_in(text.tokenizer);
  format.forms = text.forms;
  return format;
}

ChatArguments chat_arguments(const std::string& name, const std::string& given,
                             const ModelText& text, const std::string& key) {
  const bool own = given.empty() && name == "auto";
  return parse_chat_arguments(own ? text.arguments : given, key);
}

ModelText with_tokenizer(const ModelText* text, const std::string& tokenizer) {
  ModelText own = text ? *text : ModelText();
  own.tokenizer = tokenizer;
  return own;
}

std::vector<std::int32_t> stop_tokens(const ModelText& text, const Tokenizer& tokenizer) {
  ModelText all = text;
  if (const auto end = tokenizer.end_of_text()) all.add_end(*end);
  return all.ends;
}

}  // namespace axonn
