#include "axonn/app/serve/api.h"

#include <atomic>
#include <filesystem>
#include <mutex>
#include <set>
#include <utility>

#include <nlohmann/json.hpp>

#include "axonn/app/serve/answer.h"
#include "axonn/foundation/base/check.h"
#include "axonn/foundation/base/utf8.h"

namespace axonn {

extern const char kServePage[];

namespace {

using Json = nlohmann::ordered_json;

constexpr std::int64_t kLargestAnswers = 8;  // that may be under way at once

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
  auto streams = of.queue.submit(std::move(prompts), http.news);
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
  const auto add = [&](const char* path, auto parse) {
    server.post(path, [completions, parse](const HttpRequest& request, HttpResponse& response) {
      complete(completions, parse(request.body, completions.model), request, response);
    });
  };
  add("/v1/completions", parse_completion);
  add("/v1/chat/completions", parse_chat_completion);
  add("/v1/responses", parse_responses);
  add("/v1/messages", parse_messages);
  add("/v1/embeddings", parse_embeddings);
}

}  // namespace axonn
