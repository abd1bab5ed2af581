#pragma once

#include <memory>
#include <string>

#include "axonn/infer/generator.h"

namespace axonn {

struct ChatOptions {
  std::string format = "auto";  ///< as in find_chat_format()
  std::string tokenizer_path;   ///< "bytes" or a path whose folder defines the format
  std::shared_ptr<const Tokenizer> tokenizer;
  std::string system;        ///< the system message; "": none
  GenerationOptions wanted;  ///< options of every answer
};

/// Holds a conversation: reads a line from standard input and writes the model's answer, until the
/// input ends. Reuses the keys and values of earlier turns; drops the oldest turns when the context
/// is full. Collective: rank 0 reads and writes. Throws UsageError as find_chat_format() and
/// ChatTemplate.
void chat(Communicator& world, Generator& generator, const ChatOptions& options);

}  // namespace axonn
