#include "axonn/serve/http.h"

#include <algorithm>
#include <array>
#include <set>
#include <thread>

#include <httplib.h>
#include <nlohmann/json.hpp>

#include "axonn/base/check.h"

namespace axonn {

namespace {

constexpr int kBacklog = 1024;  // clients that wait to be connected

constexpr std::array kThisMachine{"127.0.0.1", "localhost", "::1", "[::1]"};

bool is_this_machine(const std::string& host) {
  return std::ranges::find(kThisMachine, host) != kThisMachine.end();
}

/// "localhost:8000" without its port.
std::string host_in(const std::string& header) {
  const std::size_t colon = header.rfind(':');
  return colon == header.npos || header.ends_with(']') ? header : header.substr(0, colon);
}

/// Compares in a time that does not depend on where they differ.
bool same_secret(const std::string& a, const std::string& b) {
  unsigned difference = a.size() != b.size();
  for (std::size_t i = 0; i < a.size(); ++i)
    difference |=
        static_cast<unsigned char>(a[i]) ^ static_cast<unsigned char>(i < b.size() ? b[i] : '\0');
  return difference == 0;
}

void set_error(httplib::Response& response, int status, const std::string& message,
               const std::string& member = "", const std::string& code = "") {
  response.status = status;
  response.set_content(
      error_json(message, status < 500 ? "invalid_request_error" : "server_error", member, code),
      "application/json");
}

/// The regular expression, which the library expects, of a path.
std::string literal(std::string_view path) {
  std::string pattern;
  for (const char c : path) {
    if (std::string_view("^$\\.*+?()[]{}|").find(c) != std::string_view::npos) pattern += '\\';
    pattern += c;
  }
  return pattern;
}

void send(HttpResponse answer, httplib::Response& response) {
  response.status = answer.status;
  if (!answer.pieces) {
    response.set_content(answer.body, answer.type.c_str());
    return;
  }
  const auto provide = [pieces = std::move(answer.pieces)](std::size_t, httplib::DataSink& sink) {
    std::optional<std::string> piece;
    try {
      piece = pieces();
    } catch (const std::exception&) {
      return false;  // the client sees that the answer is not whole
    }
    if (!piece)
      sink.done();
    else if (piece->empty())
      return sink.is_writable();
    else
      return sink.write(piece->data(), piece->size());
    return true;
  };
  response.set_chunked_content_provider(answer.type.c_str(), provide,
                                        [over = std::move(answer.over)](bool) {
                                          if (over) over();
                                        });
}

}  // namespace

class HttpServer::State {
 public:
  explicit State(Options options) : options_(std::move(options)) {
    server_.set_payload_max_length(options_.body_bytes);
    server_.set_read_timeout(options_.patience_s);
    server_.set_write_timeout(options_.patience_s);
    server_.set_keep_alive_max_count(1000);
    server_.set_tcp_nodelay(true);
    // The library's own options would let two servers share a port, each with half of the clients.
    server_.set_socket_options([this](socket_t socket) {
      const int yes = 1;
      setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
      socket_ = socket;
    });
    server_.new_task_queue = [count = options_.connections] {
      return new httplib::ThreadPool(static_cast<std::size_t>(count));
    };
    server_.set_pre_routing_handler([this](const auto& request, auto& response) {
      return refused(request, response) ? httplib::Server::HandlerResponse::Handled
                                        : httplib::Server::HandlerResponse::Unhandled;
    });
    server_.set_error_handler([](const auto& request, auto& response) {
      if (response.body.empty())
        set_error(response, response.status,
                  response.status == 413 ? "the request is too large"
                  : response.status == 404
                      ? concat("there is no ", request.method, ' ', request.path)
                      : "the request is malformed");
    });
  }
  ~State() { stop(); }

