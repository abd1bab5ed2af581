#include "axonn/app/serve/http_connections.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <exception>
#include <limits>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/thread_pool.hpp>
#include <boost/asio/write.hpp>
#include <fmt/format.h>
#include <malloc.h>

#include "axonn/foundation/base/check.h"

namespace axonn {

namespace {

namespace net = boost::asio;
using net::ip::tcp;
using ErrorCode = boost::system::error_code;

constexpr int kBacklog = 1024;  // clients that wait to be connected
constexpr int kWorkers = 3;     // threads that call the service
constexpr std::chrono::milliseconds kSweep{100};
constexpr double kLinger = 2;            // seconds for a client to read why its body is not
constexpr std::size_t kMuch = 16 << 10;  // bytes of a body or of a piece of an answer
constexpr double kNever = std::numeric_limits<double>::infinity();

/// Brings calls to the thread that runs `io`, as long as it runs.
class Bell {
 public:
  explicit Bell(net::io_context& io) : io_(&io) {}
  template <typename F>
  void ring(F call) {
    const std::lock_guard lock(mutex_);
    if (io_) net::post(*io_, std::move(call));
  }
  void remove() {
    const std::lock_guard lock(mutex_);
    io_ = nullptr;
  }

 private:
  std::mutex mutex_;
  net::io_context* io_;
};

}  // namespace

class HttpConnections::State {
 public:
  State(const HttpServer::Options& its_options, const HttpService& its_service)
      : options(its_options), service(its_service) {}

  int start();
  void stop();

  /// Whether one more request of this address may be answered.
  bool has_room(const net::ip::address& client) const;
  void forget(const std::shared_ptr<Connection>& connection);

  const HttpServer::Options& options;
  const HttpService& service;
  // The rest is used by the connections, on the one thread that runs `io`.
  net::io_context io{1};
  std::shared_ptr<Bell> bell = std::make_shared<Bell>(io);
  std::optional<net::thread_pool> workers;
  std::size_t body_bytes = 0;  ///< received and not yet read by the service
  std::uint64_t orders = 0;
  int answering = 0;
  std::map<net::ip::address, int> answering_to = {};
  /// A large request was handled or a large answer made. Their many small values leave memory in
  /// the C library that it gives back to the system only when it is asked to.
  bool handled_much = false;
  bool stopping = false;

 private:
  void accept();
  void accepted(tcp::socket socket);
  bool make_room();
  void sweep();

  tcp::acceptor acceptor_{io};
  net::steady_timer timer_{io};
  std::set<std::shared_ptr<Connection>> connections_;
  bool accepting_ = false;
  double stop_by_ = kNever;
  std::thread thread_;
};

/// A client. Only the thread of State::io calls it.
class HttpConnections::Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(State& state, tcp::socket socket, net::ip::address client)
      : state_(state),
        socket_(std::move(socket)),
        client_(std::move(client)),
        reader_(state.options.body_bytes),
        order_(++state.orders) {}

  void receive();
  void close();
  void sweep(double now) {
    if (now > deadline_) expire();
  }

  /// It has no request, or one that nobody works on.
  bool may_be_dropped() const { return !is_counted_; }
  /// Grows with the time at which it connected, or its last answer was sent.
  std::uint64_t order() const { return order_; }
  const net::ip::address& client() const { return client_; }

 private:
  /// `leaving`: its last answer is sent, and what still comes is dropped, because closing at once
  /// could take the answer from the client.
  enum class Phase : std::uint8_t { waiting, answering, leaving };
  using Pieces = std::shared_ptr<std::function<std::optional<std::string>()>>;

  double now() const { return state_.options.clock(); }
  void received(ErrorCode error, std::size_t count);
  void read();
  void read_part();
  void admit();
  void count_body(std::size_t bytes);
  void dispatch();
  void refuse(const HttpError& error);
  void expire();
  void answer(HttpResponse response);
  void answer_whole(HttpResponse response);
  void work(std::function<void()> job, std::function<void()> then);
  void pull();
  void pulled(std::optional<std::string> piece, const std::exception_ptr& fault);
  HttpResponse refusal_of(const std::exception_ptr& fault) const;
  void send(std::string bytes);
  void send_slice();
  void sent();
  void finish();
  void leave();
  void release();

