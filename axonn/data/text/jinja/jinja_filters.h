#pragma once

#include <string_view>

#include "axonn/data/text/jinja/jinja_call.h"

namespace axonn::jinja {

/// A filter of Jinja that chat templates use, with the tojson of transformers; nullptr if there is
/// none of this name. `safe` changes nothing, since chat templates do not escape HTML.
const Function* find_filter(std::string_view name);

/// Those of them that make texts.
const Function* find_text_filter(std::string_view name);

/// A test of Jinja: of the value alone, or with one argument.
struct Test {
  std::string_view name;
  bool (*holds)(const Value&);
  bool (*holds_with)(const Value&, const Value& other) = nullptr;
};
/// nullptr if there is none.
const Test* find_test(std::string_view name);
bool call_test(const Test& test, Session& session, const Value& value, const Arguments& arguments);

}  // namespace axonn::jinja
