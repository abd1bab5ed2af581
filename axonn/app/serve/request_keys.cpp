#include "axonn/app/serve/request_keys.h"

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "axonn/foundation/base/check.h"

namespace axonn {

namespace {

/// Keys with the same use. A name that ends with "*" is of all keys that begin so.
struct KeyGroup {
  // The kinds of requests that use them, or harmless: all do, and they change nothing.
  enum Use : unsigned char {
    refused = 0,
    completions = static_cast<unsigned char>(RequestKind::completion),
    chats = static_cast<unsigned char>(RequestKind::chat),
    texts = completions | chats,
    responses = static_cast<unsigned char>(RequestKind::response),
    messages = static_cast<unsigned char>(RequestKind::message),
    with_tools = chats | responses | messages,
    generating = texts | responses | messages,
    embeddings = static_cast<unsigned char>(RequestKind::embedding),
    openai_chats = chats | responses,
    of_messages = chats | messages,
    of_stop = texts | responses,
    of_limit = texts | messages,
    of_input = responses | embeddings,
    all = generating | embeddings,
    harmless = 128
  };
  Use use;
  const char* plain;   // JSON of the value that changes nothing, beside null; "" if there is none
  const char* remedy;  // said after "not supported"
  std::string_view names;  // separated by spaces
};
using Use = KeyGroup::Use;

constexpr std::size_t kMostUnknown = 16, kLongestUnknown = 100;  // keys, and bytes of each

constexpr const char* kLimit = "; use max_tokens";
constexpr const char* kForTexts = "; it is for /v1/completions and /v1/chat/completions";
constexpr const char* kForTools = "; it is for requests of chats";
constexpr const char* kForResponses = "; it is for /v1/responses";
constexpr const char* kTopLevel = "; write its members beside the request's other keys";

constexpr KeyGroup kKeys[] = {
    {Use::all, "", "", "model"},
    {Use::generating, "", "; it is for requests that generate text",
     "temperature top_p top_k stream seed repetition_penalty stop_token_ids ignore_eos "
     "presence_penalty frequency_penalty min_p min_tokens logit_bias guided_json guided_choice "
     "guided_regex guided_grammar grammar ebnf structured_outputs json_schema"},
    {Use::of_stop, "", "; messages have stop_sequences", "stop"},
    {Use::of_limit, "", "; responses have max_output_tokens", "max_tokens"},
    {Use::texts, "", "; responses have text.format", "response_format"},
    {Use::texts, "1", kForTexts, "n"},
    {Use::texts, "false", kForTexts, "logprobs"},
    {Use::texts, R"({"include_obfuscation":false})", kForTexts, "stream_options"},
    {Use::completions, "", "; it is for /v1/completions", "prompt"},
    {Use::completions, "false", "; it is for /v1/completions", "echo"},
    {Use::completions, "1", "; it is for /v1/completions", "best_of"},
    {Use::texts, "false", kForTexts, "use_beam_search early_stopping"},
    {Use::texts, "1", kForTexts, "length_penalty"},
    {Use::completions, "\"\"", "; it is for /v1/completions", "suffix"},
    {Use::of_messages, "", kForTools, "messages"},
    {Use::chats, "", "; it is for /v1/chat/completions", "max_completion_tokens"},
    {Use::messages, "", "; use stop", "stop_sequences"},
    {Use::messages, "", "; use a message of the role system", "system"},
    {Use::with_tools, "", kForTools, "chat_template_kwargs"},
    {Use::with_tools, "[]", kForTools, "tools documents"},
    {Use::with_tools, "\"none\"", kForTools, "tool_choice"},
    {Use::chats, "\"none\"", "; it is for /v1/chat/completions", "reasoning_effort"},
    {Use::openai_chats, "0", "; it is for /v1/chat/completions and /v1/responses", "top_logprobs"},
    {Use::openai_chats, "true", kForTools, "parallel_tool_calls"},
    {Use::chats, "true", "; it is for /v1/chat/completions", "add_generation_prompt"},
    {Use::chats, "false", "; it is for /v1/chat/completions", "continue_final_message"},
    {Use::responses, "", kForResponses, "instructions text reasoning include"},
    {Use::responses, "", kLimit, "max_output_tokens"},
    {Use::refused, "", "; the server keeps no responses: send the earlier items in input",
     "previous_response_id conversation"},
    {Use::refused, "false", "", "background"},
    {Use::refused, "\"disabled\"", "; shorten the input", "truncation"},
    {Use::refused, "", "", "max_tool_calls context_management"},
    {Use::of_input, "", "; it is for /v1/embeddings and /v1/responses", "input"},
    {Use::embeddings, "\"float\"", "; it is for /v1/embeddings", "encoding_format"},
    {Use::embeddings, "", "; it is for /v1/embeddings", "pooling"},
    {Use::refused, "", "; embeddings have the model's width alone", "dimensions"},
    {Use::refused, "true", "; embeddings are of length 1", "normalize"},
    {Use::refused, "2", "; embeddings are of length 1", "embd_normalize"},
    {Use::refused, "", "; write it before each text", "input_type prompt_name"},
    // They concern accounts, caches, speed and the form of usage.
    {Use::harmless, "", "",
     "user metadata store service_tier safety_identifier prompt_cache_key prompt_cache_retention "
     "prediction priority request_id rid cache_salt cache_prompt id_slot timings_per_token "
     "return_progress keep_alive kv_transfer_params guided_decoding_backend user_id session_id"},
    // Anthropic's.
    {Use::harmless, "", "", "cache_control inference_geo speed"},
    {Use::refused, "", "; use guided_json for the form of the text", "output_config output_format"},
    {Use::refused, "", "", "container mcp_servers"},
    // OpenAI's.
    {Use::refused, "[\"text\"]", "; models write text alone", "modalities"},
    {Use::refused, "\"medium\"", "", "verbosity"},
    {Use::refused, "", "; use tools", "functions function_call"},
    {Use::refused, "", "", "audio web_search_options moderation"},
    {Use::refused, "", kTopLevel, "extra_body sampling_params options"},
    // Other names of what is supported.
    {Use::refused, "", kLimit,
     "n_predict num_predict max_new_tokens max_length max_tokens_to_sample"},
    {Use::refused, "0", "; use min_tokens", "min_new_tokens min_length"},
    {Use::refused, "1", "; use repetition_penalty", "repeat_penalty"},
    {Use::refused, "", "; use stop", "stop_strings"},
    {Use::refused, "", "; use seed", "random_seed"},
    {Use::refused, "1", "; use n", "num_return_sequences"},
    {Use::refused, "1", "; use use_beam_search with n, and best_of if there are more beams",
     "num_beams beam_width"},
    {Use::refused, "", "; use chat_template_kwargs", "enable_thinking thinking think"},
    {Use::refused, "", "; use response_format", "format"},
    // What the text must be like.
    {Use::refused, "", "",
     "guided_* grammar_* preserved_tokens regex "
     "structural_tag bad_words* allowed_token_ids custom_token_bans suppress_tokens "
     "begin_suppress_tokens force_words_ids sequence_bias forced_* banned_strings banned_tokens "
     "stop_regex ban_eos_token exponential_decay_length_penalty logits_processors "
     "custom_logit_processor custom_params vllm_xargs repetition_detection"},
    // How tokens are drawn.
    {Use::refused, "1", "", "typical_p typical top_n_sigma_scale tfs tfs_z"},
    {Use::refused, "0", "",
     "xtc_probability mirostat mirostat_mode dry_multiplier no_repeat_ngram_size dynatemp_range "
     "top_a epsilon_cutoff eta_cutoff smoothing_factor penalty_alpha min_keep "
     "encoder_no_repeat_ngram_size n_probs n_keep n_indent n_discard t_max_predict_ms"},
    {Use::refused, "-1", "", "top_n_sigma nsigma adaptive_target repeat_last_n"},
    {Use::refused, "false", "",
     "dynamic_temperature temperature_last penalize_nl ignore_eot add_bos_token"},
    {Use::refused, "", "",
     "mirostat_* xtc_* dry_* dynatemp_* samplers sampler_* penalty_prompt adaptive_decay "
     "encoder_repetition_penalty guidance_scale negative_prompt cfg_scale diversity_penalty "
     "smoothing_curve repetition_penalty_range lora lora_path lora_request token_healing"},
    // What the model reads.
    {Use::refused, "", "",
     "truncate_prompt_tokens truncation_side prompt_embeds chat_template mm_processor_kwargs "
     "media_io_kwargs images image_data multimodal_data input_prefix input_suffix input_extra "
     "template raw prefix prefill assistant_prefix safe_prompt system_prompt context "
     "chat_format session_params transforms plugins"},
    // A prompt of a chat has the template's own tokens alone, that of a completion begins as
    // encode_prompt() has it.
    {Use::refused, "", "", "add_special_tokens"},
    // What the answer has.
    {Use::refused, "true", "; use temperature", "do_sample"},
    {Use::refused, "true", "",
     "detokenize skip_special_tokens spaces_between_special_tokens include_reasoning "
     "separate_reasoning "
     "stream_reasoning parse_tool_calls"},
    {Use::refused, "false", "",
     "include_stop_str_in_output no_stop_trim return_tokens_as_token_ids return_token_ids "
     "return_tokens return_hidden_states return_full_text post_sampling_probs "
     "decoder_input_details thinking_forced_open"},
    {Use::refused, "\"auto\"", "", "reasoning_format"},
    {Use::refused, "", "",
     "prompt_logprobs logprob_token_ids logprob_start_len top_logprobs_num token_ids_logprob "
     "response_fields thinking_token_budget thinking_budget reasoning_budget"},
};

/// Calls f(group, name) for each name of the table.
template <typename F>
void for_names(const F& f) {
  for (const KeyGroup& group : kKeys)
    for (std::string_view rest = group.names; !rest.empty();) {
      const std::string_view name = rest.substr(0, rest.find(' '));
      f(group, name);
      rest.remove_prefix(std::min(name.size() + 1, rest.size()));
    }
}

/// Finds groups by key. A request may have very many keys.
class KeyIndex {
 public:
  KeyIndex() {
    for_names([this](const KeyGroup& group, std::string_view name) {
      if (name.ends_with('*'))
        beginnings_.emplace_back(name.substr(0, name.size() - 1), &group);
      else
        names_.emplace(name, &group);
    });
  }
  /// The group of the key's name, or else of one that it begins with; null if it is unknown.
  const KeyGroup* find(std::string_view key) const {
    if (const auto found = names_.find(key); found != names_.end()) return found->second;
    const auto found = std::ranges::find_if(
        beginnings_, [&](const auto& each) { return key.starts_with(each.first); });
    return found == beginnings_.end() ? nullptr : found->second;
  }

