#pragma once

#include <string>

#include "axonn/data/text/chat/members.h"

namespace axonn {

/// A line of ShareGPT's format as an object with "messages", which Conversation::parse() reads:
///
///   {"conversations": [{"from": "human", "value": TEXT}, {"from": "gpt", "value": TEXT}, ...],
///    "system": TEXT, "tools": a list, or its JSON text}
///
/// The last two are optional. An entry may also have "role" and "content". Other members of an
/// entry become members of its message. Whom "from" names:
///
///   user       human, user
///   assistant  gpt, assistant, model, chatgpt, bing, bard; function_call, tool_call, whose value
///              is the JSON of {"name", "arguments"} or of a list of them
///   system     system
///   tool       tool, function, observation, function_response, tool_response
///
/// Throws UsageError, beginning with `location`, that names the entry and its fault.
jinja::Dict from_sharegpt(Members& line, const std::string& location);

/// Returns the conversation of a line of alpaca's format, as LLaMA-Factory reads it:
///
///   {"instruction": TEXT, "input": TEXT, "output": TEXT, "system": TEXT,
///    "history": [[QUESTION, ANSWER], ...]}
///
/// input, system and history are optional. The question is the instruction and, on the next line,
/// the input. The history comes before it, and its answers are answers like the output.
jinja::Dict from_alpaca(Members& line, const std::string& location);

/// Returns the conversation of a line whose prompt and completion are lists of messages, as TRL
/// reads it:
///
///   {"prompt": [MESSAGE, ...], "completion": [MESSAGE, ...]}
///
/// with "tools", "documents" and "chat_template_kwargs" as beside "messages". Answers in the prompt
/// have a "weight" of 0.
jinja::Dict from_prompt_messages(Members& line, const std::string& location);

}  // namespace axonn
