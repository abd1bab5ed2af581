#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>

#include "axonn/app/serve/http.h"
#include "axonn/app/serve/http_reader.h"

namespace axonn {

/// Makes the answers to requests. Several threads may call it.
class HttpService {
 public:
  virtual ~HttpService() = default;
  HttpService(const HttpService&) = delete;
  HttpService& operator=(const HttpService&) = delete;

  /// A request by its head, before its body is read. Throws HttpError if it is refused.
  struct Admitted {
    HttpRequest request;
    bool is_open = false;  ///< HttpServer::get()
  };
  virtual Admitted admit(const HttpHead& head) const = 0;
  /// Does not throw.
  virtual HttpResponse answer(const HttpRequest& request) const = 0;
  virtual HttpResponse refusal(const HttpError& error) const = 0;
  /// The first lines of an answer. `length`: bytes of the body; none: it is sent in chunks, or up
  /// to the end of the connection. `origin`: of the page that sent the request; "": none.
  struct Framing {
    std::optional<std::size_t> length;
    bool chunked = false, keeps_alive = true;
  };
  virtual std::string head_of(const HttpResponse& response, const Framing& framing,
                              const std::string& origin) const = 0;

 protected:
  HttpService() = default;
};

/// The connections of a server: one thread moves bytes, a few others call the service.
class HttpConnections {
 public:
  static constexpr int kWaiting = 64;  ///< connections beside those whose request is answered
  static constexpr double kIdleSeconds = 60;        ///< between two requests
  static constexpr double kLeastRate = 16 << 10;    ///< bytes of a body per second
  static constexpr std::size_t kSlice = 64 << 10;   ///< bytes of an answer in patience_s
  static constexpr std::size_t kBodies = 64 << 20;  ///< bytes of all bodies, if none is larger

  /// The service must outlive it. Throws UsageError in a build without a web server.
  HttpConnections(const HttpServer::Options& options, const HttpService& service);
  ~HttpConnections();

  /// Listens and returns the port; throws UsageError if the address is taken.
  int start();
  void stop();

 private:
  class State;
  class Connection;
  std::unique_ptr<State> state_;
};

}  // namespace axonn
