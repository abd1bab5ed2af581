#include "axonn/cli/card_lines.h"

#include <fmt/core.h>

#include "axonn/base/log.h"

namespace axonn {

std::vector<std::pair<std::string_view, std::string>> card_lines(const CardPlatform* platform,
                                                                 const CudaStatus& status) {
  if (!platform) return {{"cards", "none: " + status.trouble}};
  std::vector<std::pair<std::string_view, std::string>> lines;
  const auto say = [&](std::string text) { lines.emplace_back(platform->device, std::move(text)); };
  if (!status.driver.empty())
    say(fmt::format("the driver runs {} up to {}", platform->name, status.driver));
  if (!status.trouble.empty()) say("no card: " + status.trouble);
  for (const CudaCard& card : status.cards)
    say(fmt::format("card {}: {}, {}, {} {}, {} of memory", card.index, card.name,
                    card.architecture, card.multiprocessors, platform->units,
                    format_bytes(card.memory_bytes)));
  return lines;
}

}  // namespace axonn
