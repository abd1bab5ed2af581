#include "axonn/use/infer/text_sampler.h"

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "axonn/data/text/model_text.h"
#include "axonn/foundation/base/check.h"
#include "axonn/run/records/sample_file.h"
#include "axonn/use/infer/generator.h"

namespace axonn {

namespace {

/// The constants of all samples of a run.
struct SampleRequests {
  std::vector<std::vector<std::int32_t>> prompts;
  GenerationOptions wanted;
  Generator::Options generator;
};

/// The prompts as questions of a user, and the ends of an answer.
void add_chat_prompts(const Config& config, const std::shared_ptr<const Tokenizer>& tokenizer,
                      SampleRequests& requests) {
  const DataConfig& data = config.data;
  const ModelText text = with_tokenizer(data.model_text.get(), data.tokenizer);
  const ChatTemplate form(
      tokenizer, find_chat_format(data.chat_template, text),
      chat_arguments(data.chat_template, data.chat_template_args, text, "data.chat_template_args"));
  for (const std::string& prompt : config.samples.prompts)
    requests.prompts.push_back(form.prompt(std::vector<Message>{{"user", prompt}}));
  const std::vector<std::int32_t>& end = form.end_of_turn();
  if (end.size() == 1)
    requests.wanted.stop_tokens.push_back(end.front());
  else if (!end.empty())
    requests.wanted.stop_strings.push_back(tokenizer->decode(end));
}

SampleRequests plan_of(const LoadedModel& model,
                       const std::shared_ptr<const Tokenizer>& tokenizer) {
  constexpr std::int64_t kCacheBytes = std::int64_t{64} << 20;
  const Config& config = model.config();
  const SamplesConfig& samples = config.samples;
  SampleRequests requests{.prompts = {},
                          .wanted = {.max_tokens = samples.tokens,
                                     .sampling = {.temperature = samples.temperature},
                                     .seed = static_cast<std::uint64_t>(config.training.seed),
                                     .ends_if_not_finite = true},
                          .generator = {.cache_bytes = kCacheBytes,
                                        .hold_weights = samples.hold_weights,
                                        .tokenizer = tokenizer.get()}};
  requests.wanted.stop_tokens =
      stop_tokens(with_tokenizer(config.data.model_text.get(), config.data.tokenizer), *tokenizer);
  if (samples.chat) add_chat_prompts(config, tokenizer, requests);
  for (std::size_t i = requests.prompts.size(); i < samples.prompts.size(); ++i)
    requests.prompts.push_back(tokenizer->encode_prompt(samples.prompts[i]));
  std::int64_t longest = 0;
  for (std::size_t i = 0; i < requests.prompts.size(); ++i) {
    const std::int64_t size = std::ssize(requests.prompts[i]);
    if (size == 0) refuse("[samples] prompts: prompt ", i + 1, " has no token; give another");
    if (size >= config.model.positions)
      refuse("[samples] prompts: prompt ", i + 1, " has ", size, " tokens, but the model has only ",
             config.model.positions, " positions; shorten it");
    longest = std::max(longest, size);
  }
  requests.generator.context = std::min(longest + samples.tokens, config.model.positions);
  return requests;
}

}  // namespace

TextSampler make_text_sampler(LoadedModel& model, std::shared_ptr<const Tokenizer> tokenizer) {
  const SampleRequests requests = plan_of(model, tokenizer);
  return [&model, requests, tokenizer = std::move(tokenizer)] {
    Generator generator(model, requests.generator);
    std::vector<TextSample> samples;
    for (Generation& one : generator.generate(requests.prompts, requests.wanted))
      samples.push_back({.prompt = model.config().samples.prompts[samples.size()],
                         .text = std::move(one.text),
                         .tokens = std::ssize(one.tokens),
                         .end = std::string(name_of(one.reason))});
    return samples;
  };
}

}  // namespace axonn
