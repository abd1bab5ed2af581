#include <atomic>
#include <bit>
#include <iostream>
#include <optional>

#include <CLI/CLI.hpp>

#include "axonn/base/check.h"
#include "axonn/base/random.h"
#include "axonn/cli/command.h"
#include "axonn/cli/flags.h"
#include "axonn/cli/launch.h"
#include "axonn/model/sampling.h"
#include "axonn/train/own_cores.h"
#include "axonn/train/session.h"
#include "axonn/train/stored_model.h"

namespace axonn {

namespace {

constexpr const char* kExamples =
    R"(Examples:
  axonn generate --model out/quickstart/checkpoints --prompt "The town of"
  axonn generate --model out/quickstart/checkpoints --tokens 500 --temperature 0
      always the most likely token
  axonn generate --model out/quickstart/checkpoints --grid 2,1,2,1
      on four ranks: the same text)";

struct Request {
  std::string model, prompt = "\n", grid = "1,1,1,1";
  std::int64_t tokens = 200;
  std::uint64_t seed = 1;
  Sampling sampling{.temperature = 0.8};
};

/// The logits (V) of the token after `tokens`, whole on every rank.
std::vector<float> next_logits(Session& session, std::span<const std::int32_t> tokens) {
  const std::int64_t most = session.config().model.positions;
  const std::span<const std::int32_t> seen =
      tokens.last(std::min<std::size_t>(tokens.size(), most));
  // Rounded up to a power of two, so that products meet few shapes; what is behind the last token
  // has no effect on it.
  const std::int64_t length =
      std::min<std::int64_t>(most, std::bit_ceil(std::max<std::size_t>(seen.size(), 16)));
  const Context ctx = session.context();
  std::vector<std::int32_t> ids(length, 0);
  std::ranges::copy(seen, ids.begin());
  const Tokens input = make_tokens(ctx, ids, {}, {1, length});
  const Tensor mine = session.model().next_logits(ctx, input, std::ssize(seen) - 1);

  Communicator& across = session.grid().along(Axis::x);
  std::vector<float> here(mine.cols()), all(mine.cols() * across.size());
  ctx.arena.device().copy_to_host(here.data(), mine.view().data, mine.bytes());
  across.all_gather(buffer(std::span(all)), buffer(std::span(here)), "logits").wait();
  all.resize(session.model().vocab());
  return all;
}

/// The model is the reader's, or, where there is none, that of config.model.path.
void generate(const Config& config, const CheckpointReader* reader, Communicator& world,
              const Request& request) {
  const OwnCores cores(config, world);
  Session session(config, world, make_cpu_backend(cores.threads()), {.training = false});
  if (reader) {
    session.initialise_frozen();
    session.load(*reader, Session::Load::parameters);
  } else {
    session.initialise();
  }
  const Tokenizer& tokenizer = *session.corpus().tokenizer;
  StreamDecoder decoder(tokenizer, {.skip_special = true, .continues = true});
  const bool speaks = world.rank() == 0;
  std::vector<std::int32_t> tokens = tokenizer.encode_prompt(request.prompt);
  if (tokens.empty()) refuse("--prompt is empty: give at least one character to go on from");
  if (speaks) std::cout << request.prompt << std::flush;
  const Random random(request.seed, "generate");
  for (std::int64_t i = 0; i < request.tokens; ++i) {
    const std::vector<float> logits = next_logits(session, tokens);
    const std::int32_t token = sample(logits, request.sampling, random.uniform(i));
    if (token == tokenizer.end_of_text() || token >= tokenizer.vocab_size()) break;
    tokens.push_back(token);
    if (speaks) std::cout << decoder.push(token) << std::flush;
  }
  if (speaks) std::cout << decoder.finish() << std::endl;
}

}  // namespace

int run_generate(const Arguments& arguments) {
  Request request;
  CLI::App app("Writes text with a model.", "axonn generate");
  app.footer(kExamples);
  app.add_option("--model", request.model,
                 "a checkpoint, the folder of several (the newest), or a Hugging Face folder")
      ->required()
      ->type_name("DIR");
  app.add_option("--prompt", request.prompt, "what to go on from");
  app.add_option("--tokens", request.tokens, "how many to write")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  app.add_option("--temperature", request.sampling.temperature, "0: the most likely token always")
      ->capture_default_str()
      ->check(CLI::NonNegativeNumber);
  app.add_option("--top-k", request.sampling.top_k, "only the k most likely tokens; 0: all")
      ->capture_default_str()
      ->check(CLI::NonNegativeNumber);
  app.add_option("--top-p", request.sampling.top_p,
                 "only the most likely tokens that together have this probability")
      ->capture_default_str()
      ->check(CLI::Range(1e-6, 1.0));
  app.add_option("--seed", request.seed, "another seed, another text")->capture_default_str();
  app.add_option("--grid", request.grid, "x,y,z,data")->capture_default_str();
  if (!parse_flags(app, arguments)) return 0;

  std::optional<CheckpointReader> reader;
  Config config;
  if (is_hugging_face(request.model)) {
    config.model.path = request.model;
    config = with_stored_model(config);
  } else {
    reader.emplace(request.model);
    for (const std::string& warning : reader->warnings())
      std::cerr << "warning: " << warning << '\n';
    config = stored_config(*reader);
  }
  config.parallelism.set_grid(parse_grid(request.grid));
  launch(config, [&](Communicator& world) {
    generate(config, reader ? &*reader : nullptr, world, request);
  });
  return 0;
}

}  // namespace axonn
