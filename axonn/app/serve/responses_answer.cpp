#include <utility>

#include "axonn/app/serve/answer_writer.h"
#include "axonn/app/serve/request_body.h"
#include "axonn/foundation/base/check.h"

namespace axonn {

namespace {

using ResponseJson = nlohmann::ordered_json;

/// Of /v1/responses. A whole answer is what the events of a stream leave: its items.
class ResponsesWriter : public AnswerWriter {
 public:
  ResponsesWriter(const ServedModel& model, const CompletionRequest& request)
      : model_(model), request_(request), id_(answer_id("resp")), created_(model.clock()) {}

  std::string begin() override { return ""; }
  std::string choice(const ChoiceNews& whole) override {
    stream_news(whole);
    return "";
  }
  std::string end(const AnswerUsage& usage) override { return dumped(response(&usage)) + '\n'; }

  std::string stream_begin(std::size_t) override {
    std::string events = event("response.created", {{"response", response(nullptr)}});
    return events += event("response.in_progress", {{"response", response(nullptr)}});
  }

  std::string stream_news(const ChoiceNews& news) override {
    std::string events;
    if (!news.parts.thought.empty()) events += text_delta(kThought, news.parts.thought, {});
    const ResponseJson scores = chat_scores(model_, news);
    if (!news.parts.text.empty()) events += text_delta(kMessage, news.parts.text, scores);
    if (!news.end) return events;
    cut_off_ = is_cut_off(*news.end);
    ended_ = true;
    if (output_.empty() && !open_ && news.parts.calls.empty()) events += opened(kMessage);
    events += closed();
    for (std::size_t i = 0; i < news.parts.calls.size(); ++i)
      events += called(news.parts.calls[i], call_id(id_, news.index, i));
    return events;
  }

  std::string stream_done(const AnswerUsage& usage) override {
    return event(cut_off_ ? "response.incomplete" : "response.completed",
                 {{"response", response(&usage)}});
  }

  std::string stream_fault(const std::string& why) override {
    return event("error", {{"code", "server_error"}, {"message", why}, {"param", nullptr}});
  }

 private:
  /// A kind of item with text.
  struct TextItem {
    const char *type, *id, *part, *events;
  };
  static constexpr TextItem kThought{"reasoning", "rs", "reasoning_text",
                                     "response.reasoning_text"};
  static constexpr TextItem kMessage{"message", "msg", "output_text", "response.output_text"};

  std::string event(const std::string& type, ResponseJson members) {
    ResponseJson whole{{"type", type}, {"sequence_number", number_++}};
    whole.update(members);
    return concat("event: ", type, "\ndata: ", dumped(whole), "\n\n");
  }

  std::string item_id(const char* prefix) const {
    return concat(prefix, '_', id_.substr(id_.find('-') + 1), '-', output_.size());
  }

  ResponseJson part_json(const std::string& text) const {
    ResponseJson part{{"type", open_->part}, {"text", text}};
    if (open_ == &kMessage) part["annotations"] = ResponseJson::array();
    if (open_ == &kMessage) part["logprobs"] = scores_;
    return part;
  }

  ResponseJson item_json(const char* status, bool has_part) const {
    ResponseJson item{{"type", open_->type}, {"id", item_id(open_->id)}, {"status", status}};
    if (open_ == &kMessage)
      item["role"] = "assistant";
    else
      item["summary"] = ResponseJson::array();
    item["content"] = ResponseJson::array();
    if (has_part) item["content"].push_back(part_json(text_));
    return item;
  }

  /// An event of the item's text. `scores`: of a message's tokens.
  std::string text_event(const std::string& name, const char* member, const ResponseJson& value,
                         const ResponseJson& scores = ResponseJson::array()) {
    ResponseJson members{{"item_id", item_id(open_->id)},
                         {"output_index", output_.size()},
                         {"content_index", 0},
                         {member, value}};
    if (open_ == &kMessage && name.starts_with(open_->events)) members["logprobs"] = scores;
    return event(name, std::move(members));
  }

  std::string item_event(const char* name, const ResponseJson& item) {
    return event(name, {{"output_index", output_.size()}, {"item", item}});
  }

