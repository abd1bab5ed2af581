// A server whose model writes a given text, at which an engine takes the model's place.
#pragma once

#include <atomic>
#include <fstream>
#include <mutex>
#include <string>
#include <thread>

#include <nlohmann/json.hpp>

#include "axonn/app/serve/api.h"
#include "axonn/foundation/base/check.h"

#include "tests/data/text/tokenizer_files.h"
#include "tests/support/http_client.h"

namespace axonn::testing_support {

/// A server whose model answers with `text`.
class ScriptedServer {
 public:
  ScriptedServer(const std::string& chat_template, std::string text,
                 FinishReason reason = FinishReason::stop_token,
                 const std::string& tokenizer = "bytes")
      : text_(std::move(text)), reason_(reason) {
    model_.tokenizer = make_tokenizer(tokenizer);
    model_.vocab = model_.tokenizer->vocab_size();
    model_.chat = std::make_shared<ChatTemplate>(
        model_.tokenizer, ChatFormat{.forms = {{"default", "test.jinja", chat_template}}});
    model_.clock = [this] { return clock_.load(); };
    model_.note = [this](const std::string& said) {
      const std::lock_guard lock(mutex_);
      notes_ += said + '\n';
    };
    add_api(server_, {&model_, 1}, queue_);
    port_ = server_.start();
    engine_ = std::thread([this] { run(); });
  }
  ~ScriptedServer() {
    queue_.close("the test is over");
    engine_.join();
    server_.stop();
  }

  std::string body(const json& request) const {
    const char* path = request.contains("prompt")  ? "/v1/completions"
                       : request.contains("input") ? "/v1/responses"
                                                   : "/v1/chat/completions";
    return post(path, request).body;
  }
  nlohmann::json choice(const json& request) const {
    const nlohmann::json answer = nlohmann::json::parse(body(request));
    AXONN_CHECK(answer.contains("choices"), answer.dump());
    return answer["choices"][0];
  }
  HttpAnswer post(const char* path, const nlohmann::json& request) const {
    return http_post(port_, path, request.dump());
  }
  nlohmann::json get(const std::string& path) const {
    return nlohmann::json::parse(http_get(port_, path).body);
  }
  /// The notes so far.
  std::string notes() const {
    const std::lock_guard lock(mutex_);
    return notes_;
  }
  /// The prompt of the last request.
  std::string prompt() const { return prompt_; }
  void set_time(std::time_t time) { clock_ = time; }

 private:
  void run() {
    for (std::size_t number = 0;;) {
      const auto orders = queue_.take(true, 8);
      if (orders.stop) return;
      for (const auto& request : orders.add) {
        prompt_ = model_.tokenizer->decode(request.prompt);
        queue_.started(number, request.stream);
        Generation all{.reason = reason_};
        if (request.options.score_prompt)
          all.prompt_scores.resize(request.prompt.size() - 1, {.log_probability = -2});
        for (const std::int32_t token : model_.tokenizer->encode(text_, {.continues = true})) {
          all.text += model_.tokenizer->bytes_of(token);
          all.tokens.push_back(token);
          if (request.options.likeliest >= 0) all.scores.push_back({.log_probability = -1});
          queue_.text(number, all);
        }
        queue_.ended(number++, all);
      }
    }
  }

  std::string text_, prompt_, notes_;
  mutable std::mutex mutex_;  // of the notes
  FinishReason reason_;
  std::atomic<std::time_t> clock_ = 0;
  ServedModel model_{.name = "scripted", .tokenizer = {}, .chat = {}, .context = 10000};
  RequestQueue queue_{100};
  HttpServer server_{{.port = 0}};
  int port_ = 0;
  std::thread engine_;
};

inline std::string template_file(const std::string& name) {
  std::ifstream in(concat(AXONN_CHAT_TEMPLATES "/", name, ".jinja"));
  AXONN_CHECK(in, "no template ", name);
  return {std::istreambuf_iterator<char>(in), {}};
}

}  // namespace axonn::testing_support
