#include "axonn/app/serve/api.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <iterator>
#include <mutex>
#include <set>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "axonn/app/serve/api_answer.h"
#include "axonn/app/serve/character_count.h"
#include "axonn/foundation/base/check.h"
#include "axonn/foundation/base/utf8.h"

namespace axonn {

extern const char kServePage[];

namespace {

using Json = nlohmann::ordered_json;

constexpr std::int64_t kLargestAnswers = 8;  // that may be under way at once

using Streams = std::vector<std::shared_ptr<TextStream>>;

/// An answer under way: it collects what the prompts' streams bring. Made by a request's thread and
/// used by it alone.
class Answer {
 public:
  /// `room`: held for as long as the answer exists.
  Answer(const ServedModel& model, CompletionRequest request, Streams streams,
         std::shared_ptr<void> room)
      : request_(std::move(request)), room_(std::move(room)), open_(streams.size()) {
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
    if (open_ == 0) return request_.stream ? last() : whole();
    std::string piece;
    if (!begun_ && request_.chat && request_.stream)
      for (const Choice& choice : choices_) piece += stream_begin(*head_, choice.whole.index);
    begun_ = true;
    if (!piece.empty()) return piece;
    for (Choice& choice : choices_) {
      auto event = choice.stream ? choice.stream->next() : std::nullopt;
      if (!event) continue;
      if (!event->fault.empty()) return fault(event->fault);
      piece += taken(choice, std::move(*event));
    }
    return open_ > 0 || !piece.empty() ? piece : next();
  }

 private:
  struct Choice {
    std::shared_ptr<TextStream> stream;  // null after its end
    AnswerSplitter splitter;             // of a chat
    ChoiceNews whole;                    // of a stream only whether it calls tools
    bool begun = false;
    std::int64_t offset = 0;  // characters before the next token
    CharacterCount characters = {};
  };

  std::string taken(Choice& choice, TextStream::Event event) {
    ChoiceNews news{.index = choice.whole.index};
    if (event.end) {
      news.end = event.news.reason;
      choice.stream.reset();
      --open_;
    }
    usage_.generated += std::ssize(event.news.tokens);
    if (event.end && news.index % static_cast<std::size_t>(request_.copies) == 0)
      usage_.cached += event.news.cached_tokens;
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
    choice.offset = CharacterCount().add(news.parts.text);
    CharacterCount of_tokens;
    for (const std::int32_t token : request_.prompts[prompt])
      choice.offset -= of_tokens.add(text_bytes(head_->model, token, false));
    add_tokens(choice, request_.prompts[prompt], false, news);
    news.scores = std::move(generation.prompt_scores);
  }

  void add_tokens(Choice& choice, const std::vector<std::int32_t>& tokens, bool generated,
                  ChoiceNews& news) {
    for (const std::int32_t token : tokens) {
      news.tokens.push_back(token);
      news.offsets.push_back(std::max<std::int64_t>(choice.offset, 0));
      choice.offset += choice.characters.add(text_bytes(head_->model, token, generated));
    }
  }

  std::string last() {
    over_ = true;
    return stream_done(*head_, usage_);
  }

  /// The next part of an answer that is no stream. The text of a choice is made when those before
  /// it are sent, because it takes more memory than the choice.
  std::string whole() {
    std::string part = written_ == 0 ? answer_begin(*head_) : "";
    if (written_ < choices_.size())
      part += answer_choice(*head_, std::exchange(choices_[written_].whole, {}));
    over_ = ++written_ >= choices_.size();
    if (over_) part += answer_end(*head_, usage_);
    return part;
  }

  std::string fault(const std::string& why) {
    over_ = true;
    if (!request_.stream) throw HttpError(503, why);
    return stream_fault(why);
  }

  CompletionRequest request_;
  std::shared_ptr<void> room_;
  std::unique_ptr<AnswerHead> head_;
  std::vector<Choice> choices_;
  std::size_t open_, written_ = 0;  // choices that have not ended, and that were written
  AnswerUsage usage_;
  bool begun_ = false, over_ = false;
};

/// Bounds the values of all answers under way.
class AnswerRoom {
 public:
  explicit AnswerRoom(std::int64_t values) : left_(values) {}

  /// Takes room until the result is destroyed. Throws HttpError if there is too little.
  static std::shared_ptr<void> take(const std::shared_ptr<AnswerRoom>& from, std::int64_t values) {
    if ((from->left_ -= values) < 0) {
      from->left_ += values;
      throw HttpError(503, "too many large answers are under way; try again later");
    }
    return {nullptr, [from, values](void*) { from->left_ += values; }};
  }

 private:
  std::atomic<std::int64_t> left_;
};

/// Notes keys of requests that nobody knows, each once.
class UnknownKeys {
 public:
  explicit UnknownKeys(const ServedModel& model) : model_(model) {}

