#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "axonn/data/corpus/preferences/answer_lines.h"

namespace axonn {

/// An answer that a policy wrote, and what is known of it.
struct Rollout {
  std::vector<std::int32_t> prompt, answer;  ///< tokens; that which ends the answer is one of its
  std::vector<std::uint8_t> counts;          ///< of the answer: 0 is no word of the policy
  std::vector<double> sampler = {};  ///< log-probabilities of the answer's tokens; or not known
  std::vector<double> rewards = {};  ///< by RolloutFile::reward_names; NaN: none
  bool truncated = false;            ///< no token ends it
};

/// The answers of files, those to one prompt in a row.
struct RolloutFile {
  std::vector<std::string> reward_names;
  std::vector<Rollout> answers;
};

/// Which tokens of a model's vocabulary a rollout may have, and which end an answer.
struct RolloutTokens {
  std::int64_t vocab = 0;  ///< 0: all
  std::vector<std::int32_t> ends = {};
};

/// Reads lines of recorded answers:
///
///   prompt_ids, or prompt          tokens, or a text or messages that `format` encodes
///   completion_ids, or completion  tokens, or a text or messages, as encode_answer() has them
///   rewards, or reward             an object of numbers and nulls by name, or one number or null;
///                                  each line has the same names
///   mask (tool_mask)               of each token, 1, or 0 if the policy did not write it
///   logprobs (sampling_logps)      of each token, the sampler's log-probability; null: not known
///   truncated                      whether no token ends the answer; else its last token tells
///
/// Other keys have no effect. Memory: all of the files. Throws UsageError, with "FILE:LINE", for
/// values of another type, lists that are not as long as the answer, an answer without a token, and
/// if `group` lines in a row have not one prompt.
RolloutFile read_rollouts(const std::vector<std::string>& files, const AnswerFormat& format,
                          const RolloutTokens& tokens, std::int64_t group);

/// Reads the lines of a text with tokens alone, as rollout_line() writes them. Throws likewise,
/// beginning with `location`.
RolloutFile parse_rollouts(std::string_view text, const std::string& location);

/// A prompt to which a run writes answers.
struct Prompt {
  std::vector<std::int32_t> tokens;
  std::string line;    ///< JSON, with keys that rewards read
  Rollout given = {};  ///< the line's own answer, without rewards, if lines have answers
};

/// The prompts of files, and the tokens that end an answer.
struct PromptFile {
  std::vector<Prompt> prompts;
  std::vector<std::int32_t> ends;
};

/// Reads lines with "prompt" or "prompt_ids", as those of answers; with_answers: and each with an
/// answer, whose rewards are not read. Memory: all of the files. Throws UsageError, with
/// "FILE:LINE", for other values, for a prompt without a token, and if there is none.
PromptFile read_prompts(const std::vector<std::string>& files, const AnswerFormat& format,
                        const RolloutTokens& tokens, bool with_answers = false);

/// What the first line of a file says of all.
struct RolloutForm {
  bool recorded;  ///< they have answers
  bool messages;  ///< their prompts are messages
};
RolloutForm form_of_rollouts(const std::string& file);

/// The text of a model's tokens, without those that the tokenizer does not have: a vocabulary may
/// have been made larger than it, and any of its tokens may be drawn.
std::string text_of_answer(const Tokenizer& tokenizer, std::vector<std::int32_t> tokens);

/// A line of a recorded answer as read_rollouts() reads it, with the texts of prompt and answer if
/// there is a tokenizer, and its advantage.
std::string rollout_line(const Rollout& rollout, const std::vector<std::string>& reward_names,
                         double advantage, const Tokenizer* tokenizer);

}  // namespace axonn
