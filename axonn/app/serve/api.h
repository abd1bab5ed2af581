#pragma once

#include <span>

#include "axonn/app/serve/api_request.h"
#include "axonn/app/serve/engine.h"
#include "axonn/app/serve/http.h"

namespace axonn {

/// Adds the API and the page to the server, both of which must be outlived by models and queue.
/// The first model is the base of the others, which are adapters of it; a request's `model` names
/// one of them. A single model answers to every name.
///
///   GET  /                       a page to chat with the model, or to continue texts
///   GET  /health                 how many prompts run and wait; needs no token
///   GET  /metrics                the same in Prometheus' text form
///   GET  /v1/models
///   POST /v1/completions         as OpenAI's; also what EleutherAI's lm-evaluation-harness sends
///   POST /v1/chat/completions
///   POST /v1/responses           as OpenAI's, without state
///   POST /v1/messages            as Anthropic's
///   POST /v1/embeddings
///   GET  /tokenizer_info, POST /tokenize   for programs that use the server's tokenizer
///
/// A request that finds the queue full gets status 503.
void add_api(HttpServer& server, std::span<const ServedModel> models, RequestQueue& queue);

}  // namespace axonn
