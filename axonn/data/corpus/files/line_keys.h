#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "axonn/data/text/chat/conversation.h"
#include "axonn/data/text/chat/members.h"

namespace axonn {

/// Throws UsageError, beginning with `location`, for keys of a line that would change what is
/// learned, which this program does not do: preferences (label, chosen, rejected, ...), weights and
/// masks of the whole line, functions in place of tools, images and other media. A "label" beside
/// "text" is one if it is true or false; numbers and names are those of classes.
void refuse_line_keys(const Members& line, const std::string& location);
/// The same of a line with answers for a loss of preferences, which are welcome there.
void refuse_pair_keys(const Members& line, const std::string& location);

/// Reads and removes the members of messages that say whether a message is learned: "weight" 0 or
/// 1, as in OpenAI's data, and "train", "training" and "loss", true or false. Sets
/// talk.not_learned. Returns the names of members that neither this program nor a data format
/// knows. Throws UsageError, beginning with `location`, for other values, for members that
/// contradict each other or ask for messages of others than the assistant, and for other members
/// that would change what is learned.
std::vector<std::string> read_message_keys(Conversation& talk, const std::string& location);

/// The meaning of 1 or 0, true or false.
std::optional<bool> flag_of(const jinja::Value& value);

/// Whether a key belongs to preference data whatever its value is: chosen, rejected, ...
bool is_preference_key(std::string_view name);
[[noreturn]] void refuse_preference_key(const std::string& location, std::string_view name);

/// Whether a key is one of those that data sets have for their own use, such as "id" and "source".
bool is_harmless_key(std::string_view name);

/// Whether a member of an assistant's message holds what is learned of it, and does not only
/// describe the message.
bool is_answer_key(std::string_view name);

}  // namespace axonn
