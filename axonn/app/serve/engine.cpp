#include "axonn/app/serve/engine.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "axonn/app/serve/orders.h"
#include "axonn/foundation/base/check.h"
#include "axonn/ranks/comm/texts.h"

namespace axonn {

namespace {

constexpr std::chrono::seconds kHeartbeat{1};

void join(TextStream::Event& event, TextStream::Event next) {
  const auto append = [](auto& to, auto& from) {
    to.insert(to.end(), std::move_iterator(from.begin()), std::move_iterator(from.end()));
  };
  Generation &all = event.news, &more = next.news;
  append(all.tokens, more.tokens);
  append(all.prompt_scores, more.prompt_scores);
  append(all.scores, more.scores);
  append(all.embedding, more.embedding);
  append(all.others, more.others);
  all.text += more.text;
  all.reason = more.reason;
  all.stop = more.stop;
  all.slid |= more.slid;
  all.cached_tokens = more.cached_tokens;
  event.end |= next.end;
  event.fault += next.fault;
}

}  // namespace

std::optional<TextStream::Event> TextStream::next() {
  const std::lock_guard lock(mutex_);
  return std::exchange(event_, std::nullopt);
}

void TextStream::push(Event event) {
  {
    const std::lock_guard lock(mutex_);
    if (event_)
      join(*event_, std::move(event));
    else
      event_ = std::move(event);
  }
  on_news_();
}

std::vector<std::shared_ptr<TextStream>> RequestQueue::submit(
    std::vector<Request> requests, const std::function<void()>& on_news) {
  std::vector<std::shared_ptr<TextStream>> streams;
  {
    const std::lock_guard lock(mutex_);
    if (!closed_.empty() || waiting_.size() + requests.size() > most_) return {};
    for (Request& request : requests) {
      streams.push_back(request.stream = std::make_shared<TextStream>(on_news));
      waiting_.push_back(std::move(request));
    }
  }
  changed_.notify_one();
  return streams;
}

void RequestQueue::close(const std::string& why) {
  {
    const std::lock_guard lock(mutex_);
    if (!closed_.empty()) return;
    closed_ = why;
    for (const Request& request : waiting_) request.stream->push({.fault = why});
    for (const auto& [number, running] : running_) running.stream->push({.fault = why});
    waiting_.clear();
    running_.clear();
  }
  changed_.notify_one();
}

RequestQueue::Load RequestQueue::load() const {
  const std::lock_guard lock(mutex_);
  Load load = load_;
  load.running = running_.size();
  load.waiting = waiting_.size();
  return load;
}

RequestQueue::Orders RequestQueue::take(bool idle, std::size_t slots) {
  std::unique_lock lock(mutex_);
  const auto anything = [&] { return !waiting_.empty() || !closed_.empty(); };
  if (idle) changed_.wait_for(lock, kHeartbeat, anything);
  Orders orders{.stop = !closed_.empty()};
  for (auto each = running_.begin(); each != running_.end();) {
    if (each->second.stream->cancelled()) {
      orders.cancel.push_back(each->first);
      each = running_.erase(each);
    } else {
      ++each;
    }
  }
  std::erase_if(waiting_, [](const Request& request) { return request.stream->cancelled(); });
  while (!waiting_.empty() && running_.size() + orders.add.size() < slots) {
    orders.add.push_back(std::move(waiting_.front()));
    waiting_.pop_front();
  }
  return orders;
}

void RequestQueue::started(std::size_t number, std::shared_ptr<TextStream> stream) {
  const std::lock_guard lock(mutex_);
  if (closed_.empty())
    running_[number] = {.stream = std::move(stream)};
  else
    stream->push({.fault = closed_});
}

Generation RequestQueue::Running::news(const Generation& all) {
  const auto rest = [](const auto& values, std::size_t& had) {
    const auto begin = values.begin() + static_cast<std::ptrdiff_t>(had);
    had = values.size();
    return std::remove_cvref_t<decltype(values)>(begin, values.end());
  };
  return {.tokens = rest(all.tokens, tokens),
          .text = rest(all.text, text),
          .reason = all.reason,
          .stop = all.stop,
          .slid = all.slid,
          .cached_tokens = all.cached_tokens,
          .prompt_scores = rest(all.prompt_scores, prompt_scores),
          .scores = rest(all.scores, scores),
          .embedding = all.embedding};
}

void RequestQueue::text(std::size_t number, const Generation& so_far) {
  const std::lock_guard lock(mutex_);
  const auto found = running_.find(number);
  if (found == running_.end() || so_far.text.size() == found->second.text) return;
  found->second.stream->push({.news = found->second.news(so_far)});
}

void RequestQueue::ended(std::size_t number, const Generation& result) {
  const std::lock_guard lock(mutex_);
  ++load_.prompts;
  load_.tokens += std::ssize(result.tokens);
  const auto found = running_.find(number);
  if (found == running_.end()) return;
  TextStream::Event event{.news = found->second.news(result), .end = true};
  event.news.others = result.others;
  found->second.stream->push(std::move(event));
  running_.erase(found);
}

void serve(Generator& generator, Communicator& world, RequestQueue* queue) {
  const bool leads = world.rank() == 0;
  AXONN_CHECK(leads == (queue != nullptr), "serve: rank 0 alone has the queue");
  const auto slots = static_cast<std::size_t>(generator.reserve(std::size_t{1} << 20));
  const auto on_text = [&](std::size_t number, std::string_view, const Generation& so_far) {
    queue->text(number, so_far);
  };
  const auto on_end = [&](std::size_t number, const Generation& result) {
    queue->ended(number, result);
  };
  for (;;) {
    RequestQueue::Orders mine;
    if (leads) mine = queue->take(generator.idle(), slots);
    const auto orders = unpacked(broadcast_text(world, leads ? packed(mine) : "", 0));
    for (const std::size_t number : orders.cancel) generator.cancel(number);
    if (orders.stop) return;
    for (std::size_t i = 0; i < orders.add.size(); ++i) {
      const std::size_t number = generator.add(orders.add[i].prompt, orders.add[i].options);
      if (leads) queue->started(number, std::move(mine.add[i].stream));
    }
    if (generator.idle()) continue;
    if (leads)
      generator.step(on_text, on_end);
    else
      generator.step({}, {});
  }
}

}  // namespace axonn
