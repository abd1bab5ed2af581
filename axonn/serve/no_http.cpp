// HttpServer of builds without cpp-httplib.
#include "axonn/base/check.h"
#include "axonn/serve/http.h"

namespace axonn {

class HttpServer::State {};

std::string error_json(const std::string& message, const std::string&, const std::string&,
                       const std::string&) {
  return message;
}

std::string http_library() {
  return "none (built without cpp-httplib): no axonn serve, no axonn board";
}

HttpServer::HttpServer(Options) {
  refuse(
      "this build has no web server: install cpp-httplib (Debian: libcpp-httplib-dev) and build "
      "again");
}
HttpServer::~HttpServer() = default;
void HttpServer::get(const std::string&, Handler, bool) {}
void HttpServer::post(const std::string&, Handler) {}
int HttpServer::start() { return -1; }
void HttpServer::stop() {}
std::string HttpServer::address() const { return {}; }

}  // namespace axonn
