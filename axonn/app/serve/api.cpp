#include "axonn/app/serve/api.h"

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <mutex>
#include <set>
#include <utility>

#include <nlohmann/json.hpp>

#include "axonn/app/serve/answer.h"
#include "axonn/app/serve/request_body.h"
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

using Models = std::span<const ServedModel>;

/// The model with this name. Throws HttpError, with the names that there are.
const ServedModel& find_model(Models models, const std::string& name) {
  const auto found = std::ranges::find(models, name, &ServedModel::name);
  if (found != models.end()) return *found;
  std::string names;
  for (const ServedModel& model : models)
    names += concat(names.empty() ? "'" : ", '", model.name, '\'');
  throw HttpError(404, concat("there is no model '", printable(name), "'; the server has ", names),
                  "model_not_found");
}

/// The model that a request names, of several; without a name the first.
const ServedModel& wanted_model(Models models, const std::string& body) {
  if (models.size() == 1) return models.front();
  const RequestBody request(body);
  const nlohmann::json& name = request["model"];
  if (name.is_null()) return models.front();
  if (!name.is_string()) reject_key("model", "wanted a model's name");
  return find_model(models, name);
}

/// State that the handlers of completions share.
struct Completions {
  Models models;
  RequestQueue& queue;
  std::shared_ptr<AnswerRoom> room;
  std::shared_ptr<UnknownKeys> unknown;
};

void complete(const Completions& of, const ServedModel& model, CompletionRequest request,
              const HttpRequest& http, HttpResponse& response) {
  of.unknown->note(request.unknown_keys);
  request.options.adapter = model.adapter;
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
      std::make_shared<Answer>(model, std::move(request), std::move(streams), std::move(room));
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

/// A handler that always answers with this.
auto fixed(const Json& value) {
  return [text = value.dump() + '\n'](const HttpRequest&, HttpResponse& response) {
    response.body = text;
  };
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

Json model_json(const ServedModel& model, Models all) {
  Json json{{"id", model.name},
            {"object", "model"},
            {"created", model.clock()},
            {"owned_by", "axonn"},
            {"max_model_len", model.context},
            {"chat", model.chat != nullptr}};
  if (&model != &all.front()) json["parent"] = all.front().name;
  return json;
}

void add_models(HttpServer& server, Models models) {
  Json all = Json::array();
  for (const ServedModel& model : models) all.push_back(model_json(model, models));
  server.get("/v1/models", fixed({{"object", "list"}, {"data", all}}));
  server.get("/v1/models/*", [models, all](const HttpRequest& request, HttpResponse& response) {
    const std::string name = request.path.substr(std::string_view("/v1/models/").size());
    const std::ptrdiff_t number = &find_model(models, name) - models.data();
    response.body = all[static_cast<std::size_t>(number)].dump() + '\n';
  });
}

}  // namespace

void add_api(HttpServer& server, std::span<const ServedModel> models, RequestQueue& queue) {
  AXONN_CHECK(!models.empty(), "add_api: no model");
  server.get(
      "/",
      [](const HttpRequest&, HttpResponse& response) {
        response.type = "text/html; charset=utf-8";
        response.body = kServePage;
      },
      true);
  add_load(server, queue);
  add_models(server, models);
  server.get("/tokenizer_info", fixed(tokenizer_info(models.front())));
  server.post("/tokenize", [models](const HttpRequest& request, HttpResponse& response) {
    const ServedModel& model = models.front();  // all have its tokenizer
    const auto tokens = parse_tokenize(request.body, model);
    response.body =
        Json{{"tokens", tokens}, {"count", tokens.size()}, {"max_model_len", model.context}}
            .dump() +
        '\n';
  });
  server.post("/detokenize", [models](const HttpRequest& request, HttpResponse& response) {
    response.body = Json{{"prompt", parse_detokenize(request.body, models.front())}}.dump(
                        -1, ' ', false, Json::error_handler_t::replace) +
                    '\n';
  });
  const std::int64_t values = models.front().most_values;
  const Completions completions{models, queue,
                                std::make_shared<AnswerRoom>(kLargestAnswers * values),
                                std::make_shared<UnknownKeys>(models.front())};
  const auto add = [&](const char* path, auto parse) {
    server.post(path, [completions, parse](const HttpRequest& request, HttpResponse& response) {
      const ServedModel& model = wanted_model(completions.models, request.body);
      complete(completions, model, parse(request.body, model), request, response);
    });
  };
  add("/v1/completions", parse_completion);
  add("/v1/chat/completions", parse_chat_completion);
  add("/v1/responses", parse_responses);
  add("/v1/messages", parse_messages);
  add("/v1/embeddings", parse_embeddings);
}

}  // namespace axonn
