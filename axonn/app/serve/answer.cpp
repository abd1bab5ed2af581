#include "axonn/app/serve/answer.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <utility>

#include "axonn/app/serve/http.h"

namespace axonn {

namespace {

/// The bytes of a token in an answer's text. A generated token that is special has none.
std::string_view text_bytes(const ServedModel& model, std::int32_t token, bool generated) {
  if (token >= model.tokenizer->vocab_size()) return {};
  if (generated && model.tokenizer->is_special(token)) return {};
  return model.tokenizer->bytes_of(token);
}

}  // namespace

Answer::Answer(const ServedModel& model, CompletionRequest request,
               std::vector<std::shared_ptr<TextStream>> streams, std::shared_ptr<void> room)
    : model_(model),
      request_(std::move(request)),
      room_(std::move(room)),
      writer_(make_answer_writer(model, request_)),
      open_(streams.size()) {
  // The first stream of a prompt whose texts were searched for brings all of them.
  const auto each = static_cast<std::size_t>(request_.searches() ? request_.answers : 1);
  for (std::size_t i = 0; i < streams.size() * each; ++i)
    choices_.push_back(
        {.stream = i % each == 0 ? std::move(streams[i / each]) : nullptr,
         .splitter = AnswerSplitter(request_.form, request_.in_thought),
         .whole = {.index = i},
         .decoding = {
             .skip_special = true, .shown = request_.options.shown_tokens, .continues = true}});
}

Answer::~Answer() {
  for (const Choice& choice : choices_)
    if (choice.stream) choice.stream->cancel();
}

std::optional<std::string> Answer::next() {
  if (over_) return {};
  if (open_ == 0) return request_.stream ? last() : whole();
  std::string piece;
  if (!begun_ && request_.stream)
    for (const Choice& choice : choices_) piece += writer_->stream_begin(choice.whole.index);
  begun_ = true;
  if (!piece.empty()) return piece;
  for (std::size_t i = 0; i < choices_.size(); ++i) {
    auto event = choices_[i].stream ? choices_[i].stream->next() : std::nullopt;
    if (!event) continue;
    if (!event->fault.empty()) return fault(event->fault);
    std::vector<Generation> others = std::move(event->news.others);
    if (request_.searches() && event->end)  // with fewer texts only if it failed
      others.resize(static_cast<std::size_t>(request_.answers) - 1, {.reason = event->news.reason});
    piece += taken(i, std::move(*event));
    for (std::size_t other = 0; other < others.size(); ++other)
      piece += taken(i + 1 + other, {.news = std::move(others[other]), .end = true});
  }
  return open_ > 0 || !piece.empty() ? piece : next();
}

std::string Answer::taken(std::size_t number, TextStream::Event event) {
  Choice& choice = choices_[number];
  ChoiceNews news{.index = choice.whole.index, .embedding = std::move(event.news.embedding)};
  if (event.end) {
    news.end = event.news.reason;
    news.stop = std::move(event.news.stop);
    if (std::exchange(choice.stream, nullptr)) --open_;
  }
  usage_.generated += std::ssize(event.news.tokens);
  if (event.end && news.index % static_cast<std::size_t>(request_.texts()) == 0)
    usage_.cached += event.news.cached_tokens;
  if (!choice.begun && request_.echo) echo(choice, event.news, news);
  choice.begun = true;
  for (const TokenScore& score : event.news.scores) {
    choice.log_probability += score.log_probability;
    ++choice.scored;
  }
  const bool response = request_.kind == RequestKind::response;
  if (request_.scored && response) {
    place_tokens(choice, event.news);
  } else if (request_.scored) {
    add_tokens(choice, event.news.tokens, true, news);
    std::ranges::move(event.news.scores, std::back_inserter(news.scores));
  }
  if (request_.chat()) {
    news.parts = choice.splitter.push(event.news.text);
    if (event.end) news.parts.append(choice.splitter.finish());
    if (response) take_placed(choice, news);
    if (request_.single_call && news.parts.calls.size() > 1) news.parts.calls.resize(1);
  } else {
    news.parts.text += event.news.text;
  }
  if (request_.stream) return writer_->stream_news(news);
  choice.whole.append(std::move(news));
  return {};
}

/// Begins a choice with its prompt.
void Answer::echo(Choice& choice, Generation& generation, ChoiceNews& news) {
  const std::size_t prompt = news.index / static_cast<std::size_t>(request_.texts());
  news.parts.text = request_.echoes[prompt];
  if (!request_.options.score_prompt) return;
  // Tokens that are not in the text, such as <s>, come before its beginning.
  choice.offset = CharacterCount().add(news.parts.text);
  CharacterCount of_tokens;
  for (const std::int32_t token : request_.prompts[prompt])
    choice.offset -= of_tokens.add(text_bytes(model_, token, false));
  add_tokens(choice, request_.prompts[prompt], false, news);
  news.scores = std::move(generation.prompt_scores);
}

void Answer::add_tokens(Choice& choice, const std::vector<std::int32_t>& tokens, bool generated,
                        ChoiceNews& news) {
  for (const std::int32_t token : tokens) {
    news.tokens.push_back(token);
    news.offsets.push_back(std::max<std::int64_t>(choice.offset, 0));
    choice.offset += choice.characters.add(text_bytes(model_, token, generated));
  }
}

void Answer::place_tokens(Choice& choice, Generation& generation) {
  for (std::size_t i = 0; i < generation.tokens.size(); ++i) {
    const std::int32_t token = generation.tokens[i];
    const std::size_t begin = choice.bytes;
    if (token < model_.tokenizer->vocab_size())
      choice.bytes += model_.tokenizer->shown(token, choice.decoding).size();
    choice.unplaced.push_back({token, std::move(generation.scores[i]), {begin, choice.bytes}});
  }
}

/// Gives the news the tokens of its text; tokens of thoughts and calls have no place in a response.
void Answer::take_placed(Choice& choice, ChoiceNews& news) {
  const auto [begin, end] = choice.splitter.text();
  while (!choice.unplaced.empty() && choice.unplaced.front().bytes.begin < end) {
    PlacedToken& one = choice.unplaced.front();
    if (one.bytes.end > std::max(begin, one.bytes.begin)) {
      news.tokens.push_back(one.token);
      news.scores.push_back(std::move(one.score));
    }
    choice.unplaced.pop_front();
  }
}

double Answer::Choice::likelihood() const {
  return scored > 0 ? log_probability / static_cast<double>(scored)
                    : -std::numeric_limits<double>::infinity();
}

/// Of each prompt's texts, keeps those that the answer has, the likeliest first.
void Answer::keep_likeliest() {
  if (request_.answers == request_.texts()) return;
  std::vector<Choice> kept;
  const auto copies = static_cast<std::ptrdiff_t>(request_.copies);
  for (auto begin = choices_.begin(); begin != choices_.end(); begin += copies) {
    std::stable_sort(begin, begin + copies, [](const Choice& a, const Choice& b) {
      return a.likelihood() > b.likelihood();
    });
    for (std::int64_t i = 0; i < request_.answers; ++i) {
      kept.push_back(std::move(begin[i]));
      kept.back().whole.index = kept.size() - 1;
    }
  }
  choices_ = std::move(kept);
}

std::string Answer::last() {
  over_ = true;
  return writer_->stream_done(usage_);
}

/// The next part of an answer that is no stream. The text of a choice is made when those before it
/// are sent, because it takes more memory than the choice.
std::string Answer::whole() {
  if (written_ == 0) keep_likeliest();
  std::string part = written_ == 0 ? writer_->begin() : "";
  if (written_ < choices_.size())
    part += writer_->choice(std::exchange(choices_[written_].whole, {}));
  over_ = ++written_ >= choices_.size();
  if (over_) part += writer_->end(usage_);
  return part;
}

std::string Answer::fault(const std::string& why) {
  over_ = true;
  if (!request_.stream) throw HttpError(503, why);
  return writer_->stream_fault(why);
}

}  // namespace axonn
