#pragma once

#include <string>

#include "axonn/train/generator.h"

namespace axonn {

struct ChatOptions {
  std::string format = "auto";  ///< as find_chat_format() takes it
  std::string tokenizer;        ///< whose folder tells the format: bytes or a path
  std::string system;           ///< what the system says; "": nothing
  GenerationOptions wanted;     ///< of every answer
};

/// A conversation with a model: reads a line from the standard input, writes the answer, and so on
/// until the input ends. Keys and values of what was said are kept; where the context is full, the
/// oldest turns are dropped. Collective: rank 0 reads and writes.
/// Errors: UsageError as find_chat_format() and ChatTemplate.
void chat(Session& session, Generator& generator, const ChatOptions& options);

}  // namespace axonn
