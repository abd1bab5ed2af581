#include <algorithm>
#include <utility>

#include "axonn/app/serve/answer_writer.h"
#include "axonn/app/serve/request_body.h"
#include "axonn/foundation/base/check.h"

namespace axonn {

namespace {

using MessageJson = nlohmann::ordered_json;

/// Of /v1/messages. A whole answer is what the events of a stream leave: its blocks.
class MessagesWriter : public AnswerWriter {
 public:
  MessagesWriter(const ServedModel& model, const CompletionRequest& request)
      : model_(model), request_(request), id_(answer_id("msg")) {}

  std::string begin() override { return ""; }
  std::string choice(const ChoiceNews& whole) override {
    stream_news(whole);
    return "";
  }
  std::string end(const AnswerUsage& usage) override { return dumped(message(usage)) + '\n'; }

  std::string stream_begin(std::size_t) override {
    return event("message_start", {{"message", message({})}});
  }

  std::string stream_news(const ChoiceNews& news) override {
    std::string events;
    if (!news.parts.thought.empty()) events += text_delta("thinking", news.parts.thought);
    if (!news.parts.text.empty()) events += text_delta("text", news.parts.text);
    if (!news.end) return events;
    events += closed();
    for (std::size_t i = 0; i < news.parts.calls.size(); ++i)
      events += called(news.parts.calls[i], call_id(id_, news.index, i));
    const MessageJson own = MessageJson::parse(request_.repeated);
    const bool stopped =
        own.is_array() && std::find(own.begin(), own.end(), news.stop) != own.end();
    if (stopped) stop_ = news.stop;
    reason_ = is_cut_off(*news.end)       ? "max_tokens"
              : !news.parts.calls.empty() ? "tool_use"
              : stopped                   ? "stop_sequence"
                                          : "end_turn";
    return events;
  }

  std::string stream_done(const AnswerUsage& usage) override {
    const MessageJson whole = message(usage);
    std::string events =
        event("message_delta",
              {{"delta",
                {{"stop_reason", whole["stop_reason"]}, {"stop_sequence", whole["stop_sequence"]}}},
               {"usage", whole["usage"]}});
    return events += event("message_stop", MessageJson::object());
  }

  std::string stream_fault(const std::string& why) override {
    return event("error", {{"error", {{"type", "overloaded_error"}, {"message", why}}}});
  }

 private:
  static std::string event(const std::string& type, const MessageJson& members) {
    MessageJson whole{{"type", type}};
    whole.update(members);
    return concat("event: ", type, "\ndata: ", dumped(whole), "\n\n");
  }

  /// An event of the block that is under way, or begins.
  std::string block_event(const char* type, const char* member, const MessageJson& value) const {
    MessageJson members{{"index", blocks_.size()}};
    if (!value.is_null()) members[member] = value;
    return event(type, members);
  }

  static MessageJson empty_block(const std::string& type) {
    MessageJson block{{"type", type}, {type, ""}};
    if (type == "thinking") block["signature"] = "";
    return block;
  }

  /// `type`: text or thinking.
  std::string text_delta(const std::string& type, const std::string& text) {
    std::string events;
    if (open_.is_null() || open_["type"] != type) {
      events += closed();
      open_ = empty_block(type);
      events += block_event("content_block_start", "content_block", open_);
    }
    open_[type].get_ref<std::string&>() += text;
    return events +=
           block_event("content_block_delta", "delta", {{"type", type + "_delta"}, {type, text}});
  }

  /// Ends the block that is under way, if there is one.
  std::string closed() {
    if (open_.is_null()) return "";
    std::string events = block_event("content_block_stop", "", nullptr);
    blocks_.push_back(std::exchange(open_, nullptr));
    return events;
  }

  std::string called(const ToolCall& call, const std::string& id) {
    open_ = {
        {"type", "tool_use"}, {"id", id}, {"name", call.name}, {"input", MessageJson::object()}};
    std::string events = block_event("content_block_start", "content_block", open_);
    events += block_event("content_block_delta", "delta",
                          {{"type", "input_json_delta"}, {"partial_json", call.arguments}});
    open_["input"] = MessageJson::parse(call.arguments);
    return events += closed();
  }

  MessageJson message(const AnswerUsage& usage) const {
    const std::int64_t read = prompt_tokens(request_);
    MessageJson all{{"id", id_},
                    {"type", "message"},
                    {"role", "assistant"},
                    {"model", model_.name},
                    {"content", blocks_},
                    {"stop_reason", nullptr},
                    {"stop_sequence", nullptr}};
    if (!reason_.empty()) all["stop_reason"] = reason_;
    if (!stop_.empty()) all["stop_sequence"] = stop_;
    all["usage"] = {{"input_tokens", read - usage.cached},
                    {"cache_read_input_tokens", usage.cached},
                    {"cache_creation_input_tokens", 0},
                    {"output_tokens", usage.generated}};
    return all;
  }

  const ServedModel& model_;
  const CompletionRequest& request_;
  std::string id_, reason_, stop_;
  MessageJson blocks_ = MessageJson::array();  // that have ended
  MessageJson open_ = nullptr;                 // the block under way
};

}  // namespace

std::unique_ptr<AnswerWriter> make_messages_writer(const ServedModel& model,
                                                   const CompletionRequest& request) {
  return std::make_unique<MessagesWriter>(model, request);
}

}  // namespace axonn