  State& state_;
  tcp::socket socket_;
  const net::ip::address client_;
  HttpReader reader_;
  std::uint64_t order_;
  double deadline_ = now() + state_.options.patience_s;
  Phase phase_ = Phase::waiting;
  bool is_closed_ = false, client_ended_ = false, is_receiving_ = false, is_working_ = false;
  // Bytes that have come and were not read yet.
  std::vector<char> input_ = std::vector<char>(HttpReader::kHeadBytes);
  std::size_t input_bytes_ = 0;
  // The request.
  HttpService::Admitted admitted_;
  bool has_begun_ = false, is_admitted_ = false, is_counted_ = false;
  double body_since_ = 0;
  std::size_t counted_body_ = 0;
  // The answer.
  HttpResponse response_;
  Pieces pieces_;
  HttpService::Framing framing_;
  std::shared_ptr<std::atomic<bool>> has_news_;
  bool pulls_again_ = false, has_head_ = false, is_over_ = false;
  std::string sending_, queued_;
  std::size_t sent_bytes_ = 0;
};

void HttpConnections::Connection::receive() {
  if (is_closed_ || is_receiving_ || client_ended_ || input_bytes_ == input_.size()) return;
  is_receiving_ = true;
  socket_.async_read_some(net::buffer(input_.data() + input_bytes_, input_.size() - input_bytes_),
                          [self = shared_from_this()](ErrorCode error, std::size_t count) {
                            self->is_receiving_ = false;
                            self->received(error, count);
                          });
}

void HttpConnections::Connection::received(ErrorCode error, std::size_t count) {
  if (is_closed_) return;
  if (error) {
    client_ended_ = true;
    // Some programs close their side when they have asked. Such a client gets an answer that is
    // there, but nothing is generated for one that has probably gone.
    if (phase_ != Phase::answering || pieces_ || error != net::error::eof) close();
    return;
  }
  if (phase_ == Phase::leaving) return receive();
  input_bytes_ += count;
  if (phase_ == Phase::waiting) read();
  receive();
}

void HttpConnections::Connection::read() {
  try {
    while (phase_ == Phase::waiting && input_bytes_ > 0) {
      const std::size_t before = input_bytes_;
      read_part();
      if (phase_ == Phase::waiting && input_bytes_ == before) break;
    }
    if (input_bytes_ == input_.size() && phase_ == Phase::waiting)
      throw HttpError(400, "the request is malformed: a line of it is too long");
  } catch (const HttpError& error) {
    refuse(error);
  } catch (const std::exception&) {  // such as no memory
    close();
  }
}

void HttpConnections::Connection::read_part() {
  if (!has_begun_) {
    has_begun_ = true;
    deadline_ = now() + state_.options.patience_s;
  }
  const std::size_t used = reader_.read({input_.data(), input_bytes_});
  std::memmove(input_.data(), input_.data() + used, input_bytes_ - used);
  input_bytes_ -= used;
  if (reader_.part() == HttpReader::Part::head) return;
  if (!is_admitted_) admit();
  count_body(reader_.body_bytes());
  deadline_ = body_since_ + state_.options.patience_s +
              static_cast<double>(reader_.body_bytes()) / kLeastRate;
  if (reader_.part() == HttpReader::Part::whole) dispatch();
}

void HttpConnections::Connection::admit() {
  admitted_ = state_.service.admit(reader_.head());
  is_admitted_ = true;
  body_since_ = now();
  if (reader_.part() == HttpReader::Part::body && reader_.head().wants_continue &&
      input_bytes_ == 0)
    send("HTTP/1.1 100 Continue\r\n\r\n");
}

void HttpConnections::Connection::count_body(std::size_t bytes) {
  state_.body_bytes += bytes - counted_body_;  // may be less than 0 together
  counted_body_ = bytes;
  state_.handled_much |= bytes > kMuch;
  if (state_.body_bytes > std::max(kBodies, 2 * state_.options.body_bytes) && bytes > 0)
    throw HttpError(503, "too many large requests at once; try again later");
}

