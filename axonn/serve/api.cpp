#include "axonn/serve/api.h"

#include <atomic>
#include <chrono>
#include <ctime>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "axonn/base/check.h"
#include "axonn/serve/api_answer.h"

namespace axonn {

extern const char kServePage[];

namespace {

using Json = nlohmann::ordered_json;

constexpr std::chrono::milliseconds kPatience{200};

using Streams = std::vector<std::shared_ptr<TextStream>>;

/// An answer under way: it collects what the prompts' streams bring. Made by a request's thread and
/// used by it alone.
class Answer {
 public:
  Answer(const ServedModel& model, CompletionRequest request, Streams streams)
      : request_(std::move(request)), streams_(std::move(streams)), results_(streams_.size()) {
    static std::atomic<std::uint64_t> count{0};
    head_ = std::make_unique<AnswerHead>(AnswerHead{
        model, request_,
        fmt::format("{}-{:x}-{}", request_.chat ? "chatcmpl" : "cmpl",
                    std::chrono::system_clock::now().time_since_epoch().count(), ++count),
        std::time(nullptr)});
    open_ = streams_.size();
    begun_.resize(streams_.size());
  }
  ~Answer() {
    for (const auto& stream : streams_)
      if (stream) stream->cancel();
  }
  Answer(const Answer&) = delete;
  Answer& operator=(const Answer&) = delete;

  /// The next piece to send; "" if there is nothing new, none at the end.
  std::optional<std::string> next() {
    if (over_) return {};
    if (open_ == 0) return last();
    std::string piece;
    // Waits for one stream, then takes what the others have.
    for (std::size_t i = 0, waited = 0; i < streams_.size(); ++i) {
      if (!streams_[i]) continue;
      const auto patience = waited++ == 0 ? kPatience : std::chrono::milliseconds{0};
      while (auto event = streams_[i]->next(patience)) {
        if (!event->fault.empty()) return fault(event->fault);
        piece += taken(i, *event);
        if (event->end) break;
      }
      if (results_[i]) --open_, streams_[i].reset();
    }
    return piece;
  }

 private:
  std::string taken(std::size_t i, TextStream::Event& event) {
    std::string piece;
    if (request_.stream) {
      std::string text = std::move(event.text);
      if (!begun_[i] && request_.echo)
        text.insert(0, head_->model.tokenizer->decode(
                           request_.prompts[i / static_cast<std::size_t>(request_.copies)]));
      if (!text.empty()) {
        piece = stream_piece(*head_, i, text, !begun_[i]);
        begun_[i] = true;
      }
      if (event.end) piece += stream_end(*head_, i, event.end->reason);
    }
    if (event.end) {
      generated_ += std::ssize(event.end->tokens);
      results_[i] = std::move(event.end);
    }
    return piece;
  }

  std::string last() {
    over_ = true;
    if (request_.stream) return stream_done(*head_, generated_);
    std::vector<Generation> results;
    for (auto& result : results_) results.push_back(std::move(*result));
    return answer_json(*head_, results);
  }

  /// The status was sent already, so an answer that is no stream breaks off.
  std::string fault(const std::string& why) {
    over_ = true;
    if (!request_.stream) throw Error(why);
    return stream_fault(why);
  }

  CompletionRequest request_;
  std::unique_ptr<AnswerHead> head_;
  Streams streams_;  // null where ended
  std::vector<std::optional<Generation>> results_;
  std::vector<bool> begun_;
  std::size_t open_ = 0;
  std::int64_t generated_ = 0;
  bool over_ = false;
};

void complete(const ServedModel& model, RequestQueue& queue, CompletionRequest request,
              HttpResponse& response) {
  std::vector<RequestQueue::Request> prompts;
  for (const auto& prompt : request.prompts)
    for (std::int64_t copy = 0; copy < request.copies; ++copy) {
      prompts.push_back({prompt, request.options});
      prompts.back().options.stream = static_cast<std::uint64_t>(copy);
    }
  Streams streams = queue.submit(std::move(prompts));
  if (streams.empty()) {
    response.status = 503;
    response.body = error_json("too many prompts are waiting; try again later", "overloaded");
    return;
  }
  const bool stream = request.stream;
  const auto answer = std::make_shared<Answer>(model, std::move(request), std::move(streams));
  response.type = stream ? "text/event-stream" : "application/json";
  response.pieces = [answer] { return answer->next(); };
}

Json health_of(const RequestQueue& queue) {
  const RequestQueue::Load load = queue.load();
  return {{"status", "ok"},
          {"running", load.running},
          {"waiting", load.waiting},
          {"prompts", load.prompts},
          {"tokens", load.tokens}};
}

Json tokenizer_info(const Tokenizer& tokenizer) {
  const auto text_of = [&](std::optional<std::int32_t> token) {
    return token ? Json(std::string(tokenizer.bytes_of(*token))) : Json();
  };
  return {{"tokenizer", tokenizer.name()},
          {"vocab_size", tokenizer.vocab_size()},
          {"bos_token", text_of(tokenizer.begin_of_text())},
          {"eos_token", text_of(tokenizer.end_of_text())}};
}

}  // namespace

void add_api(HttpServer& server, const ServedModel& model, RequestQueue& queue) {
  const auto fixed = [](Json value) {
    return [text = value.dump() + '\n'](const HttpRequest&, HttpResponse& response) {
      response.body = text;
    };
  };
  server.get(
      "/",
      [](const HttpRequest&, HttpResponse& response) {
        response.type = "text/html; charset=utf-8";
        response.body = kServePage;
      },
      true);
  server.get(
      "/health",
      [&queue](const HttpRequest&, HttpResponse& response) {
        response.body = health_of(queue).dump() + '\n';
      },
      true);
  const Json here{{"id", model.name},
                  {"object", "model"},
                  {"owned_by", "axonn"},
                  {"max_model_len", model.context},
                  {"chat", model.chat != nullptr}};
  server.get("/v1/models", fixed({{"object", "list"}, {"data", Json::array({here})}}));
  server.get("/tokenizer_info", fixed(tokenizer_info(*model.tokenizer)));
  server.post("/tokenize", [&model](const HttpRequest& request, HttpResponse& response) {
    const auto tokens = parse_tokenize(request.body, model);
    response.body =
        Json{{"tokens", tokens}, {"count", tokens.size()}, {"max_model_len", model.context}}
            .dump() +
        '\n';
  });
  server.post("/v1/completions", [&](const HttpRequest& request, HttpResponse& response) {
    complete(model, queue, parse_completion(request.body, model), response);
  });
  server.post("/v1/chat/completions", [&](const HttpRequest& request, HttpResponse& response) {
    complete(model, queue, parse_chat_completion(request.body, model), response);
  });
}

}  // namespace axonn
