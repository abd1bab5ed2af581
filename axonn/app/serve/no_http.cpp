// The web server of builds without Boost.
#include "axonn/app/serve/http_connections.h"
#include "axonn/foundation/base/check.h"

namespace axonn {

class HttpConnections::State {};

std::string http_library() { return "none (built without Boost): no axonn serve, no axonn board"; }

HttpConnections::HttpConnections(const HttpServer::Options&, const HttpService&) {
  refuse(
      "this build has no web server: install Boost's headers (Debian: libboost-dev) and build "
      "again");
}
HttpConnections::~HttpConnections() = default;
int HttpConnections::start() { return -1; }
void HttpConnections::stop() {}

}  // namespace axonn
