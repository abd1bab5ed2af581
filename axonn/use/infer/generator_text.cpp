// How drawn tokens continue texts.
#include <algorithm>
#include <limits>
#include <utility>

#include "axonn/use/infer/generation_schedule.h"
#include "axonn/use/infer/generator.h"
#include "axonn/use/infer/token_choice.h"

namespace axonn {

namespace {

/// The result of a sequence that ends.
Generation finished(GeneratedSequence& sequence, FinishReason reason,
                    const Generator::OnText& on_text) {
  Generation result = std::move(sequence.result);
  if (sequence.text) {
    const std::string rest = sequence.text->finish();
    result.text += rest;
    if (on_text && !rest.empty()) on_text(sequence.number, rest, result);
    if (reason == FinishReason::stop_string) result.stop = sequence.text->stop();
  }
  result.reason = reason;
  result.slid = sequence.begin > 0;
  return result;
}

}  // namespace

/// Draws the next token of a sequence.
std::int32_t Generator::draw(const GeneratedSequence& sequence, std::span<float> logits) const {
  const GenerationOptions& options = sequence.options;
  const auto room = options.slides ? std::numeric_limits<std::int64_t>::max()
                                   : context_ + 1 - std::ssize(sequence.tokens);
  const std::int64_t left = options.max_tokens - static_cast<std::int64_t>(sequence.produced());
  return choose_token(logits.first(vocab_), sequence, std::min(left, room));
}

/// Draws the tokens that follow a part's last token and its draft, from the logits (draft + 1, V)
/// of both, until one is not the draft's.
std::vector<std::int32_t> Generator::draw_along_draft(const PassPart& part,
                                                      std::span<float> logits) const {
  GeneratedSequence& sequence = *part.sequence;
  const std::size_t each = logits.size() / (part.draft.size() + 1), before = sequence.tokens.size();
  const Constraint::State state = sequence.state;
  std::vector<std::int32_t> drawn;
  while (true) {
    const std::size_t i = drawn.size();
    drawn.push_back(draw(sequence, logits.subspan(each * i, each)));
    if (i == part.draft.size() || drawn[i] != part.draft[i]) break;
    sequence.tokens.push_back(drawn[i]);
    if (sequence.constraint) sequence.state = sequence.constraint->after(sequence.state, drawn[i]);
    if (sequence.constraint && sequence.state.ended()) break;
  }
  sequence.tokens.resize(before);  // accept() continues the text on all ranks
  sequence.state = state;
  return drawn;
}

/// Appends a token to the sequence. Returns the reason if the sequence ends with it.
std::optional<FinishReason> Generator::accept(GeneratedSequence& sequence, std::int32_t token,
                                              const OnText& on_text) const {
  const GenerationOptions& options = sequence.options;
  if (token == kNotFinite) return FinishReason::not_finite;
  if (token == kNoToken) return FinishReason::no_token;
  if (options.max_tokens == 0) return FinishReason::max_tokens;
  if (std::ranges::find(options.stop_tokens, token) != options.stop_tokens.end()) {
    if (options.keeps_stop_token) sequence.result.tokens.push_back(token);
    return FinishReason::stop_token;
  }
  sequence.tokens.push_back(token);
  sequence.result.tokens.push_back(token);
  if (sequence.text) {
    const std::string text = sequence.text->push(token);
    sequence.result.text += text;
    if (on_text) on_text(sequence.number, text, sequence.result);
    if (sequence.text->stopped()) return FinishReason::stop_string;
  }
  if (sequence.constraint) {
    sequence.state = sequence.constraint->after(sequence.state, token);
    if (sequence.state.ended()) return FinishReason::stop_token;
  }
  if (static_cast<std::int64_t>(sequence.produced()) >= options.max_tokens)
    return FinishReason::max_tokens;
  if (static_cast<std::int64_t>(sequence.in_context()) <= context_) {
    if (slots_.differ(sequence.cached, sequence.in_context())) sequence.cached = 0;
    return {};
  }
  if (!options.slides) return FinishReason::context;
  sequence.begin = sequence.tokens.size() - (context_ + 1) / 2;
  sequence.cached = 0;
  return {};
}

void Generator::end(std::size_t number, Generation result, const Callbacks& to) {
  schedule_->remove(number);
  if (to.on_end) to.on_end(number, std::move(result));
}

/// Takes the scores of a pass, of the prompt and then of the token, which is -1 if none was drawn,
/// and continues the text with it. Returns whether the text goes on.
bool Generator::step_text(GeneratedSequence& sequence, std::int32_t token,
                          std::vector<TokenScore> scores, const Callbacks& to) {
  Generation& so_far = sequence.result;
  if (token != -1 && sequence.options.likeliest >= 0) {
    if (token >= 0) so_far.scores.push_back(std::move(scores.back()));
    scores.pop_back();
  }
  std::ranges::move(scores, std::back_inserter(so_far.prompt_scores));
  if (token == -1) return true;
  const auto reason = accept(sequence, token, to.on_text);
  if (!reason) return true;
  const std::size_t number = sequence.number;
  Generation result = finished(sequence, *reason, to.on_text);
  result.scores.resize(std::min(result.scores.size(), result.tokens.size()));
  end(number, std::move(result), to);
  return false;
}

/// Continues a text with the tokens of a pass, as far as it goes on.
void Generator::step_tokens(GeneratedSequence& sequence, std::span<const std::int32_t> tokens,
                            std::vector<TokenScore> scores, const Callbacks& to) {
  for (const std::int32_t token : tokens)
    if (!step_text(sequence, token, std::exchange(scores, {}), to)) return;
}

}  // namespace axonn
