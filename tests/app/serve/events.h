#pragma once

#include <map>
#include <sstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>
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

/// The events of a stream with types, whose lines "event:" and numbers, if they have them, must be
/// right.
inline std::vector<nlohmann::json> typed_events(const std::string& body) {
  std::vector<nlohmann::json> events;
  std::istringstream lines(body);
  for (std::string name, data, empty; std::getline(lines, name);) {
    std::getline(lines, data);
    std::getline(lines, empty);
    AXONN_CHECK(data.starts_with("data: ") && empty.empty(), "not an event: ", name, data);
    events.push_back(nlohmann::json::parse(data.substr(6)));
    EXPECT_EQ(name, "event: " + events.back()["type"].get<std::string>());
    EXPECT_EQ(events.back().value("sequence_number", events.size() - 1), events.size() - 1);
  }
  return events;
}

/// The types of events without those that follow one of the same type.
inline std::vector<std::string> types_of(const std::vector<nlohmann::json>& events) {
  std::vector<std::string> types;
  for (const nlohmann::json& event : events)
    if (types.empty() || types.back() != event["type"]) types.push_back(event["type"]);
  return types;
}

}  // namespace axonn::testing_support
