#pragma once

#include <map>
#include <sstream>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "axonn/foundation/base/check.h"

namespace axonn::testing_support {

/// The events of a stream of server-sent events, and whether the stream is whole.
struct Events {
  std::vector<nlohmann::json> all = {};
  std::map<int, std::string> texts = {}, reasons = {};  ///< by choice
  nlohmann::json usage = {};                            ///< of the last event
  bool done = false;
};

inline Events events_of(const std::string& body) {
  Events events;
  std::istringstream lines(body);
  for (std::string line; std::getline(lines, line);) {
    if (line.empty()) continue;
    AXONN_CHECK(line.starts_with("data: "), "not an event: ", line);
    if (line == "data: [DONE]") {
      events.done = true;
      continue;
    }
    const nlohmann::json event = nlohmann::json::parse(line.substr(6));
    events.all.push_back(event);
    if (event.contains("usage")) events.usage = event["usage"];
    for (const nlohmann::json& choice : event["choices"]) {
      const int index = choice["index"];
      events.texts[index] += choice.contains("delta") ? choice["delta"].value("content", "")
                                                      : choice["text"].get<std::string>();
      if (!choice["finish_reason"].is_null()) events.reasons[index] = choice["finish_reason"];
    }
  }
  return events;
}

}  // namespace axonn::testing_support