  void note(const std::vector<std::string>& keys) {
    if (!model_.note) return;
    const std::lock_guard lock(mutex_);
    for (const std::string& key : keys)
      if (noted_.size() < kMost && noted_.insert(key).second)
        model_.note(concat("a request has the key '", printable(key),
                           "', which is unknown and has no effect"));
  }

 private:
  static constexpr std::size_t kMost = 100;
  const ServedModel& model_;
  std::mutex mutex_;
  std::set<std::string> noted_;
};

/// State that the handlers of completions share.
struct Completions {
  const ServedModel& model;
  RequestQueue& queue;
  std::shared_ptr<AnswerRoom> room;
  std::shared_ptr<UnknownKeys> unknown;
};

void complete(const Completions& of, CompletionRequest request, const HttpRequest& http,
              HttpResponse& response) {
  of.unknown->note(request.unknown_keys);
  auto room = AnswerRoom::take(of.room, request.values);
  std::vector<RequestQueue::Request> prompts;
  for (const auto& prompt : request.prompts)
    for (std::int64_t copy = 0; copy < request.copies; ++copy) {
      prompts.push_back({prompt, request.options});
      prompts.back().options.random_stream = static_cast<std::uint64_t>(copy);
    }
  Streams streams = of.queue.submit(std::move(prompts), http.news);
  if (streams.empty()) throw HttpError(503, "too many prompts are waiting; try again later");
  const bool stream = request.stream;
  const auto answer =
      std::make_shared<Answer>(of.model, std::move(request), std::move(streams), std::move(room));
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

/// The load in Prometheus' text form.
std::string metrics_of(const RequestQueue& queue) {
  const RequestQueue::Load load = queue.load();
  std::string text;
  const auto add = [&](const char* name, const char* type, const char* help, auto value) {
    text += concat("# HELP axonn_", name, ' ', help, "\n# TYPE axonn_", name, ' ', type, "\naxonn_",
                   name, ' ', value, '\n');
  };
  add("prompts_running", "gauge", "Prompts whose text is being generated.", load.running);
  add("prompts_waiting", "gauge", "Prompts that wait for their turn.", load.waiting);
  add("prompts_total", "counter", "Prompts whose text has ended.", load.prompts);
  add("generated_tokens_total", "counter", "Tokens of texts that have ended.", load.tokens);
  return text;
}

Json tokenizer_info(const ServedModel& model) {
  const Tokenizer& tokenizer = *model.tokenizer;
  std::string begin;
  for (const std::int32_t token : tokenizer.begin_of_text()) begin += tokenizer.bytes_of(token);
  const auto end = tokenizer.end_of_text();
  std::string name = tokenizer.name();  // "BPE (FOLDER/tokenizer.json)"
  if (name.ends_with(')')) name = name.substr(name.find('(') + 1, name.size() - name.find('(') - 2);
  return {{"tokenizer", std::filesystem::path(name).filename()},
          {"vocab_size", tokenizer.vocab_size()},
          {"bos_token", begin.empty() ? Json() : Json(begin)},
          {"eos_token", end ? Json(std::string(tokenizer.bytes_of(*end))) : Json()},
          {"chat_template", model.chat ? Json(model.chat->source(false)) : Json()}};
}

/// Adds what tells how busy the server is.
void add_load(HttpServer& server, RequestQueue& queue) {
  server.get(
      "/health",
      [&queue](const HttpRequest&, HttpResponse& response) {
        response.body = health_of(queue).dump() + '\n';
      },
      true);
  server.get("/metrics", [&queue](const HttpRequest&, HttpResponse& response) {
    response.type = "text/plain; version=0.0.4; charset=utf-8";
    response.body = metrics_of(queue);
  });
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
  add_load(server, queue);
  const Json here{{"id", model.name},
                  {"object", "model"},
                  {"created", model.clock()},
                  {"owned_by", "axonn"},
                  {"max_model_len", model.context},
                  {"chat", model.chat != nullptr}};
  server.get("/v1/models", fixed({{"object", "list"}, {"data", Json::array({here})}}));
  server.get("/v1/models/*", [&model, here](const HttpRequest& request, HttpResponse& response) {
    const std::string name = request.path.substr(std::string_view("/v1/models/").size());
    if (name != model.name)
      throw HttpError(404,
                      concat("there is no model '", name, "'; the server has '", model.name, "'"),
                      "model_not_found");
    response.body = here.dump() + '\n';
  });
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
  const Completions completions{model, queue,
                                std::make_shared<AnswerRoom>(kLargestAnswers * model.most_values),
                                std::make_shared<UnknownKeys>(model)};
  server.post("/v1/completions", [completions](const HttpRequest& request, HttpResponse& response) {
    complete(completions, parse_completion(request.body, completions.model), request, response);
  });
  server.post("/v1/chat/completions",
              [completions](const HttpRequest& request, HttpResponse& response) {
                complete(completions, parse_chat_completion(request.body, completions.model),
                         request, response);
              });
}

}  // namespace axonn
