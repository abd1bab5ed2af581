#include "axonn/cli/chat.h"

#include <iostream>
#include <optional>

#include <unistd.h>

#include "axonn/base/check.h"
#include "axonn/comm/texts.h"
#include "axonn/text/chat/chat_template.h"

namespace axonn {

namespace {

/// Reads the user's next line, for every rank; empty at the end of the input.
std::optional<std::string> next_line(Communicator& world) {
  std::vector<std::string> said;
  if (world.rank() == 0) {
    if (isatty(STDIN_FILENO) != 0) std::cout << "> " << std::flush;
    std::string line;
    while (line.empty() && std::getline(std::cin, line))
      if (!line.empty() && line.back() == '\r') line.pop_back();
    if (!line.empty()) said.push_back(line);
  }
  said = broadcast_texts(world, said);
  if (said.empty()) return {};
  return said.front();
}

/// The conversation as tokens. Drops the oldest turns until the smaller of `room` and half of the
/// context is free for the answer.
std::vector<std::int32_t> prompt_of(const ChatTemplate& form, std::vector<Message>& messages,
                                    std::int64_t context, std::int64_t room, bool& dropped) {
  const std::size_t first = messages.front().role == "system" ? 1 : 0;
  const std::int64_t most = context - std::min(room, context / 2);
  std::vector<std::int32_t> tokens = form.prompt(messages);
  while (std::ssize(tokens) > most && messages.size() > first + 1) {
    const auto oldest = messages.begin() + static_cast<std::ptrdiff_t>(first);
    messages.erase(oldest, oldest + 2);  // a question and its answer
    tokens = form.prompt(messages);
    dropped = true;
  }
  return tokens;
}

}  // namespace

void chat(Communicator& world, Generator& generator, const ChatOptions& options) {
  const ChatTemplate form(options.tokenizer,
                          find_chat_format(options.format, options.tokenizer_path));
  GenerationOptions wanted = options.wanted;
  const std::vector<std::int32_t>& end = form.end_of_turn();
  if (end.size() == 1)
    wanted.stop_tokens.push_back(end.front());
  else
    wanted.stop_strings.push_back(options.tokenizer->decode(end));

  const bool speaks = world.rank() == 0;
  std::vector<Message> messages;
  if (!options.system.empty()) messages.push_back({"system", options.system});
  while (const auto line = next_line(world)) {
    messages.push_back({"user", *line});
    bool dropped = false;
    const auto prompt = prompt_of(form, messages, generator.context(), wanted.max_tokens, dropped);
    if (dropped && speaks)
      std::cerr << "note: the context of " << generator.context()
                << " tokens is full; the oldest turns are dropped\n";
    const auto answer = generator.generate({prompt}, wanted, [&](std::size_t, auto text) {
      if (speaks) std::cout << text << std::flush;
    });
    if (speaks) std::cout << std::endl;
    messages.push_back({"assistant", answer.front().text});
    ++wanted.seed;  // samples differently in every turn
  }
}

}  // namespace axonn
