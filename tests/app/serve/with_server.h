// A server in this process, with an untrained model on a grid of threads.
#pragma once

#include <functional>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "axonn/app/serve/api.h"
#include "axonn/foundation/base/check.h"

#include "tests/support/http_client.h"
#include "tests/support/runs.h"
#include "tests/support/with_model.h"

namespace axonn::testing_support {

inline constexpr std::int64_t kContext = 300;

inline Config config_of(const GridShape& grid) {
  Config config = on_grid(tiny_config("unused"), grid);
  config.data.tokenizer = "bytes";
  config.model = {.family = ModelFamily::llama,
                  .layers = 2,
                  .hidden = 96,
                  .heads = 24,
                  .kv_heads = 4,
                  .head_dim = 4,
                  .ffn = 192,
                  .positions = kContext,
                  .tied = false};
  config.model.init_std = 0.3;  // large enough that tokens depend on earlier ones
  return config;
}

struct Setting {
  GridShape grid = {};
  HttpServer::Options http = {.port = 0};
  std::size_t queue = 1000;
  std::int64_t batch = 0;
  std::string chat_template = {};          // "": chatml
  std::vector<std::string> adapters = {};  // untrained, so that they change nothing
};

/// What a test sees of the server.
struct Served {
  int port = 0;
  RequestQueue& queue;
  LoadedModel& model;  ///< of rank 0

  HttpAnswer get(const std::string& path, const HttpHeaders& headers = {}) const {
    return http_get(port, path, headers);
  }
  HttpAnswer post(const std::string& path, const nlohmann::json& body,
                  const HttpHeaders& headers = {}) const {
    return http_post(port, path, body.dump(), headers);
  }
  /// The answer's JSON. The status must be 200.
  nlohmann::json answer(const std::string& path, const nlohmann::json& body) const {
    const HttpAnswer result = post(path, body);
    AXONN_CHECK(result.status == 200, "POST ", path, ": ", result.head, result.body);
    return nlohmann::json::parse(result.body);
  }
  nlohmann::json health() const { return nlohmann::json::parse(get("/health").body); }
};

/// Serves an untrained model on a grid, runs the test beside it, and stops.
inline void with_server(const Setting& setting, const std::function<void(const Served&)>& test) {
  Config config = config_of(setting.grid);
  config.model.lora.choices.resize(setting.adapters.size(), {.rank = 2});
  if (!setting.adapters.empty()) config.model.lora.rank = 2;
  with_model(config, [&](LoadedModel& loaded) {
    const auto tokenizer = make_tokenizer("bytes");
    Generator generator(loaded, {.batch = setting.batch, .tokenizer = tokenizer.get()});
    generator.reserve(std::size_t{1} << 20);
    Communicator& world = loaded.grid().world();
    if (world.rank() != 0) return serve(generator, world, nullptr);
    std::vector<ServedModel> models{
        {.name = "tiny (a+b)",
         .tokenizer = tokenizer,
         .chat = std::make_shared<ChatTemplate>(
             tokenizer, setting.chat_template.empty()
                            ? find_chat_format("auto", "bytes")
                            : ChatFormat{.forms = {{"default", "test", setting.chat_template}}}),
         .vocab = 256,
         .context = kContext,
         .width = loaded.config().model.hidden,
         .most_beams = generator.most_beams()}};
    for (const std::string& name : setting.adapters) {
      models.push_back(models.front());
      models.back().name = name;
      models.back().adapter = std::ssize(models) - 2;
      models.back().chat = nullptr;
    }
    RequestQueue queue(setting.queue);
    HttpServer server(setting.http);
    add_api(server, models, queue);
    const int port = server.start();
    std::thread tester([&] {
      try {
        test({port, queue, loaded});
      } catch (const std::exception& error) {
        ADD_FAILURE() << error.what();
      }
      queue.close("the test is over");
    });
    serve(generator, world, &queue);
    tester.join();
  });
}

}  // namespace axonn::testing_support
