#pragma once

#include <istream>
#include <ostream>

#include "axonn/app/serve/api_request.h"
#include "axonn/run/load/loaded_model.h"

namespace axonn {

/// What a worker answers calls with, the same on every rank.
struct WorkerModel {
  ServedModel served;             ///< tokenizer and chat template; its limits are not used
  LoadedModel* loaded = nullptr;  ///< null: only calls of text are answered
};

/// Answers the calls of the program that started this one (the Python package) until `in` ends.
/// A call is a line, a name, a space and a JSON object. An answer is a line of JSON, followed by
/// the arrays that it names: {"result": {...}, "arrays": [[rows, cols], ...]} and their elements,
/// f32 in the machine's order of bytes; or {"error": "text"} for a call that is refused.
///
///   describe    {}                                      sizes of the model, the tokenizer
///   tokenize    texts; begin, added_tokens: booleans    tokens: a list for each text
///   detokenize  tokens: lists; skip_special             texts
///   chat        messages, tools, ...; prompt: boolean   tokens, learned, text
///   generate    as POST /v1/completions, and seed       generations
///   answer      as POST /v1/chat/completions, and seed  generations
///   embed       as POST /v1/embeddings                  (n, H): not scaled to length 1
///   losses      tokens: lists; batch                    (1, targets) nats; (1, targets): 1 if the
///                                                       target is the likeliest token, else 0
///   logits      tokens: a list                          (T, V)
///
/// Collective over the model's ranks; only rank 0 uses the streams. Throws what computing throws:
/// then the ranks no longer agree, and the worker must end.
void answer_calls(WorkerModel worker, std::istream& in, std::ostream& out);

}  // namespace axonn
