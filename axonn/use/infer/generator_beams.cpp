// Generation with beam search.
#include <algorithm>
#include <iterator>
#include <utility>

#include "axonn/foundation/base/check.h"
#include "axonn/use/infer/beam_search.h"
#include "axonn/use/infer/generation_schedule.h"
#include "axonn/use/infer/generator.h"
#include "axonn/use/infer/token_choice.h"

namespace axonn {

namespace {

/// The text of a beam with one more token; it still has its slot.
BeamText continued(const GeneratedSequence& sequence, std::size_t beam, std::int32_t token) {
  BeamText text = sequence.beams[beam];
  if (!sequence.branched()) text.tokens = sequence.tokens;
  text.tokens.push_back(token);
  if (sequence.constraint) text.state = sequence.constraint->after(sequence.state_at(beam), token);
  if (!sequence.options.stop_strings.empty()) {
    const auto decoder = std::make_shared<StreamDecoder>(sequence.decoder_at(beam));
    decoder->push(token);
    text.text = decoder;
  }
  return text;
}

/// The scores of the tokens of a text that has ended.
std::vector<TokenScore> scores_of(const GeneratedSequence& sequence,
                                  const BeamSearch::Ended& text) {
  std::vector<TokenScore> scores;
  for (std::size_t step = 0; step < text.tokens.size(); ++step)
    scores.push_back({.log_probability = text.plain[step],
                      .likeliest = sequence.beams_likeliest[step][text.path[step]]});
  return scores;
}

}  // namespace

void Generator::check_beams(const GenerationOptions& options) const {
  const BeamOptions& beams = options.beams;
  AXONN_CHECK(beams.beams >= 1 && beams.returned >= 1, "Generator: ", beams.returned, " texts of ",
              beams.beams, " beams");
  if (beams.returned > beams.beams)
    refuse("a beam search returns at most as many texts as it has beams, ", beams.beams, ", not ",
           beams.returned);
  if (beams.beams == 1)
    refuse("a length penalty and early stopping are of a beam search; set more than one beam");
  if (options.sampling.temperature != 0)
    refuse("a beam search takes the likeliest tokens and draws none; set the temperature to 0");
  for (const auto& [what, is_set] : {std::pair{"scores of the prompt", options.score_prompt},
                                     {"embeddings", options.pooling != Pooling::none},
                                     {"a context that slides", options.slides}})
    if (is_set) refuse("a beam search with ", what, " is not supported; leave one of them out");
  AXONN_CHECK(options.max_tokens > 0, "Generator: a beam search of no tokens");
  const std::int64_t wanted = beams.beams + std::ssize(options.stop_tokens);
  if (wanted > vocab_)
    refuse("a beam search of ", beams.beams, " beams with ", options.stop_tokens.size(),
           " end tokens needs ", wanted, " tokens, and there are ", vocab_, "; take fewer beams");
}

BeamSearch Generator::make_search(const std::vector<std::int32_t>& prompt,
                                  const GenerationOptions& options) const {
  if (options.beams.beams > most_beams())
    refuse("a beam search of ", options.beams.beams, " beams needs as many slots, and there are ",
           most_beams(), "; take fewer beams, or a larger batch");
  const std::int64_t room = context_ + 1 - std::ssize(prompt);
  return BeamSearch({.options = options.beams,
                     .ends = options.stop_tokens,
                     .longest = std::min(options.max_tokens, room),
                     .completes = !options.stop_strings.empty() || !options.form.empty()});
}

/// Continues the texts of a beam search with the tokens of their rows, or ends it.
void Generator::step_beams(GeneratedSequence& sequence, std::int64_t coordinate,
                           std::span<const TokenScore> scores, const Callbacks& to) {
  BeamSearch& search = *sequence.search;
  std::vector<BeamSearch::Candidates> candidates;
  auto& likeliest = sequence.beams_likeliest.emplace_back();
  for (const TokenScore& score : scores) {
    BeamRow row = beam_row_of(score, search.candidates());
    candidates.push_back(std::move(row.candidates));
    if (sequence.options.likeliest >= 0) likeliest.push_back(std::move(row.likeliest));
  }
  for (std::size_t i = 0; i < candidates.size(); ++i)
    if (candidates[i].front().token == kNotFinite)
      return end(sequence.number,
                 text_of(sequence, search.running()[i].tokens, FinishReason::not_finite), to);
  search.step(candidates, [&](std::size_t text, std::int32_t token) {
    return search.completes() && completes(sequence, text, token);
  });
  if (!search.done()) return move_beams(sequence, coordinate);
  Generation result = best_texts(sequence);
  if (to.on_text && !result.text.empty()) to.on_text(sequence.number, result.text, result);
  end(sequence.number, std::move(result), to);
}

/// Gives each text that goes on a slot with the keys and values of the text that it continues: the
/// first of these stays in its slot, others are copied to slots whose text does not go on.
void Generator::move_beams(GeneratedSequence& sequence, std::int64_t coordinate) {
  const auto& running = sequence.search->running();
  std::vector<BeamText> next;
  for (const BeamSearch::Running& text : running)
    next.push_back(continued(sequence, text.parent, text.tokens.back()));
  const std::vector<BeamText> before = std::exchange(sequence.beams, {});
  const auto stays = [&](std::size_t parent) {
    return std::ranges::find(running, parent, &BeamSearch::Running::parent) != running.end();
  };
  std::vector<std::int32_t> free;
  for (std::size_t parent = 0; parent < before.size(); ++parent)
    if (!stays(parent)) free.push_back(before[parent].slot);
  std::vector<bool> stayed(before.size());
  for (std::size_t i = 0; i < running.size(); ++i) {
    BeamText& text = next[i];
    const std::size_t parent = running[i].parent;
    if (stayed[parent]) {
      const std::int32_t from = std::exchange(text.slot, free.back());
      free.pop_back();
      if (cache_ && coordinate == this->coordinate())
        cache_->copy_slot(model_.context(), from, text.slot,
                          static_cast<std::int64_t>(sequence.cached));
    }
    stayed[parent] = true;
    sequence.beams.push_back(std::move(text));
  }
  for (const std::int32_t slot : free) sequence.beams.push_back({.slot = slot});
  sequence.tokens = sequence.beams.front().tokens;
  if (slots_.differ(sequence.cached, sequence.in_context())) sequence.cached = 0;
}

/// A result with these generated tokens.
Generation Generator::text_of(const GeneratedSequence& sequence, std::vector<std::int32_t> tokens,
                              FinishReason reason) const {
  Generation result{.tokens = std::move(tokens),
                    .reason = reason,
                    .cached_tokens = sequence.result.cached_tokens};
  if (!options_.tokenizer) return result;
  StreamDecoder decoder = decoder_of(*options_.tokenizer, sequence.options);
  for (const std::int32_t token : result.tokens) result.text += decoder.push(token);
  result.text += decoder.finish();
  result.stop = decoder.stop();
  if (decoder.stopped()) result.reason = FinishReason::stop_string;
  return result;
}

/// The texts that a beam search returns: the best, and in it the others.
Generation Generator::best_texts(const GeneratedSequence& sequence) const {
  const GenerationOptions& options = sequence.options;
  std::vector<Generation> all;
  for (const BeamSearch::Ended& ended : sequence.search->ended()) {
    if (std::ssize(all) == options.beams.returned) break;
    const bool longest = std::ssize(ended.tokens) == options.max_tokens;
    const FinishReason reason = ended.by_token || ended.complete ? FinishReason::stop_token
                                : longest                        ? FinishReason::max_tokens
                                                                 : FinishReason::context;
    Generation& text = all.emplace_back(text_of(sequence, ended.tokens, reason));
    text.beam_score = ended.score;
    if (options.likeliest >= 0) text.scores = scores_of(sequence, ended);
  }
  if (all.empty()) return text_of(sequence, {}, FinishReason::no_token);
  Generation best = std::move(all.front());
  best.others.assign(std::move_iterator(all.begin() + 1), std::move_iterator(all.end()));
  return best;
}

}  // namespace axonn