  std::string opened(const TextItem& kind) {
    if (open_ == &kind) return "";
    std::string events = closed();
    open_ = &kind;
    events += item_event("response.output_item.added", item_json("in_progress", false));
    return events + text_event("response.content_part.added", "part", part_json(""));
  }

  std::string text_delta(const TextItem& kind, const std::string& text,
                         const ResponseJson& scores) {
    std::string events = opened(kind);
    text_ += text;
    for (const ResponseJson& each : scores) scores_.push_back(each);
    return events + text_event(concat(kind.events, ".delta"), "delta", text, scores);
  }

  /// Ends the item with text that is under way, if there is one.
  std::string closed() {
    if (!open_) return "";
    std::string events = text_event(concat(open_->events, ".done"), "text", text_, scores_);
    events += text_event("response.content_part.done", "part", part_json(text_));
    ResponseJson item = item_json(ended_ && cut_off_ ? "incomplete" : "completed", true);
    events += item_event("response.output_item.done", item);
    output_.push_back(std::move(item));
    open_ = nullptr;
    text_.clear();
    scores_ = ResponseJson::array();
    return events;
  }

  std::string called(const ToolCall& call, const std::string& its_id) {
    const std::string id = item_id("fc");
    ResponseJson item{{"type", "function_call"}, {"id", id},          {"status", "in_progress"},
                      {"call_id", its_id},       {"name", call.name}, {"arguments", ""}};
    std::string events = item_event("response.output_item.added", item);
    const ResponseJson place{{"item_id", id}, {"output_index", output_.size()}};
    ResponseJson delta = place, done = place;
    delta["delta"] = done["arguments"] = call.arguments;
    done["name"] = call.name;
    events += event("response.function_call_arguments.delta", delta);
    events += event("response.function_call_arguments.done", done);
    item["status"] = "completed";
    item["arguments"] = call.arguments;
    events += item_event("response.output_item.done", item);
    output_.push_back(std::move(item));
    return events;
  }

  /// `usage`: at the end; null: the answer is in progress.
  ResponseJson response(const AnswerUsage* usage) const {
    const char* status = !usage ? "in_progress" : cut_off_ ? "incomplete" : "completed";
    ResponseJson all{{"id", id_},
                     {"object", "response"},
                     {"created_at", created_},
                     {"status", status},
                     {"background", false},
                     {"error", nullptr},
                     {"incomplete_details", nullptr},
                     {"model", model_.name},
                     {"output", output_},
                     {"previous_response_id", nullptr},
                     {"store", false},
                     {"truncation", "disabled"},
                     {"usage", nullptr}};
    all.update(ResponseJson::parse(request_.repeated));
    if (!usage) return all;
    if (cut_off_) all["incomplete_details"] = {{"reason", "max_output_tokens"}};
    const std::int64_t read = prompt_tokens(request_);
    all["usage"] = {{"input_tokens", read},
                    {"input_tokens_details", {{"cached_tokens", usage->cached}}},
                    {"output_tokens", usage->generated},
                    {"output_tokens_details", {{"reasoning_tokens", thought_tokens()}}},
                    {"total_tokens", read + usage->generated}};
    return all;
  }

  /// Tokens of the thoughts' text.
  std::size_t thought_tokens() const {
    std::size_t tokens = 0;
    for (const ResponseJson& item : output_)
      if (item["type"] == "reasoning")
        tokens += model_.tokenizer->encode(item["content"][0]["text"].get<std::string>()).size();
    return tokens;
  }

  const ServedModel& model_;
  const CompletionRequest& request_;
  std::string id_;
  std::int64_t created_;
  std::int64_t number_ = 0;                      // of the next event
  ResponseJson output_ = ResponseJson::array();  // items that have ended
  const TextItem* open_ = nullptr;               // of the item under way
  std::string text_;                             // of this item
  ResponseJson scores_ = ResponseJson::array();  // of its tokens, if it is a message
  bool ended_ = false, cut_off_ = false;
};

}  // namespace

std::unique_ptr<AnswerWriter> make_responses_writer(const ServedModel& model,
                                                    const CompletionRequest& request) {
  return std::make_unique<ResponsesWriter>(model, request);
}

}  // namespace axonn