 private:
  std::unordered_map<std::string_view, const KeyGroup*> names_;
  std::vector<std::pair<std::string_view, const KeyGroup*>> beginnings_;
};

bool is_used(const KeyGroup& group, RequestKind kind) {
  return (group.use & static_cast<unsigned char>(kind)) != 0;
}

}  // namespace

std::vector<std::string> check_keys(const RequestBody& body, RequestKind kind) {
  static const KeyIndex index;
  std::vector<std::string> unknown;
  for (const auto& [key, value] : body.json().items()) {
    const KeyGroup* group = index.find(key);
    if (!group && unknown.size() < kMostUnknown) unknown.push_back(key.substr(0, kLongestUnknown));
    if (!group || value.is_null() || group->use == Use::harmless || is_used(*group, kind)) continue;
    const std::string_view plain = group->plain;
    if (!plain.empty() && value == nlohmann::json::parse(plain)) continue;
    throw RequestError(
        key,
        concat("not supported", plain.empty() ? "" : concat(", except as ", plain), group->remedy));
  }
  return unknown;
}

std::vector<std::string_view> used_keys(RequestKind kind) {
  std::vector<std::string_view> keys;
  for_names([&](const KeyGroup& group, std::string_view name) {
    if (is_used(group, kind)) keys.push_back(name);
  });
  return keys;
}

}  // namespace axonn
