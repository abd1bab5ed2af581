#pragma once

#include <functional>
#include <optional>
#include <string>

#include "axonn/data/text/chat/conversation.h"

namespace axonn {

/// How a chat template reads the arguments of a tool call, which OpenAI's API has as the text of
/// JSON, and most data as an object.
enum class ArgumentsForm {
  object,  ///< as an object, which it writes as JSON or member by member
  text,    ///< as a text; it refuses an object
  either,  ///< it prints what it gets, an object as Python shows dicts
};

/// A list of calls with their arguments in that form. As objects: the text of one becomes the
/// object, a null or blank text {}, and any other text remains. As texts: a text remains to the
/// byte, an object becomes JSON, and a null or blank text "{}". As either: null and blank texts
/// become {}, all others remain. `origin`: that of the message.
jinja::List calls_in(ArgumentsForm form, const jinja::List& calls, jinja::Origin origin);

/// Finds the form by what the template makes of the same arguments in both: `rendered` as for
/// find_content_form().
ArgumentsForm find_arguments_form(
    const std::function<std::optional<std::string>(const Conversation&)>& rendered);

}  // namespace axonn
