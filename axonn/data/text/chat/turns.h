#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "axonn/data/text/jinja/jinja_text.h"
#include "axonn/data/text/text_steps.h"

namespace axonn {

/// Bytes [begin, end) of a text.
struct ByteSpan {
  std::size_t begin, end;
  bool operator==(const ByteSpan&) const = default;
};

/// The same conversation up to a message, rendered for comparison.
struct PartialRenderings {
  /// The text of the first `count` messages; `prompted`: with the header of the assistant's next
  /// turn. Nothing if the template refuses them.
  std::function<std::optional<jinja::Text>(std::size_t count, bool prompted)> of_first;
  /// Text that the template writes after every conversation, asked for a prompt or not.
  std::string closing_prompt = {};
};

/// The prompt with which a template that does not know add_generation_prompt ends every text; "" if
/// it cannot be told. `asked`, `asked_twice`: texts of conversations of one and two messages of the
/// user, the second if the template renders it.
std::string closing_prompt(const jinja::Text& asked, const std::optional<jinja::Text>& asked_twice,
                           const AddedTokenFinder& tokens);

/// The parts of a rendered conversation that are learned, in order.
///
/// If the template has {% generation %}, they are what it writes between these marks. Otherwise a
/// turn of the assistant is found by the origins of the pieces, and its borders by comparison with
/// what the template writes at the same position for the conversation up to there:
///
///   begin  What precedes the assistant's first piece is compared with the end of the conversation
///          up to there, rendered with add_generation_prompt. What both have is the turn's header,
///          which the model is given; so <think> in a header is not learned, and one that only the
///          turn has is.
///   end    What follows its last piece is compared with the end of the conversation up to and with
///          this turn. What both have ends the turn, without white space at its end.
///
/// So a turn is learned as it is rendered, whatever the template drops from it. Names and arguments
/// of tool calls are pieces of it; what the template writes between them is learned with them.
///
/// `roles`: of the messages. `tokens`: which texts are control tokens; a border within one moves to
/// its edge. `end_of_text`: the characters of the token that ends a text, or empty.
std::vector<ByteSpan> learned_spans(const jinja::Text& text, const std::vector<std::string>& roles,
                                    const PartialRenderings& renderings,
                                    const AddedTokenFinder& tokens, std::string_view end_of_text);

/// The learned spans but for those of the messages `not_learned`. A span belongs to the message of
/// its pieces; one without any, to the assistant's first message after the piece before it. Throws
/// UsageError if a span holds words of messages of both sorts, as {% generation %} can mark them.
std::vector<ByteSpan> spans_without(const jinja::Text& text, const std::vector<std::string>& roles,
                                    std::vector<ByteSpan> spans,
                                    const std::vector<std::size_t>& not_learned);

/// The learned spans that belong to the assistant's last message.
std::vector<ByteSpan> spans_of_last_turn(const jinja::Text& text,
                                         const std::vector<std::string>& roles,
                                         std::vector<ByteSpan> spans);

}  // namespace axonn
