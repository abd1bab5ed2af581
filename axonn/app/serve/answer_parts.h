#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace axonn {

/// A call of a tool in a model's answer.
struct ToolCall {
  std::string name, arguments;  ///< arguments: the text of a JSON object

  bool operator==(const ToolCall&) const = default;
};

/// The parts of an answer.
struct AnswerParts {
  std::string thought, text;
  std::vector<ToolCall> calls = {};

  bool empty() const { return thought.empty() && text.empty() && calls.empty(); }
  void append(AnswerParts more);
};

/// Bytes of an answer.
struct ByteRange {
  std::size_t begin = 0, end = 0;
};

/// How a model writes thoughts and calls of tools.
struct AnswerForm {
  /// Formats of calls, by the models that made them known:
  ///
  ///   hermes   <tool_call>{"name": ..., "arguments": {...}}</tool_call>, any number; also Qwen
  ///   mistral  [TOOL_CALLS][{"name": ..., "arguments": {...}}, ...], or, in newer models,
  ///            [TOOL_CALLS]NAME[ARGS]{...}, any number
  ///   llama    {"name": ..., "parameters": {...}} and nothing else, or <|python_tag|> before it
  enum class Calls : std::uint8_t { none, hermes, mistral, llama };
  Calls calls = Calls::none;
  bool thinks = false;  ///< whether an answer may begin with <think>...</think>

  /// The texts that begin and end parts. They may be special tokens.
  std::vector<std::string_view> markers() const;
};

/// The form that a chat template has for the answers of earlier turns: it contains the markers.
AnswerForm find_answer_form(std::string_view chat_template);

/// Splits an answer into its parts as it comes. White space around thoughts and calls is dropped;
/// text behind a call begins a line of its own. A call ends where its JSON ends, whatever its
/// strings contain, and its arguments are as the model writes them, without the white space between
/// their parts.
/// Text that may begin a marker is held back until it is known. Calls are given at the end, all at
/// once; if they are not as the format has them, for example because the answer was cut off, they
/// remain text.
class AnswerSplitter {
 public:
  /// `in_thought`: the prompt has the beginning of the thought.
  explicit AnswerSplitter(AnswerForm form, bool in_thought = false);

  /// Takes the next text and returns the parts that are certain.
  AnswerParts push(std::string_view text);
  /// Returns the rest.
  AnswerParts finish();
  /// The bytes of the answer that are the text, as far as it was returned, but for text behind
  /// calls.
  ByteRange text() const { return text_; }

 private:
  enum class State : std::uint8_t {
    start,
    thought_start,
    thought,
    after_thought,
    text_start,
    text,
    calls
  };
  bool advance(AnswerParts& parts, bool last);
  void drop(std::size_t bytes);
  bool skip_space();
  bool take_until(std::string_view marker, std::string& to, bool last);
  State begin(bool last) const;
  State begin_text(bool last) const;

  AnswerForm form_;
  State state_;
  bool spoke_ = false;     ///< whether text was returned
  std::size_t taken_ = 0;  ///< bytes before held_
  ByteRange text_ = {};
  std::string held_;
};

}  // namespace axonn