void HttpConnections::Connection::dispatch() {
  phase_ = Phase::answering;
  deadline_ = kNever;
  if (!admitted_.is_open) {
    if (!state_.has_room(client_))
      throw HttpError(503, "too many requests at once; try again later");
    is_counted_ = true;
    ++state_.answering;
    ++state_.answering_to[client_];
  }
  HttpRequest& request = admitted_.request;
  request.body = reader_.take_body();
  has_news_ = std::make_shared<std::atomic<bool>>(false);
  request.news = [bell = state_.bell, news = has_news_, weak = weak_from_this()] {
    if (news->exchange(true)) return;
    bell->ring([news, weak] {
      news->store(false);
      const auto self = weak.lock();
      if (self && self->has_news_ == news) self->pull();
    });
  };
  if (admitted_.is_open) return answer(state_.service.answer(request));
  const auto made = std::make_shared<HttpResponse>();
  work([this, made, request = std::move(request)] { *made = state_.service.answer(request); },
       [this, made] { answer(std::move(*made)); });
}

/// Calls `job` on another thread and then, unless the client has gone, `then` on this one.
void HttpConnections::Connection::work(std::function<void()> job, std::function<void()> then) {
  is_working_ = true;
  net::post(*state_.workers,
            [self = shared_from_this(), job = std::move(job), then = std::move(then)]() mutable {
              bool failed = false;
              try {
                job();
              } catch (const std::exception&) {  // no memory
                failed = true;
              }
              job = {};
              net::post(self->state_.io, [self, failed, then = std::move(then)] {
                self->is_working_ = false;
                if (self->is_closed_) return self->release();
                if (failed) return self->close();
                then();
              });
            });
}

void HttpConnections::Connection::refuse(const HttpError& error) {
  phase_ = Phase::answering;
  answer_whole(state_.service.refusal(error));
}

void HttpConnections::Connection::expire() {
  const bool is_late = phase_ == Phase::waiting && has_begun_;
  if (!is_late) return close();
  refuse(HttpError(408, "the rest of the request did not come in time"));
}

void HttpConnections::Connection::answer(HttpResponse response) {
  count_body(0);
  if (!response.pieces) return answer_whole(std::move(response));
  if (client_ended_) return close();
  pieces_ = std::make_shared<std::function<std::optional<std::string>()>>(
      std::exchange(response.pieces, {}));
  response_ = std::move(response);
  pull();
}

void HttpConnections::Connection::answer_whole(HttpResponse response) {
  // Nobody knows where the next request begins unless this one is whole.
  const bool ends = reader_.part() != HttpReader::Part::whole || state_.stopping;
  framing_ = {.length = response.body.size(), .keeps_alive = reader_.head().keeps_alive && !ends};
  is_over_ = true;
  std::string bytes = state_.service.head_of(response, framing_, reader_.head().origin);
  if (reader_.head().method != "HEAD") bytes += response.body;
  send(std::move(bytes));
}

/// Gets the next piece, unless the last one is still being made or sent.
void HttpConnections::Connection::pull() {
  if (is_closed_ || !pieces_ || is_over_) return;
  if (is_working_ || !sending_.empty()) {
    pulls_again_ = true;
    return;
  }
  pulls_again_ = false;
  struct Made {
    std::optional<std::string> piece;
    std::exception_ptr fault;
  };
  const auto made = std::make_shared<Made>();
  work(
      [made, pieces = pieces_] {
        try {
          made->piece = (*pieces)();
        } catch (const std::exception&) {
          made->fault = std::current_exception();
        }
      },
      [this, made] { pulled(std::move(made->piece), made->fault); });
}

void HttpConnections::Connection::pulled(std::optional<std::string> piece,
                                         const std::exception_ptr& fault) {
  if (fault && has_head_) return close();  // the client sees that the answer is not whole
  if (fault) {
    pieces_.reset();
    return answer_whole(refusal_of(fault));
  }
  if (piece && piece->empty()) {
    if (pulls_again_) pull();
    return;
  }
  std::string bytes;
  if (!has_head_) {
    has_head_ = true;
    const bool chunked = reader_.head().chunked_answers;
    framing_ = {.chunked = chunked,
                .keeps_alive = chunked && reader_.head().keeps_alive && !state_.stopping};
    bytes = state_.service.head_of(response_, framing_, reader_.head().origin);
  }
  is_over_ = !piece;
  state_.handled_much |= piece && piece->size() > kMuch;
  if (!framing_.chunked)
    bytes += piece.value_or("");
  else
    bytes += fmt::format("{:x}\r\n{}\r\n", piece ? piece->size() : 0, piece.value_or(""));
  send(std::move(bytes));
}

