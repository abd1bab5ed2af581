#include "axonn/app/worker/worker.h"

#include <algorithm>
#include <ctime>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "axonn/app/serve/request_body.h"
#include "axonn/data/text/chat/conversation.h"
#include "axonn/foundation/base/check.h"
#include "axonn/ranks/comm/texts.h"
#include "axonn/use/infer/evaluate.h"
#include "axonn/use/infer/logits.h"

namespace axonn {

namespace {

using WorkerJson = nlohmann::ordered_json;

struct WorkerArray {
  std::int64_t rows = 0, cols = 0;
  std::vector<float> values;  // (rows, cols)
};

struct WorkerAnswer {
  WorkerJson json = WorkerJson::object();
  std::vector<WorkerArray> arrays = {};
};

/// What is left of a call once it has been checked.
using WorkerTask = std::function<WorkerAnswer()>;

/// The lists of tokens of a call. Ranges are checked by whoever uses them.
std::vector<std::vector<std::int32_t>> token_lists(const nlohmann::json& call) {
  try {
    return call.at("tokens").get<std::vector<std::vector<std::int32_t>>>();
  } catch (const nlohmann::json::exception&) {
    refuse("tokens: wanted a list of lists of numbers");
  }
}

WorkerJson json_of(const TokenScore& score) {
  WorkerJson json{{"logprob", score.log_probability}};
  for (const auto& [token, value] : score.likeliest) json["likeliest"].push_back({token, value});
  return json;
}

WorkerJson json_of(const Generation& of, bool scored) {
  WorkerJson json{{"text", of.text}, {"tokens", of.tokens}, {"finish_reason", name_of(of.reason)}};
  if (scored) json["scores"] = WorkerJson::array();
  for (const TokenScore& score : of.scores) json["scores"].push_back(json_of(score));
  for (const TokenScore& score : of.prompt_scores) json["prompt_scores"].push_back(json_of(score));
  if (!of.others.empty()) json["beam_score"] = of.beam_score;
  for (const Generation& other : of.others) {
    json["others"].push_back(json_of(other, scored));
    json["others"].back()["beam_score"] = other.beam_score;
  }
  return json;
}

class Calls {
 public:
  explicit Calls(WorkerModel& worker) : worker_(worker) {}

  /// Checks a call. Throws UsageError, on every rank alike.
  WorkerTask task_of(const std::string& line) {
    using Handler = WorkerTask (Calls::*)(const std::string&);
    static const std::map<std::string, Handler> kText = {{"describe", &Calls::describe},
                                                         {"tokenize", &Calls::tokenize},
                                                         {"detokenize", &Calls::detokenize},
                                                         {"chat", &Calls::chat}};
    static const std::map<std::string, Handler> kModel = {{"generate", &Calls::generate},
                                                          {"answer", &Calls::answer},
                                                          {"embed", &Calls::embed},
                                                          {"losses", &Calls::losses},
                                                          {"logits", &Calls::logits}};
    const std::size_t space = line.find(' ');
    const std::string name = line.substr(0, space),
                      body = space == line.npos ? "" : line.substr(space + 1);
    if (const auto found = kText.find(name); found != kText.end())
      return (this->*found->second)(body);
    const auto found = kModel.find(name);
    if (found == kModel.end()) refuse("there is no call '", name, "'");
    if (!worker_.loaded) refuse(name, " needs a model, and this worker has only a tokenizer");
    return (this->*found->second)(body);
  }

 private:
  const Tokenizer& tokenizer() const {
    if (!worker_.served.tokenizer) refuse("the model's tokenizer is unknown; name it (tokenizer=)");
    return *worker_.served.tokenizer;
  }

  static nlohmann::json parsed(const std::string& body) {
    auto json = nlohmann::json::parse(body, nullptr, false);
    if (!json.is_object()) refuse("a call is not a JSON object");
    return json;
  }

  static WorkerTask done(WorkerJson json) {
    return [answer = WorkerAnswer{std::move(json)}] { return answer; };
  }

  WorkerTask describe(const std::string&) {
    WorkerJson json;
    if (const Tokenizer* text = worker_.served.tokenizer.get()) {
      json["tokenizer"] = {{"name", text->name()},
                           {"vocab_size", text->vocab_size()},
                           {"begin", text->begin_of_text()},
                           {"added_tokens", text->added_tokens()}};
      const auto end = text->end_of_text();
      json["tokenizer"]["end"] = end ? WorkerJson(*end) : WorkerJson();
      json["chats"] = worker_.served.chat != nullptr;
    }
    if (LoadedModel* loaded = worker_.loaded) {
      const Config& config = loaded->config();
      json["model"] = {
          {"description", loaded->model().describe()}, {"vocab", loaded->model().vocab()},
          {"positions", config.model.positions},       {"hidden", config.model.hidden},
          {"dtype", name_of(config.training.dtype)},   {"grid", to_string(loaded->grid().shape())},
          {"seq_len", config.training.seq_len}};
    }
    return done(std::move(json));
  }

