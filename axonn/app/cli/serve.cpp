#include <algorithm>
#include <exception>
#include <filesystem>
#include <iostream>
#include <thread>
#include <utility>

#include <CLI/CLI.hpp>

#include "axonn/app/cli/command.h"
#include "axonn/app/cli/flags.h"
#include "axonn/app/cli/model_flags.h"
#include "axonn/app/cli/stop_signals.h"
#include "axonn/app/serve/api.h"
#include "axonn/data/text/model_text.h"
#include "axonn/foundation/base/check.h"
#include "axonn/foundation/base/log.h"
#include "axonn/ranks/comm/texts.h"
#include "axonn/run/config/run_text.h"
#include "axonn/run/load/launch.h"
#include "axonn/run/train/distillation_term.h"

namespace axonn {

namespace {

constexpr const char* kServeExamples =
    R"(Examples:
  axonn serve --model Qwen3-0.6B --dtype bf16
      then open http://127.0.0.1:8000, or point a client of OpenAI's API at
      http://127.0.0.1:8000/v1
  axonn serve --model out/run/checkpoints --grid 2,1,2,1
      a checkpoint of any grid, on four ranks
  axonn serve --model Qwen3-0.6B --adapters polite=out/polite/checkpoints terse=terse-peft
      requests choose by their model: Qwen3-0.6B, polite or terse
  AXONN_SERVE_TOKEN=secret axonn serve --model Llama-3.2-1B --host 0.0.0.0
      for other machines, which must know the token)";

struct ServeFlags : ModelFlags {
  HttpServer::Options http;
  Generator::Options generator;
  bool gather_weights = false;
  std::size_t queue = 1024;
  std::string name, draft;
  ChatFlags chat;
  ServedModel served;  ///< the limits of all
};

/// What is served: the model, its adapters and its chat template.
void add_served_model_flags(CLI::App& app, ServeFlags& flags) {
  add_model_flags(app, flags);
  app.get_option("--model")->required();
  app.add_option("--name", flags.name, "the model's name in answers (default: its folder's)");
  app.add_option("--adapters", flags.choices,
                 "adapters of the model, each a model of its own: a PEFT folder or a checkpoint of "
                 "adapters; NAME is what requests call it (default: its folder's)")
      ->type_name("[NAME=]DIR")
      ->excludes("--adapter");
  add_chat_flags(app, flags.chat);
}

void add_serve_flags(CLI::App& app, ServeFlags& flags) {
  add_served_model_flags(app, flags);
  app.add_option("--host", flags.http.host,
                 "address to listen on; others than this machine's own need --token")
      ->capture_default_str();
  app.add_option("--port", flags.http.port, "port; 0: any that is free")
      ->capture_default_str()
      ->check(CLI::Range(0, 65535));
  app.add_option("--token", flags.http.token,
                 "requests must have the header \"Authorization: Bearer TOKEN\"")
      ->envname("AXONN_SERVE_TOKEN");
  app.add_option("--allow-origin", flags.http.origins,
                 "origins of web pages that may use the server, such as https://chat.example")
      ->type_name("ORIGIN");
  app.add_option("--batch", flags.generator.batch,
                 "prompts at a time per (z, data) coordinate; 0: what fits in 1 GiB, at most 64")
      ->check(count_from(0));
  app.add_option("--context", flags.generator.context,
                 "most tokens that the model sees at once; 0: at most 4,096")
      ->check(count_from(0));
  app.add_option("--queue", flags.queue, "most prompts that wait for their turn")
      ->capture_default_str()
      ->check(count_from(1));
  app.add_option("--max-tokens", flags.served.most_tokens, "most tokens generated for a prompt")
      ->capture_default_str()
      ->check(count_from(1));
  app.add_option("--max-prompts", flags.served.most_prompts, "most prompts of a request")
      ->capture_default_str()
      ->check(count_from(1));
  app.add_option("--max-body", flags.http.body_bytes, "most bytes of a request")
      ->capture_default_str()
      ->check(count_from(1));
  app.add_option("--max-answer", flags.served.most_values,
                 "most tokens and log-probabilities of an answer, all its texts together")
      ->capture_default_str()
      ->check(count_from(1));
  app.add_option("--connections", flags.http.connections,
                 "requests answered at the same time; others get status 503")
      ->capture_default_str()
      ->check(CLI::Range(1, 4096));
  app.add_option("--client-connections", flags.http.client_connections,
                 "of them, those of one address; 0: half, or all of this machine's")
      ->capture_default_str()
      ->check(CLI::Range(0, 4096));
  add_draft_flags(app, flags.generator.drafts, flags.draft);
  add_integer_products_flag(app, flags.generator.integer_products);
  add_kv_cache_flag(app, flags.generator.kept);
  app.add_flag("--gather-weights", flags.gather_weights,
               "gather weights over z for every token instead of once: slow, but needs only 1/z of "
               "their memory");
}

/// The folder's name; for checkpoints, that of the run.
std::string name_in(std::filesystem::path path) {
  path = std::filesystem::weakly_canonical(path);
  const auto says_nothing = [&] {
    const std::string name = path.filename().string();
    return name.empty() || name == "checkpoints" || name.starts_with("step-");
  };
  while (says_nothing() && path.has_parent_path() && path != path.parent_path())
    path = path.parent_path();
  return path.filename().string();
}

/// Splits NAME=DIR of the flags, or names a folder that stands alone: leaves the folders as
/// choices, and returns the names. Throws UsageError if two models have the same name.
std::vector<std::string> name_adapters(ServeFlags& flags) {
  std::vector<std::string> names;
  for (std::string& each : flags.choices) {
    const std::size_t at = std::filesystem::exists(each) ? each.npos : each.find('=');
    const std::string path = at == each.npos ? each : each.substr(at + 1),
                      name = at == each.npos ? name_in(path) : each.substr(0, at);
    if (name.empty() || path.empty()) refuse("--adapters ", each, ": wanted NAME=DIR");
    if (name == flags.name || std::ranges::find(names, name) != names.end())
      refuse("--adapters ", each, ": '", name,
             "' is also the name of another model; give NAME=DIR");
    names.push_back(name);
    each = path;
  }
  return names;
}

/// The model, and its adapters as models of their own, each with the text it was trained on.
std::vector<ServedModel> served_models(const ServeFlags& flags, const Config& config,
                                       const std::vector<std::string>& adapters) {
  std::vector<ServedModel> all;
  const auto add = [&](const std::string& name, const ModelText& own) {
    const ModelText text = with_tokenizer(&own, config.data.tokenizer);
    ServedModel& model = all.emplace_back(flags.served);
    model.name = name;
    model.adapter = std::ssize(all) - 2;
    model.chat = chat_of(flags.chat, model.tokenizer, text);
    model.stop_tokens = text.ends;
  };
  add(flags.name, *config.data.model_text);
  const auto& [base, none, choices] = config.model_files;
  for (std::size_t i = 0; i < adapters.size(); ++i)
    add(adapters[i], text_of_files(*base, choices[i].get()));
  return all;
}

/// Rank 0: answers requests until a signal comes.
void lead(Generator& generator, Communicator& world, const ServeFlags& flags,
          std::vector<ServedModel> models) {
  for (ServedModel& model : models) {
    model.context = generator.context();
    model.note = [](const std::string& text) { std::cerr << concat("note: ", text, '\n'); };
  }
  RequestQueue queue(flags.queue);
  HttpServer server(flags.http);
  add_api(server, models, queue);
  const std::atomic<bool>& stop = catch_stop_signals();
  server.start();
  std::string names = models.front().name;
  for (std::size_t i = 1; i < models.size(); ++i) names += ", " + models[i].name;
  std::cout << "serving " << names << " at " << server.address() << ", a context of "
            << format_count(generator.context()) << " tokens; the API is at " << server.address()
            << "/v1; Ctrl-C ends it" << std::endl;
  std::atomic<bool> done = false;
  std::thread watch([&] {
    while (!done && !stop) std::this_thread::sleep_for(std::chrono::milliseconds(100));
    queue.close("the server is stopping");
  });
  const auto end = [&] {
    done = true;
    watch.join();
    server.stop();
  };
  try {
    serve(generator, world, &queue);
  } catch (...) {
    queue.close("the server failed");
    end();
    throw;
  }
  end();
  const RequestQueue::Load load = queue.load();
  std::cout << "served " << format_count(load.prompts) << " prompts, " << format_count(load.tokens)
            << " tokens generated" << std::endl;
}

}  // namespace

