#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "axonn/base/check.h"

namespace axonn {

/// A request, with a body of JSON if it has one.
struct HttpRequest {
  std::string path, body;
  /// The value of a parameter after "?", or "".
  std::function<std::string(const std::string& name)> parameter;
};

struct HttpResponse {
  int status = 200;
  std::string type = "application/json", body = {};
  /// A body that comes piece by piece instead: called until it returns nothing. May return an empty
  /// piece if there is nothing new, and must return within a second, because between calls the
  /// server looks whether the client is still there. An exception breaks the connection off.
  std::function<std::optional<std::string>()> pieces = {};
  /// Called when the response was sent, or could not be because the client had gone.
  std::function<void()> over = {};
};

/// A fault of a request, which is answered with status 400 and names the member at fault.
class RequestError : public UsageError {
 public:
  /// `code`: of OpenAI's API for this fault, or "".
  RequestError(std::string which, const std::string& why, std::string its_code = "")
      : UsageError(which + ": " + why), member(std::move(which)), code(std::move(its_code)) {}

  std::string member, code;
};

/// The body of an answer that reports an error, as OpenAI's API has it. Empty: null.
std::string error_json(const std::string& message, const std::string& type,
                       const std::string& member = "", const std::string& code = "");

/// A small web server, for pages and APIs of this machine's users.
///
/// It refuses what another page in the user's browser could send in his name: bodies that are not
/// JSON, and, while it listens on this machine alone, requests to another host's name.
class HttpServer {
 public:
  struct Options {
    std::string host = "127.0.0.1";
    int port = 8000;  ///< 0: any that is free
    /// If it is not empty, requests must have the header "Authorization: Bearer TOKEN", except
    /// those of open().
    std::string token = {};
    std::size_t body_bytes = std::size_t{8} << 20;  ///< of the largest request
    int connections = 128;                          ///< served at the same time
    int patience_s = 10;                            ///< for a client that neither reads nor writes
  };
  /// UsageError in a handler becomes an answer with status 400, another exception one with 500.
  using Handler = std::function<void(const HttpRequest&, HttpResponse&)>;

  /// Throws UsageError for a host that other machines can reach without a token, and in a build
  /// without a web server.
  explicit HttpServer(Options options);
  ~HttpServer();

  /// Handles GET of exactly this path; `open`: without a token.
  void get(const std::string& path, Handler handler, bool open = false);
  void post(const std::string& path, Handler handler);

  /// Listens and returns at once. Returns the port. Throws UsageError if the address is taken.
  int start();
  /// Ends all connections. Handlers that wait must have been woken.
  void stop();
  /// "http://127.0.0.1:8000".
  std::string address() const;

 private:
  class State;
  std::unique_ptr<State> state_;
};

/// "cpp-httplib 0.11.4", or what a build without it lacks.
std::string http_library();

}  // namespace axonn
