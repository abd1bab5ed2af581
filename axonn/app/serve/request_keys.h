#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "axonn/app/serve/api_request.h"
#include "axonn/app/serve/request_body.h"

namespace axonn {

/// Checks the keys of a request against one table of those that clients of OpenAI's API, vLLM,
/// llama-server and others send: used, harmless, or refused, because they would change the text and
/// are not supported. A refused key may have null or the value that changes nothing. Returns the
/// first keys that are not in the table. Throws RequestError that names a refused key.
std::vector<std::string> check_keys(const RequestBody& body, RequestKind kind);

/// The keys that requests of this kind use, in the order of the table. For documentation and tests.
std::vector<std::string_view> used_keys(RequestKind kind);

}  // namespace axonn
