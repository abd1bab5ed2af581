#include "axonn/serve/api.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <iterator>
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
      : request_(std::move(request)), open_(streams.size()) {
    static std::atomic<std::uint64_t> count{0};
    head_ = std::make_unique<AnswerHead>(AnswerHead{
        model, request_,
        fmt::format("{}-{:x}-{}", request_.chat ? "chatcmpl" : "cmpl",
                    std::chrono::system_clock::now().time_since_epoch().count(), ++count),
        model.clock()});
    for (std::size_t i = 0; i < streams.size(); ++i)
      choices_.push_back({.stream = std::move(streams[i]),
                          .splitter = AnswerSplitter(request_.form, request_.in_thought),
                          .whole = {.index = i}});
  }
  ~Answer() {
    for (const Choice& choice : choices_)
      if (choice.stream) choice.stream->cancel();
  }
  Answer(const Answer&) = delete;
  Answer& operator=(const Answer&) = delete;

  /// The next piece to send; "" if there is nothing new, none at the end.
  std::optional<std::string> next() {
    if (over_) return {};
    if (open_ == 0) return last();
    std::string piece;
    if (!begun_ && request_.chat && request_.stream)
      for (const Choice& choice : choices_) piece += stream_begin(*head_, choice.whole.index);
    begun_ = true;
    if (!piece.empty()) return piece;
    // Waits for one stream, then takes what the others have.
    std::chrono::milliseconds patience = kPatience;
    for (Choice& choice : choices_) {
      while (choice.stream) {
        auto event = choice.stream->next(std::exchange(patience, std::chrono::milliseconds{0}));
        if (!event) break;
        if (!event->fault.empty()) return fault(event->fault);
        piece += taken(choice, std::move(*event));
      }
    }
    return piece;
  }

 private:
  struct Choice {
    std::shared_ptr<TextStream> stream;  // null after its end
    AnswerSplitter splitter;             // of a chat
    ChoiceNews whole;                    // of a stream only whether it calls tools
    bool begun = false;
    std::int64_t offset = 0;  // characters before the next token
  };

  std::string taken(Choice& choice, TextStream::Event event) {
    ChoiceNews news{.index = choice.whole.index};
    if (event.end) {
      news.end = event.news.reason;
      choice.stream.reset();
      --open_;
    }
    generated_ += std::ssize(event.news.tokens);
    if (!choice.begun && request_.echo) echo(choice, event.news, news);
    choice.begun = true;
    if (request_.options.likeliest >= 0) {
      add_tokens(choice, event.news.tokens, true, news);
      std::ranges::move(event.news.scores, std::back_inserter(news.scores));
    }
    if (request_.chat) {
      news.parts = choice.splitter.push(event.news.text);
      if (event.end) news.parts.append(choice.splitter.finish());
      if (request_.single_call && news.parts.calls.size() > 1) news.parts.calls.resize(1);
    } else {
      news.parts.text += event.news.text;
    }
    if (request_.stream) return stream_news(*head_, news, !news.parts.calls.empty());
    choice.whole.append(std::move(news));
    return {};
  }

  /// Begins a choice with its prompt.
  void echo(Choice& choice, Generation& generation, ChoiceNews& news) {
    const std::size_t prompt = news.index / static_cast<std::size_t>(request_.copies);
    news.parts.text = request_.echoes[prompt];
    if (!request_.options.score_prompt) return;
    // Tokens that are not in the text, such as <s>, come before its beginning.
    choice.offset = characters_in(news.parts.text);
    for (const std::int32_t token : request_.prompts[prompt])
      choice.offset -= characters_of(head_->model, token, false);
    add_tokens(choice, request_.prompts[prompt], false, news);
    news.scores = std::move(generation.prompt_scores);
  }

  void add_tokens(Choice& choice, const std::vector<std::int32_t>& tokens, bool generated,
                  ChoiceNews& news) {
    for (const std::int32_t token : tokens) {
      news.tokens.push_back(token);
      news.offsets.push_back(std::max<std::int64_t>(choice.offset, 0));
      choice.offset += characters_of(head_->model, token, generated);
    }
  }

  std::string last() {
    over_ = true;
    if (request_.stream) return stream_done(*head_, generated_);
    std::vector<ChoiceNews> whole;
    for (Choice& choice : choices_) whole.push_back(std::move(choice.whole));
    return answer_json(*head_, whole, generated_);
  }

  /// The status was sent already, so an answer that is no stream breaks off.
  std::string fault(const std::string& why) {
    over_ = true;
    if (!request_.stream) throw Error(why);
    return stream_fault(why);
  }

  CompletionRequest request_;
  std::unique_ptr<AnswerHead> head_;
  std::vector<Choice> choices_;
  std::size_t open_;
  std::int64_t generated_ = 0;
  bool begun_ = false, over_ = false;
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

Json tokenizer_info(const ServedModel& model) {
  const Tokenizer& tokenizer = *model.tokenizer;
  const auto text_of = [&](std::optional<std::int32_t> token) {
    return token ? Json(std::string(tokenizer.bytes_of(*token))) : Json();
  };
  return {{"tokenizer", tokenizer.name()},
          {"vocab_size", tokenizer.vocab_size()},
          {"bos_token", text_of(tokenizer.begin_of_text())},
          {"eos_token", text_of(tokenizer.end_of_text())},
          {"chat_template", model.chat ? Json(model.chat->source(false)) : Json()}};
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
                  {"created", model.clock()},
                  {"owned_by", "axonn"},
                  {"max_model_len", model.context},
                  {"chat", model.chat != nullptr}};
  server.get("/v1/models", fixed({{"object", "list"}, {"data", Json::array({here})}}));
  server.get("/v1/models/" + model.name, fixed(here));
  server.get("/tokenizer_info", fixed(tokenizer_info(model)));
  server.post("/tokenize", [&model](const HttpRequest& request, HttpResponse& response) {
    const auto tokens = parse_tokenize(request.body, model);
    response.body =
        Json{{"tokens", tokens}, {"count", tokens.size()}, {"max_model_len", model.context}}
            .dump() +
        '\n';
  });
  server.post("/detokenize", [&model](const HttpRequest& request, HttpResponse& response) {
    response.body = Json{{"prompt", parse_detokenize(request.body, model)}}.dump(
                        -1, ' ', false, Json::error_handler_t::replace) +
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
