#include "axonn/app/serve/orders.h"

#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

namespace axonn {

namespace {

nlohmann::json to_json(const GenerationOptions& options) {
  // Names all fields, so that a new one is an error of the compiler here.
  const auto& [max_tokens, sampling, beams, seed, random_stream, likeliest, score_prompt,
               stop_tokens, keeps_stop_token, stop_strings, min_tokens, logit_bias, form,
               shown_tokens, slides, ends_if_not_finite, pooling, adapter] = options;
  const auto& [temperature, top_k, top_p, penalty, min_p, presence, frequency] = sampling;
  const auto& [width, returned, length_penalty, early_stopping] = beams;
  return {{"max_tokens", max_tokens},
          {"temperature", temperature},
          {"top_k", top_k},
          {"top_p", top_p},
          {"penalty", penalty},
          {"min_p", min_p},
          {"presence", presence},
          {"frequency", frequency},
          {"beams", width},
          {"returned", returned},
          {"length_penalty", length_penalty},
          {"early_stopping", early_stopping},
          {"seed", seed},
          {"random_stream", random_stream},
          {"likeliest", likeliest},
          {"score_prompt", score_prompt},
          {"stop_tokens", stop_tokens},
          {"keeps_stop_token", keeps_stop_token},
          {"stop_strings", stop_strings},
          {"min_tokens", min_tokens},
          {"logit_bias", logit_bias},
          {"form", form},
          {"shown_tokens", shown_tokens},
          {"slides", slides},
          {"ends_if_not_finite", ends_if_not_finite},
          {"pooling", pooling},
          {"adapter", adapter}};
}

GenerationOptions options_of(const nlohmann::json& from) {
  return {
      .max_tokens = from.at("max_tokens"),
      .sampling = {from.at("temperature"), from.at("top_k"), from.at("top_p"), from.at("penalty"),
                   from.at("min_p"), from.at("presence"), from.at("frequency")},
      .beams = {from.at("beams"), from.at("returned"), from.at("length_penalty"),
                from.at("early_stopping").get<EarlyStopping>()},
      .seed = from.at("seed"),
      .random_stream = from.at("random_stream"),
      .likeliest = from.at("likeliest"),
      .score_prompt = from.at("score_prompt"),
      .stop_tokens = from.at("stop_tokens").get<std::vector<std::int32_t>>(),
      .keeps_stop_token = from.at("keeps_stop_token"),
      .stop_strings = from.at("stop_strings").get<std::vector<std::string>>(),
      .min_tokens = from.at("min_tokens"),
      .logit_bias = from.at("logit_bias").get<std::vector<std::pair<std::int32_t, float>>>(),
      .form = from.at("form"),
      .shown_tokens = from.at("shown_tokens").get<std::vector<std::int32_t>>(),
      .slides = from.at("slides"),
      .ends_if_not_finite = from.at("ends_if_not_finite"),
      .pooling = from.at("pooling"),
      .adapter = from.at("adapter")};
}

}  // namespace

std::string packed(const RequestQueue::Orders& orders) {
  nlohmann::json add = nlohmann::json::array();
  for (const auto& request : orders.add)
    add.push_back({{"prompt", request.prompt}, {"options", to_json(request.options)}});
  std::string bytes;
  nlohmann::json::to_cbor({{"stop", orders.stop}, {"add", add}, {"cancel", orders.cancel}}, bytes);
  return bytes;
}

RequestQueue::Orders unpacked(const std::string& bytes) {
  const nlohmann::json from = nlohmann::json::from_cbor(bytes);
  RequestQueue::Orders orders{.stop = from.at("stop")};
  for (const nlohmann::json& request : from.at("add"))
    orders.add.push_back(
        {.prompt = request.at("prompt"), .options = options_of(request.at("options"))});
  from.at("cancel").get_to(orders.cancel);
  return orders;
}

}  // namespace axonn