  httplib::Server::Handler wrapped(Handler handler) {
    return [handler = std::move(handler)](const httplib::Request& from, httplib::Response& to) {
      HttpResponse answer;
      try {
        const auto parameter = [&from](const std::string& name) {
          return from.get_param_value(name.c_str());
        };
        handler({.path = from.path, .body = from.body, .parameter = parameter}, answer);
        send(std::move(answer), to);
      } catch (const RequestError& error) {
        set_error(to, 400, error.what(), error.member, error.code);
      } catch (const UsageError& error) {
        set_error(to, 400, error.what());
      } catch (const std::exception& error) {
        set_error(to, 500, error.what());
      }
    };
  }

  int start() {
    const int wanted = options_.port;
    if (wanted == 0)
      options_.port = server_.bind_to_any_port(options_.host.c_str());
    else if (!server_.bind_to_port(options_.host.c_str(), wanted))
      options_.port = -1;
    if (options_.port < 0)
      refuse("cannot listen on ", options_.host, " at port ", wanted,
             ": another program has the port, or this machine has no such address; choose another "
             "with --port (0: any that is free) or --host");
    listen(socket_, kBacklog);  // the library allows 5 clients to wait
    thread_ = std::thread([this] { server_.listen_after_bind(); });
    while (!server_.is_running()) std::this_thread::yield();
    return options_.port;
  }
  void stop() {
    if (!thread_.joinable()) return;
    server_.stop();
    thread_.join();
  }

  httplib::Server& server() { return server_; }
  const Options& options() const { return options_; }
  void open(const std::string& path) { open_.insert(path); }

 private:
  bool refused(const httplib::Request& request, httplib::Response& response) const {
    const auto refuse_with = [&](int status, const char* message, const char* code = "") {
      set_error(response, status, message, "", code);
      return true;
    };
    if (is_this_machine(options_.host) &&
        !is_this_machine(host_in(request.get_header_value("Host"))))
      return refuse_with(403, "this server answers only requests to localhost");
    if (request.method == "POST" &&
        !request.get_header_value("Content-Type").starts_with("application/json"))
      return refuse_with(415, "the header Content-Type must be application/json");
    if (!options_.token.empty() && !open_.contains(request.path) &&
        !same_secret(request.get_header_value("Authorization"), "Bearer " + options_.token))
      return refuse_with(401, "the header \"Authorization: Bearer TOKEN\" is missing or wrong",
                         "invalid_api_key");
    return false;
  }

  Options options_;
  httplib::Server server_;
  socket_t socket_ = INVALID_SOCKET;
  std::set<std::string> open_;
  std::thread thread_;
};

std::string error_json(const std::string& message, const std::string& type,
                       const std::string& member, const std::string& code) {
  const auto or_null = [](const std::string& text) {
    return text.empty() ? nlohmann::json() : nlohmann::json(text);
  };
  return nlohmann::json{{"error",
                         {{"message", message},
                          {"type", type},
                          {"param", or_null(member)},
                          {"code", or_null(code)}}}}
             .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) +
         '\n';
}

std::string http_library() { return concat("cpp-httplib ", CPPHTTPLIB_VERSION); }

HttpServer::HttpServer(Options options) {
  if (!is_this_machine(options.host) && options.token.empty())
    refuse("other machines can reach ", options.host,
           ", so a token is needed: set --token, or listen on 127.0.0.1");
  state_ = std::make_unique<State>(std::move(options));
}

HttpServer::~HttpServer() = default;

void HttpServer::get(const std::string& path, Handler handler, bool open) {
  state_->server().Get(literal(path), state_->wrapped(std::move(handler)));
  if (open) state_->open(path);
}

void HttpServer::post(const std::string& path, Handler handler) {
  state_->server().Post(literal(path), state_->wrapped(std::move(handler)));
}

int HttpServer::start() { return state_->start(); }
void HttpServer::stop() { state_->stop(); }

std::string HttpServer::address() const {
  return concat("http://", state_->options().host, ':', state_->options().port);
}

}  // namespace axonn
