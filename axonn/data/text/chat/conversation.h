#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "axonn/data/text/chat/members.h"
#include "axonn/data/text/jinja/jinja_render.h"

namespace axonn {

/// A turn that is only text.
struct Message {
  std::string role, content;
};

/// A conversation with all that a chat template may read of it.
struct Conversation {
  Conversation() = default;
  Conversation(const std::vector<Message>& messages);

  /// Reads the members "messages", "tools", "documents" and "chat_template_kwargs" of an object, as
  /// data sets have them. Tools may also be the text of a JSON list. A message has a role, and as
  /// content a text, a list of parts that are text (content_parts.h), or none if it has another
  /// member, such as tool_calls; that of a tool may be any value but images, audio and files.
  /// Throws UsageError, beginning with `location`, that names the member or the message.
  static Conversation parse(const jinja::Dict& object, const std::string& location);
  /// The same; the members that it reads count as read.
  static Conversation parse(Members& object, const std::string& location);

  /// A member of message i that is a text; "" if it is none.
  std::string text(std::size_t i, std::string_view member) const;
  /// Sets or replaces a member of message i.
  void set_member(std::size_t i, const char* member, jinja::Value value);

  /// Brings what data sets and clients of OpenAI's API write into the one form that templates
  /// expect, for training and serving alike:
  ///
  ///   members               null ones but "content", and empty "tool_calls", are removed
  ///   tools, documents      an empty list is none
  ///   thoughts              reasoning_content, reasoning and thinking: those missing are copies of
  ///                         the first that is a text and not empty, as in transformers
  void normalize();

  std::vector<jinja::Value> messages;  ///< dicts
  /// The assistant's messages that are not learned, by their index, in order.
  std::vector<std::size_t> not_learned;
  jinja::Variables variables;  ///< tools, documents and others by name
  std::size_t bytes = 0;       ///< about the size of all that
  std::optional<std::tm> now;  ///< that strftime_now() shows, unless ChatArguments have it
};

/// Parses JSON as Python's json module, for templates: objects keep their order, and of equal keys
/// the last one counts. Texts in element i of the top-level list "messages" have message i as their
/// origin, others `other`. But the names of roles that templates write, such as "assistant", are
/// words of the template: some templates form control tokens of them. Returns nothing if it is not
/// JSON, or if brackets nest deeper than Value::kMostDepth.
std::optional<jinja::Value> parse_chat_json(std::string_view text,
                                            jinja::Origin other = {.source = jinja::Origin::kData});

/// The template variable that fixes the date.
inline constexpr std::string_view kDateArgument = "strftime_now";

/// Settings of the user for all conversations.
struct ChatArguments {
  jinja::Variables variables;
  std::optional<std::tm> now;   ///< that strftime_now() shows
  bool last_turn_only = false;  ///< whether only the assistant's last turn is learned
};

/// Parses a JSON object of template variables, such as {"enable_thinking": false}, or "". The
/// variable "strftime_now", "YYYY-MM-DD", is the date that the template writes as today's. Throws
/// UsageError, beginning with `key`.
ChatArguments parse_chat_arguments(const std::string& json, const std::string& key);

/// Noon of a day, "YYYY-MM-DD". Throws UsageError, beginning with `key`.
std::tm parse_chat_date(const std::string& text, const std::string& key);

}  // namespace axonn