HttpResponse HttpConnections::Connection::refusal_of(const std::exception_ptr& fault) const {
  try {
    std::rethrow_exception(fault);
  } catch (const HttpError& error) {
    return state_.service.refusal(error);
  } catch (const std::exception& error) {
    return state_.service.refusal(HttpError(500, error.what()));
  }
}

void HttpConnections::Connection::send(std::string bytes) {
  if (sending_.empty()) {
    sending_ = std::move(bytes);
    send_slice();
  } else {
    queued_ += bytes;
  }
}

void HttpConnections::Connection::send_slice() {
  if (phase_ == Phase::answering) deadline_ = now() + state_.options.patience_s;
  const std::size_t bytes = std::min(kSlice, sending_.size() - sent_bytes_);
  net::async_write(socket_, net::buffer(sending_.data() + sent_bytes_, bytes),
                   [self = shared_from_this()](ErrorCode error, std::size_t count) {
                     if (self->is_closed_) return;
                     if (error) return self->close();
                     self->sent_bytes_ += count;
                     if (self->sent_bytes_ < self->sending_.size()) return self->send_slice();
                     self->sent();
                   });
}

void HttpConnections::Connection::sent() {
  sending_ = std::exchange(queued_, {});
  sent_bytes_ = 0;
  if (!sending_.empty()) return send_slice();
  if (phase_ != Phase::answering) return;
  deadline_ = kNever;
  if (is_over_) return finish();
  pull();
}

/// The answer is sent: the next request begins.
void HttpConnections::Connection::finish() {
  release();
  if (state_.stopping || is_closed_) return close();
  if (!framing_.keeps_alive) return client_ended_ ? close() : leave();
  phase_ = Phase::waiting;
  reader_.restart();
  admitted_ = {};
  response_ = {};
  pieces_.reset();
  has_news_.reset();
  has_begun_ = is_admitted_ = has_head_ = is_over_ = pulls_again_ = false;
  order_ = ++state_.orders;
  deadline_ = now() + kIdleSeconds;
  read();
  if (client_ended_ && phase_ == Phase::waiting) return close();
  receive();
}

void HttpConnections::Connection::leave() {
  ErrorCode ignored;  // the client may have gone
  socket_.shutdown(tcp::socket::shutdown_send, ignored);
  phase_ = Phase::leaving;
  pieces_.reset();
  input_bytes_ = 0;
  deadline_ = now() + kLinger;
  receive();
}

/// Gives back the request's share of the limits, once no other thread works on it.
void HttpConnections::Connection::release() {
  if (is_working_) return;
  state_.body_bytes -= std::exchange(counted_body_, 0);
  if (std::exchange(is_counted_, false)) {
    --state_.answering;
    if (--state_.answering_to[client_] == 0) state_.answering_to.erase(client_);
  }
  if (is_closed_) state_.forget(shared_from_this());
}

void HttpConnections::Connection::close() {
  if (std::exchange(is_closed_, true)) return;
  ErrorCode ignored;
  socket_.close(ignored);
  pieces_.reset();
  release();
}

bool HttpConnections::State::has_room(const net::ip::address& client) const {
  int most = options.client_connections;
  if (most == 0) most = client.is_loopback() ? options.connections : (options.connections + 1) / 2;
  const auto found = answering_to.find(client);
  return answering < options.connections && (found == answering_to.end() || found->second < most);
}

void HttpConnections::State::forget(const std::shared_ptr<Connection>& connection) {
  connections_.erase(connection);
  if (stopping && connections_.empty()) io.stop();
}

