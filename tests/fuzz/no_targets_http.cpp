// The target for requests in builds without a web server: it reads nothing.
#include "tests/fuzz/targets.h"

namespace axonn::fuzz {

void http_request(std::string_view) {}
std::vector<std::string> http_request_seeds() { return {""}; }

}  // namespace axonn::fuzz