int run_serve(const Arguments& arguments) {
  ServeFlags flags;
  CLI::App app("Answers requests for completions and chats over HTTP, by OpenAI's API.",
               "axonn serve");
  app.footer(kServeExamples);
  add_serve_flags(app, flags);
  if (!parse_flags(app, arguments)) return 0;
  if (HttpServer server(flags.http); speaks_for_all()) {  // refuses a port before a model is read
    server.start();
    server.stop();
  }

  if (flags.name.empty()) flags.name = name_in(flags.model);
  const std::vector<std::string> names = name_adapters(flags);
  Config config = open_model(flags);
  flags.served.tokenizer = need_tokenizer(config, flags);
  const std::vector<ServedModel> models = served_models(flags, config, names);
  flags.generator.tokenizer = flags.served.tokenizer.get();
  flags.generator.hold_weights = !flags.gather_weights;
  catch_stop_signals();  // on every rank; rank 0 tells the others to stop
  with_model(config, [&](LoadedModel& loaded) {
    constexpr std::int64_t kContext = 4096;
    Generator::Options options = flags.generator;
    if (options.context == 0) options.context = std::min(kContext, loaded.config().model.positions);
    const auto draft = load_beside(loaded, {.path = flags.draft, .key = "--draft"},
                                   loaded.grid().world(), flags.served.tokenizer.get());
    options.draft_model = draft.get();
    Generator generator(loaded, options);
    generator.reserve(std::size_t{1} << 20);
    Communicator& world = loaded.grid().world();
    if (world.rank() != 0) return serve(generator, world, nullptr);
    std::vector<ServedModel> mine = models;
    for (ServedModel& model : mine) {
      model.vocab = loaded.model().vocab();
      model.width = loaded.config().model.hidden;
      model.most_beams = generator.most_beams();
    }
    lead(generator, world, flags, std::move(mine));
  });
  return 0;
}

}  // namespace axonn
