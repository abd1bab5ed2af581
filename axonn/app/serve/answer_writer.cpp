#include "axonn/app/serve/answer_writer.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <iterator>
#include <utility>

#include <fmt/format.h>

#include "axonn/foundation/base/check.h"
#include "axonn/foundation/base/random.h"

namespace axonn {

void ChoiceNews::append(ChoiceNews more) {
  parts.append(std::move(more.parts));
  tokens.insert(tokens.end(), more.tokens.begin(), more.tokens.end());
  offsets.insert(offsets.end(), more.offsets.begin(), more.offsets.end());
  std::ranges::move(more.scores, std::back_inserter(scores));
  embedding.insert(embedding.end(), more.embedding.begin(), more.embedding.end());
  end = more.end;
  stop = std::move(more.stop);
}

std::unique_ptr<AnswerWriter> make_answer_writer(const ServedModel& model,
                                                 const CompletionRequest& request) {
  if (request.kind == RequestKind::embedding) return make_embedding_writer(model, request);
  if (request.kind == RequestKind::message) return make_messages_writer(model, request);
  if (request.kind == RequestKind::response) return make_responses_writer(model, request);
  return make_completion_writer(model, request);
}

std::string answer_id(std::string_view prefix) {
  static std::atomic<std::uint64_t> count{0};
  return fmt::format("{}-{:x}-{}", prefix,
                     std::chrono::system_clock::now().time_since_epoch().count(), ++count);
}

std::string call_id(const std::string& answer, std::size_t index, std::size_t call) {
  std::string id;
  for (std::uint64_t hash = hash_text(concat(answer, '/', index, '/', call)); id.size() < 9;
       hash /= 36)
    id += "0123456789abcdefghijklmnopqrstuvwxyz"[hash % 36];
  return id;
}

bool is_cut_off(FinishReason reason) {
  return reason == FinishReason::max_tokens || reason == FinishReason::context ||
         reason == FinishReason::no_token;
}

std::int64_t prompt_tokens(const CompletionRequest& request) {
  std::int64_t read = 0;
  for (const auto& prompt : request.prompts) read += std::ssize(prompt);
  return read;
}

}  // namespace axonn