int HttpConnections::State::start() {
  const auto fail = [&] {
    axonn::refuse("cannot listen on ", options.host, " at port ", options.port,
                  ": another program has the port, or this machine has no such address; choose "
                  "another with --port (0: any that is free) or --host");
  };
  ErrorCode error;
  const auto found = tcp::resolver(io).resolve(options.host, std::to_string(options.port),
                                               tcp::resolver::passive, error);
  if (error || found.empty()) fail();
  const tcp::endpoint place = *found.begin();
  acceptor_.open(place.protocol(), error);
  if (!error) acceptor_.set_option(tcp::acceptor::reuse_address(true), error);
  if (!error) acceptor_.bind(place, error);
  if (!error) acceptor_.listen(kBacklog, error);
  if (error) fail();
  // Else one large request raises these limits, and each thread keeps as much free memory for ever.
  for (const int limit : {M_MMAP_THRESHOLD, M_TRIM_THRESHOLD}) mallopt(limit, 1 << 20);
  workers.emplace(kWorkers);
  accept();
  sweep();
  thread_ = std::thread([this] {
    for (bool ends = false; !ends;) {
      try {
        io.run();
        ends = true;
      } catch (const std::exception&) {  // no memory for one of the calls: the others go on
      }
    }
  });
  return acceptor_.local_endpoint().port();
}

void HttpConnections::State::accept() {
  accepting_ = true;
  acceptor_.async_accept([this](ErrorCode error, tcp::socket socket) {
    accepting_ = false;
    if (stopping) return;
    if (error) {
      make_room();  // there may be no file number for another connection; sweep() tries again
      return;
    }
    accepted(std::move(socket));
    accept();
  });
}

void HttpConnections::State::accepted(tcp::socket socket) {
  ErrorCode error;
  const tcp::endpoint client = socket.remote_endpoint(error);
  if (error) return;  // it has gone
  socket.set_option(tcp::no_delay(true), error);
  if (connections_.size() >= static_cast<std::size_t>(options.connections + kWaiting) &&
      !make_room())
    return;
  const auto made = std::make_shared<Connection>(*this, std::move(socket), client.address());
  connections_.insert(made);
  made->receive();
}

/// Closes the oldest connection without a request, of the client that has most of them. Returns
/// false if there is none.
bool HttpConnections::State::make_room() {
  std::map<net::ip::address, int> idle;
  for (const auto& one : connections_) idle[one->client()] += one->may_be_dropped();
  std::shared_ptr<Connection> chosen;
  const auto rank = [&](const auto& one) { return std::pair(-idle[one->client()], one->order()); };
  for (const auto& one : connections_)
    if (one->may_be_dropped() && (!chosen || rank(one) < rank(chosen))) chosen = one;
  if (chosen) chosen->close();
  return chosen != nullptr;
}

void HttpConnections::State::sweep() {
  timer_.expires_after(kSweep);
  timer_.async_wait([this](ErrorCode) {
    sweep();  // first, so that it goes on if there is no memory for the rest
    const double now = options.clock();
    for (const auto& one : std::vector(connections_.begin(), connections_.end())) one->sweep(now);
    if (now_seconds() > stop_by_) return io.stop();
    if (handled_much && body_bytes == 0) {
      handled_much = false;
      net::post(*workers, [] { malloc_trim(0); });
    }
    if (!stopping && !accepting_) accept();
  });
}

void HttpConnections::State::stop() {
  constexpr double kSeconds = 1;
  if (!thread_.joinable()) return;
  net::post(io, [this] {
    stopping = true;
    stop_by_ = now_seconds() + kSeconds;
    ErrorCode ignored;
    acceptor_.close(ignored);
    for (const auto& one : std::vector(connections_.begin(), connections_.end()))
      if (one->may_be_dropped()) one->close();
    if (connections_.empty()) io.stop();
  });
  thread_.join();
  workers->join();
  bell->remove();
  for (const auto& one : std::vector(connections_.begin(), connections_.end())) one->close();
}

HttpConnections::HttpConnections(const HttpServer::Options& options, const HttpService& service)
    : state_(std::make_unique<State>(options, service)) {}
HttpConnections::~HttpConnections() { stop(); }
int HttpConnections::start() { return state_->start(); }
void HttpConnections::stop() { state_->stop(); }

}  // namespace axonn