  WorkerTask tokenize(const std::string& body) {
    const auto call = parsed(body);
    const EncodeOptions options{.added_tokens = call.value("added_tokens", true)};
    WorkerJson lists = WorkerJson::array();
    for (const auto& text : call.value("texts", nlohmann::json::array())) {
      if (!text.is_string()) refuse("texts: wanted a list of texts");
      auto tokens = tokenizer().encode(text.get_ref<const std::string&>(), options);
      if (call.value("begin", false)) tokenizer().add_begin(tokens);
      lists.push_back(std::move(tokens));
    }
    return done({{"tokens", std::move(lists)}});
  }

  WorkerTask detokenize(const std::string& body) {
    const auto call = parsed(body);
    WorkerJson texts = WorkerJson::array();
    for (const auto& tokens : token_lists(call)) {
      for (const std::int32_t token : tokens)
        if (token < 0 || token >= tokenizer().vocab_size())
          refuse("token ", token, " is not one of the tokenizer's ", tokenizer().vocab_size());
      texts.push_back(
          tokenizer().decode(tokens, {.skip_special = call.value("skip_special", false)}));
    }
    return done({{"texts", std::move(texts)}});
  }

  WorkerTask chat(const std::string& body) {
    const ChatTemplate* form = worker_.served.chat.get();
    if (!form) refuse("the model has no chat template; name one (chat_template=)");
    const auto value = parse_chat_json(body);
    if (!value || !value->dict()) refuse("a call is not JSON that a chat template can read");
    Conversation conversation = Conversation::parse(*value->dict(), "");
    conversation.normalize();
    const bool prompted = parsed(body).value("prompt", true);
    WorkerJson json{{"text", form->text(conversation, prompted).bytes()}};
    if (prompted) {
      json["tokens"] = form->prompt(conversation);
    } else {
      const ChatTemplate::Rendered rendered = form->render(conversation);
      json["tokens"] = rendered.tokens;
      json["learned"] = rendered.learned;
    }
    return done(std::move(json));
  }

  WorkerTask generate(const std::string& body) {
    return generated(parse_completion(body, limits()), body);
  }
  WorkerTask answer(const std::string& body) {
    return generated(parse_chat_completion(body, limits()), body);
  }
  WorkerTask embed(const std::string& body) {
    CompletionRequest request = checked(parse_embeddings(body, limits()));
    return [this, request = std::move(request)] {
      WorkerArray all{.rows = std::ssize(request.prompts),
                      .cols = worker_.loaded->config().model.hidden,
                      .values = {}};
      for (const Generation& one : results_of(request))
        all.values.insert(all.values.end(), one.embedding.begin(), one.embedding.end());
      return WorkerAnswer{.arrays = {std::move(all)}};
    };
  }

  /// The model with the limits of its parsers: what it can do.
  const ServedModel& limits() {
    tokenizer();
    constexpr std::int64_t kMost = std::int64_t{1} << 40;
    ServedModel& served = worker_.served;
    served.vocab = worker_.loaded->model().vocab();
    served.context = worker_.loaded->config().model.positions;
    served.width = worker_.loaded->config().model.hidden;
    served.most_tokens = served.most_prompts = served.most_values = kMost;
    served.most_beams = kMostBeams;
    return served;
  }

  static CompletionRequest checked(CompletionRequest request) {
    if (!request.unknown_keys.empty())
      refuse("there is no setting '", request.unknown_keys.front(), "'");
    return request;
  }

  WorkerTask generated(CompletionRequest asked, const std::string& body) {
    if (!RequestBody(body).has("seed")) reject_key("seed", "wanted a number");  // ranks must agree
    CompletionRequest request = checked(std::move(asked));
    return [this, request = std::move(request)] {
      WorkerJson all = WorkerJson::array();
      for (const Generation& one : results_of(request))
        all.push_back(json_of(one, request.options.likeliest >= 0));
      return WorkerAnswer{{{"generations", std::move(all)}}};
    };
  }

