#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "axonn/data/text/chat/conversation.h"

namespace axonn {

/// How a chat template reads the content of a role's messages.
enum class ContentForm {
  text,    ///< as one text; it would print a list of parts as Python shows lists
  either,  ///< as one text, or part by part
  parts,   ///< part by part; it would leave out a text
};

/// Whether a content is a list of parts of text: [{"type": "text", "text": "Hi"}, ...].
bool is_text_parts(const jinja::Value& content);

/// The fault of a list of parts; "" if all are of text. The types input_text, output_text and
/// refusal, which other APIs have, are text too. Images, audio and files are refused: models read
/// text alone. `of_tool`: a tool's result, whose elements may be any other value.
std::string fault_of_parts(const jinja::List& parts, bool of_tool);

/// The content in the form that a template reads: the texts of parts joined by newlines, as in
/// other servers, or a text as one part. Other contents, such as those of tools, remain. `origin`:
/// that of the message.
jinja::Value content_in(ContentForm form, const jinja::Value& content, jinja::Origin origin);

/// Finds the form by what the template makes of the same text in both: `rendered` renders a
/// conversation, or returns nothing if the template refuses it.
ContentForm find_content_form(
    std::string_view role,
    const std::function<std::optional<std::string>(const Conversation&)>& rendered);

}  // namespace axonn
