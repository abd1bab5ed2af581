#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "axonn/use/infer/generator.h"

namespace axonn {

/// The text that follows one prompt, as it comes. One thread reads, another one writes.
class TextStream {
 public:
  /// Something new.
  struct Event {
    Generation news = {};    ///< new text and tokens, with scores; events together are the whole
    bool end = false;        ///< no event follows; news.reason tells why
    std::string fault = {};  ///< why there will be no end, if it is not empty
  };

  /// Calls `on_news` whenever there is an event, on the thread that writes.
  explicit TextStream(std::function<void()> on_news) : on_news_(std::move(on_news)) {}

  /// All that is new since the last call, as one event; none if nothing is.
  std::optional<Event> next();
  /// Nobody reads any more: the engine drops the prompt before its next pass.
  void cancel() { cancelled_ = true; }

  bool cancelled() const { return cancelled_; }
  void push(Event event);

 private:
  const std::function<void()> on_news_;
  std::mutex mutex_;
  std::optional<Event> event_;  // events that nobody has taken, joined: a reader may be slow
  std::atomic<bool> cancelled_ = false;
};

/// Prompts on their way from many threads to the ranks that generate. Thread-safe.
class RequestQueue {
 public:
  struct Request {
    std::vector<std::int32_t> prompt;
    GenerationOptions options;
    std::shared_ptr<TextStream> stream = {};
  };
  /// Changes that the ranks make before their next pass.
  struct Orders {
    bool stop = false;
    std::vector<Request> add = {};
    std::vector<std::size_t> cancel = {};  ///< numbers
  };
  struct Load {
    std::size_t running = 0, waiting = 0;
    std::int64_t prompts = 0, tokens = 0;  ///< ended, and generated in them, since the start
  };

  /// `most`: prompts that may wait for ranks to take them.
  explicit RequestQueue(std::size_t most) : most_(most) {}

  /// Takes all prompts or none. Returns a stream for each, which call `on_news`; none if they have
  /// no room or the queue is closed.
  std::vector<std::shared_ptr<TextStream>> submit(std::vector<Request> requests,
                                                  const std::function<void()>& on_news);
  /// The ranks stop before their next pass; unfinished prompts fail with `why`.
  void close(const std::string& why);
  Load load() const;

  /// Called by the ranks' thread. Waits, if `idle`, until there is an order or a second has passed.
  /// Takes `slots` prompts at most.
  Orders take(bool idle, std::size_t slots);
  void started(std::size_t number, std::shared_ptr<TextStream> stream);
  void text(std::size_t number, const Generation& so_far);
  void ended(std::size_t number, const Generation& result);

 private:
  /// A prompt's stream, and how much of the generation it has.
  struct Running {
    std::shared_ptr<TextStream> stream;
    std::size_t text = 0, tokens = 0, scores = 0, prompt_scores = 0;

    Generation news(const Generation& all);
  };

  const std::size_t most_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Request> waiting_;
  std::map<std::size_t, Running> running_;
  Load load_;
  std::string closed_;  // why, if it is
};

/// Generates for the prompts in rank 0's queue until it is closed. Collective: every rank of the
/// generator's model calls it, the others with null. Before each pass rank 0 broadcasts new
/// and cancelled prompts; while there are none, once a second, so that no rank waits longer.
void serve(Generator& generator, Communicator& world, RequestQueue* queue);

}  // namespace axonn