  /// One result for each copy of each prompt, or of its beams, as axonn generate makes them.
  std::vector<Generation> results_of(const CompletionRequest& request) {
    std::vector<std::vector<std::int32_t>> prompts;
    std::int64_t longest = 0;
    for (const auto& prompt : request.prompts) {
      prompts.insert(prompts.end(), request.copies, prompt);
      longest = std::max(longest, std::ssize(prompt));
    }
    const std::int64_t positions = worker_.loaded->config().model.positions,
                       wanted = request.options.max_tokens;
    Generator generator(*worker_.loaded,
                        {.context = wanted < positions - longest ? longest + wanted : positions,
                         .tokenizer = worker_.served.tokenizer.get()});
    return generator.generate(prompts, request.options);
  }

  WorkerTask losses(const std::string& body) {
    const auto call = parsed(body);
    auto lists = token_lists(call);
    const std::int64_t positions = worker_.loaded->config().model.positions;
    std::int64_t longest = 1;
    for (const auto& tokens : lists) {
      check_sequence(*worker_.loaded, tokens, positions + 1);
      longest = std::max(longest, std::ssize(tokens) - 1);
    }
    std::int64_t batch = call.value("batch", std::int64_t{0});
    if (batch < 0) refuse("batch: wanted a number of sequences, got ", batch);
    if (batch == 0) batch = usual_batch(worker_.loaded->grid(), longest, std::ssize(lists));
    return [this, batch, lists = std::move(lists)] {
      const auto at = [&](std::int64_t n) {
        const std::int64_t targets = std::ssize(lists[n]) - 1;
        return ScoredSequence{.tokens = lists[n], .scored = targets, .positions = targets};
      };
      WorkerArray losses{.rows = 1, .values = {}}, greedy{.rows = 1, .values = {}};
      for (const TargetScores& one : score_targets(
               *worker_.loaded, {.count = std::ssize(lists), .at = at}, {.batch = batch})) {
        losses.values.insert(losses.values.end(), one.losses.begin(), one.losses.end());
        for (const bool likeliest : one.greedy) greedy.values.push_back(likeliest ? 1 : 0);
      }
      losses.cols = greedy.cols = std::ssize(losses.values);
      return WorkerAnswer{.arrays = {std::move(losses), std::move(greedy)}};
    };
  }

  WorkerTask logits(const std::string& body) {
    const auto lists = token_lists({{"tokens", {parsed(body).value("tokens", nlohmann::json())}}});
    check_sequence(*worker_.loaded, lists.front(), worker_.loaded->config().model.positions);
    return [this, tokens = lists.front()] {
      WorkerArray all{.rows = std::ssize(tokens),
                      .cols = worker_.loaded->model().vocab(),
                      .values = logits_of(*worker_.loaded, tokens)};
      return WorkerAnswer{.arrays = {std::move(all)}};
    };
  }

  WorkerModel& worker_;
};

void write_answer(std::ostream& out, const WorkerAnswer& answer) {
  WorkerJson shapes = WorkerJson::array();
  for (const WorkerArray& array : answer.arrays) shapes.push_back({array.rows, array.cols});
  out << dumped({{"result", answer.json}, {"arrays", std::move(shapes)}}) << '\n';
  for (const WorkerArray& array : answer.arrays) {
    const auto bytes = std::as_bytes(std::span(array.values));
    out.write(reinterpret_cast<const char*>(bytes.data()), std::ssize(bytes));
  }
  out.flush();
}

/// The next call and rank 0's time, on every rank; empty at the end of the input.
std::vector<std::string> next_call(LoadedModel* model, std::istream& in) {
  std::vector<std::string> call;
  const bool leads = !model || model->grid().world().rank() == 0;
  if (std::string line; leads && std::getline(in, line))
    call = {std::move(line), std::to_string(std::time(nullptr))};
  return model ? broadcast_texts(model->grid().world(), std::move(call)) : call;
}

}  // namespace

void answer_calls(WorkerModel worker, std::istream& in, std::ostream& out) {
  const bool leads = !worker.loaded || worker.loaded->grid().world().rank() == 0;
  Calls calls(worker);
  for (;;) {
    const std::vector<std::string> call = next_call(worker.loaded, in);
    if (call.empty()) return;
    worker.served.clock = [time = std::stoll(call[1])] { return static_cast<std::time_t>(time); };
    WorkerTask task;
    try {
      task = calls.task_of(call[0]);
    } catch (const UsageError& error) {  // goes to the caller
      if (leads) out << dumped({{"error", error.what()}}) << std::endl;
      continue;
    }
    const WorkerAnswer answer = task();
    if (leads) write_answer(out, answer);
  }
}

}  // namespace axonn
