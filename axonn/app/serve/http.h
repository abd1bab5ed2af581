#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "axonn/foundation/base/check.h"
#include "axonn/foundation/base/clock.h"

namespace axonn {

/// A request, with a body of JSON if it has one.
struct HttpRequest {
  std::string method, path, query, body;  ///< path: without "?" and percent escapes
  /// Says that HttpResponse::pieces has something new. Any thread may call it at any time.
  std::function<void()> news = [] {};

  /// The value of a parameter after "?", or "".
  std::string parameter(std::string_view name) const;
};

struct HttpResponse {
  int status = 200;
  std::string type = "application/json", body = {};
  /// The header Content-Security-Policy. The server replaces that of pages (text/html).
  std::string policy = "default-src 'none'; frame-ancestors 'none'";
  /// A body that comes piece by piece instead, without waiting: "" if there is nothing new, and
  /// then HttpRequest::news must be called when there is; none at the end. One thread at a time
  /// calls it. It is destroyed when the client hangs up. An exception becomes status 500, or breaks
  /// the connection off if a piece was sent before.
  std::function<std::optional<std::string>()> pieces = {};
};

/// A fault of a request, which is answered with this status.
class HttpError : public UsageError {
 public:
  /// `code`: of OpenAI's API for this fault, or "".
  HttpError(int its_status, const std::string& message, std::string its_code = "")
      : UsageError(message), status(its_status), code(std::move(its_code)) {}

  int status;
  std::string member = {}, code;  ///< member: the one of the body that is at fault, or ""
};

/// A fault of a member of the body.
class RequestError : public HttpError {
 public:
  RequestError(std::string which, const std::string& why, std::string its_code = "")
      : HttpError(400, which + ": " + why, std::move(its_code)) {
    member = std::move(which);
  }
};

/// The body of an answer that reports an error, as OpenAI's API has it. Empty: null.
std::string error_json(const std::string& message, const std::string& type,
                       const std::string& member = "", const std::string& code = "");

/// A small web server, for pages and APIs of this machine's users.
///
/// It refuses what another page in the user's browser could send in his name: bodies that are not
/// JSON, and, while it listens on this machine alone, requests to another host's name.
///
/// Requests take bounded memory and time: the head of a request (http_reader.h), its
/// body, the bodies of all requests together, and the seconds until either is whole. A connection
/// needs no thread. While there are too many, those that have waited longest for a request are
/// closed, so that a new client is served however many idle or slow ones there are.
class HttpServer {
 public:
  struct Options {
    std::string host = "127.0.0.1";
    int port = 8000;  ///< 0: any that is free
    /// If it is not empty, requests must have the header "Authorization: Bearer TOKEN", except
    /// those of open().
    std::string token = {};
    std::size_t body_bytes = std::size_t{8} << 20;  ///< of the largest request
    int connections = 256;       ///< requests answered at the same time; others get status 503
    int client_connections = 0;  ///< of them, those of one address; 0: half, or all of this machine
    /// For a client that sends the head of a request, and for one that reads 64 KiB of an answer.
    double patience_s = 10;
    /// Origins of other pages that may send requests and read answers, such as
    /// "https://chat.example" (CORS); "*": all, which needs a token.
    std::vector<std::string> origins = {};
    std::function<double()> clock = now_seconds;
  };
  /// HttpError in a handler becomes an answer with its status, UsageError one with 400, another
  /// exception one with 500.
  using Handler = std::function<void(const HttpRequest&, HttpResponse&)>;

  /// Throws UsageError for a host that other machines, or origins that all pages, can reach without
  /// a token, for an origin that is none, and in a build without a web server.
  explicit HttpServer(Options options);
  ~HttpServer();

  /// Handles GET of exactly this path, or, if it ends with "*", of all that begin so. `open`: also
  /// without a token and however many requests there are; such a handler must return at once. Pages
  /// (text/html) are the program's own: their scripts may run.
  void get(const std::string& path, Handler handler, bool open = false);
  void post(const std::string& path, Handler handler);

  /// Listens and returns at once. Returns the port. Throws UsageError if the address is taken.
  int start();
  /// Ends all connections; those whose answer is not whole after a second too. Handlers that wait
  /// must have been woken.
  void stop();
  /// "http://127.0.0.1:8000".
  std::string address() const;

 private:
  class State;
  std::unique_ptr<State> state_;
};

/// "Boost.Beast of Boost 1.74", or that the build has none.
std::string http_library();

}  // namespace axonn
