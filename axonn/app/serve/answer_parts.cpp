#include "axonn/app/serve/answer_parts.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>

#include <nlohmann/json.hpp>

#include "axonn/data/text/stream_decoder.h"
#include "axonn/data/text/tokenizer.h"

namespace axonn {

namespace {

using CallJson = nlohmann::ordered_json;
using Calls = std::optional<AnswerParts>;  // none: not as the format has them

constexpr std::string_view kThought = "<think>", kThoughtEnd = "</think>", kCall = "<tool_call>",
                           kCallEnd = "</tool_call>", kCalls = "[TOOL_CALLS]",
                           kArguments = "[ARGS]", kCallId = "[CALL_ID]",
                           kPythonTag = "<|python_tag|>";
constexpr std::string_view kWhiteSpace = " \t\r\n";

std::size_t size_without_space(std::string_view text) {
  return text.find_last_not_of(kWhiteSpace) + 1;  // npos + 1 is 0
}

std::string_view without_space(std::string_view text) {
  text = text.substr(0, size_without_space(text));
  return text.substr(std::min(text.find_first_not_of(kWhiteSpace), text.size()));
}

/// The text that begins the first call, or nothing.
std::string_view call_marker(AnswerForm::Calls calls) {
  if (calls == AnswerForm::Calls::hermes) return kCall;
  return calls == AnswerForm::Calls::mistral ? kCalls : std::string_view();
}

/// The bytes of the JSON value at the front of a text; 0 if it does not end.
std::size_t json_bytes(std::string_view text) {
  std::size_t depth = 0;
  bool in_string = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      if (c != '"') continue;
      in_string = false;
      if (depth == 0) return i + 1;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '{' || c == '[') {
      ++depth;
    } else if (depth == 0 && (c == ',' || c == ':' || kWhiteSpace.find(c) != kWhiteSpace.npos)) {
      return i;
    } else if (c == '}' || c == ']') {
      if (depth <= 1) return i + depth;  // of a value in a list, or of the list
      --depth;
    }
  }
  return depth == 0 && !in_string ? text.size() : 0;
}

/// Takes a JSON value, and white space before it, from the front.
std::string_view take_json(std::string_view& text) {
  text = without_space(text);
  const std::string_view value = text.substr(0, json_bytes(text));
  text.remove_prefix(value.size());
  return value;
}

struct WrittenMember {
  std::string_view key, value;  // as they are written; the key of a list's item is empty
};

/// The members of a valid JSON object, or the items of a list.
std::vector<WrittenMember> written_members(std::string_view text) {
  std::vector<WrittenMember> members;
  const bool object = text.starts_with('{');
  text = without_space(text.substr(1, text.size() - 2));
  while (!text.empty()) {
    WrittenMember member;
    if (object) {
      member.key = take_json(text);
      text = without_space(text).substr(1);  // :
    }
    member.value = take_json(text);
    members.push_back(member);
    text = without_space(text);
    if (!text.empty()) text.remove_prefix(1);  // ,
  }
  return members;
}

/// JSON without the white space between its parts; numbers and strings as they are written.
std::string compact(std::string_view json) {
  std::string out;
  bool in_string = false;
  for (std::size_t i = 0; i < json.size(); ++i) {
    const char c = json[i];
    if (!in_string && kWhiteSpace.find(c) != kWhiteSpace.npos) continue;
    if (in_string && c == '\\') out += json[i++];
    if (c == '"') in_string = !in_string;
    out += json[i];
  }
  return out;
}

CallJson parsed(std::string_view json) { return CallJson::parse(json, nullptr, false); }

/// The text of the object that is given as arguments: as such, or as a string.
std::optional<std::string> arguments_in(std::string_view written) {
  std::string text(written);
  if (const CallJson value = parsed(text); value.is_string()) text = value.get<std::string>();
  if (!parsed(text).is_object()) return {};
  return compact(text);
}

std::optional<ToolCall> call_in(std::string_view object) {
  if (!object.starts_with('{')) return {};
  std::string_view name, arguments, parameters;
  for (const auto& [key, value] : written_members(object)) {
    const CallJson of = parsed(key);
    if (of == "name") name = value;
    if (of == "arguments") arguments = value;
    if (of == "parameters") parameters = value;
  }
  const CallJson called = parsed(name);
  auto given = arguments_in(arguments.empty() ? parameters : arguments);
  if (!called.is_string() || !given) return {};
  return ToolCall{called, std::move(*given)};
}

/// Appends the calls of a JSON object, or of a list of them. Returns whether there are only calls.
bool take_calls(std::string_view text, std::vector<ToolCall>& calls) {
  text = without_space(text);
  if (parsed(text).is_discarded()) return false;
  std::vector<WrittenMember> items{{{}, text}};
  if (text.starts_with('[')) items = written_members(text);
  for (const WrittenMember& item : items) {
    auto call = call_in(item.value);
    if (!call) return false;
    calls.push_back(std::move(*call));
  }
  return !calls.empty();
}

/// Takes words up to a marker, or to the end, from the front. They begin a line of their own.
void take_words(std::string_view marker, std::string_view& text, std::string& words) {
  const std::size_t next = std::min(text.find(marker), text.size());
  const std::string_view taken = without_space(text.substr(0, next));
  if (!taken.empty() && !words.empty()) words += '\n';
  words += taken;
  text.remove_prefix(next);
}

Calls hermes_calls(std::string_view text) {
  AnswerParts parts;
  for (take_words(kCall, text, parts.text); !text.empty(); take_words(kCall, text, parts.text)) {
    text.remove_prefix(kCall.size());
    if (!take_calls(take_json(text), parts.calls)) return {};
    text = without_space(text);
    if (text.starts_with(kCallEnd))
      text.remove_prefix(kCallEnd.size());
    else if (!text.empty())
      return {};
  }
  return parts;
}

Calls mistral_calls(std::string_view text) {
  AnswerParts parts;
  for (take_words(kCalls, text, parts.text); !text.empty(); take_words(kCalls, text, parts.text)) {
    text.remove_prefix(kCalls.size());
    text = without_space(text);
    if (text.starts_with('[') || text.starts_with('{')) {
      if (!take_calls(take_json(text), parts.calls)) return {};
      continue;
    }
    const std::size_t at = text.find(kArguments);
    if (at == text.npos) return {};
    const std::string_view name = without_space(text.substr(0, std::min(at, text.find(kCallId))));
    text.remove_prefix(at + kArguments.size());
    text = without_space(text);
    if (name.empty() || !text.starts_with('{')) return {};
    auto arguments = arguments_in(take_json(text));
    if (!arguments) return {};
    parts.calls.push_back({std::string(name), std::move(*arguments)});
  }
  return parts;
}

Calls llama_calls(std::string_view text) {
  text = without_space(text);
  if (text.starts_with(kPythonTag)) text.remove_prefix(kPythonTag.size());
  AnswerParts parts;
  if (!take_calls(text, parts.calls)) return {};
  return parts;
}

Calls parse_calls(AnswerForm::Calls form, std::string_view text) {
  switch (form) {
    case AnswerForm::Calls::hermes:
      return hermes_calls(text);
    case AnswerForm::Calls::mistral:
      return mistral_calls(text);
    case AnswerForm::Calls::llama:
      return llama_calls(text);
    case AnswerForm::Calls::none:
      break;
  }
  return {};
}

}  // namespace

void AnswerParts::append(AnswerParts more) {
  thought += more.thought;
  text += more.text;
  std::ranges::move(more.calls, std::back_inserter(calls));
}

std::vector<std::string_view> AnswerForm::markers() const {
  std::vector<std::string_view> all;
  if (thinks) all = {kThought, kThoughtEnd};
  if (calls == Calls::hermes) all.insert(all.end(), {kCall, kCallEnd});
  if (calls == Calls::mistral) all.insert(all.end(), {kCalls, kArguments, kCallId});
  if (calls == Calls::llama) all.push_back(kPythonTag);
  return all;
}

AnswerForm find_answer_form(std::string_view chat_template) {
  const auto has = [&](std::string_view part) { return chat_template.find(part) != part.npos; };
  AnswerForm form{.thinks = has(kThoughtEnd)};
  if (has(kCall) && has(kCallEnd))
    form.calls = AnswerForm::Calls::hermes;
  else if (has(kCalls))
    form.calls = AnswerForm::Calls::mistral;
  else if (has("\"parameters\"") && has("ipython"))
    form.calls = AnswerForm::Calls::llama;
  return form;
}

AnswerSplitter::AnswerSplitter(AnswerForm form, bool in_thought)
    : form_(form), state_(in_thought ? State::thought_start : State::start) {}

AnswerParts AnswerSplitter::push(std::string_view text) {
  held_ += text;
  AnswerParts parts;
  while (advance(parts, false)) {
  }
  spoke_ |= !parts.text.empty();
  return parts;
}

AnswerParts AnswerSplitter::finish() {
  AnswerParts parts;
  while (advance(parts, true)) {
  }
  if (state_ != State::calls) return parts;
  auto calls = parse_calls(form_.calls, held_);
  if (!calls) {
    parts.text += held_;
    drop(held_.size());
    text_.end = taken_;
    return parts;
  }
  if (!calls->text.empty() && (spoke_ || !parts.text.empty())) parts.text += '\n';
  parts.append(std::move(*calls));
  return parts;
}

/// Goes on in the current state. Returns whether another state follows.
bool AnswerSplitter::advance(AnswerParts& parts, bool last) {
  const State before = state_;
  switch (state_) {
    case State::start:
      state_ = begin(last);
      if (state_ == State::thought_start) drop(held_.find(kThought) + kThought.size());
      break;
    case State::thought_start:
      if (skip_space()) state_ = State::thought;
      break;
    case State::thought:
      if (!take_until(kThoughtEnd, parts.thought, last)) break;
      drop(held_.find(kThoughtEnd) + kThoughtEnd.size());
      state_ = State::after_thought;
      break;
    case State::after_thought:
      if (skip_space()) state_ = State::text_start;
      break;
    case State::text_start:
      state_ = begin_text(last);
      text_ = {taken_, taken_};
      break;
    case State::text:
      if (take_until(call_marker(form_.calls), parts.text, last)) state_ = State::calls;
      text_.end = taken_;
      break;
    case State::calls:
      break;
  }
  return state_ != before;
}

void AnswerSplitter::drop(std::size_t bytes) {
  held_.erase(0, bytes);
  taken_ += bytes;
}

/// Returns whether anything but white space is there.
bool AnswerSplitter::skip_space() {
  drop(std::min(held_.find_first_not_of(kWhiteSpace), held_.size()));
  return !held_.empty();
}

/// Moves what precedes the marker to `to`, but not the white space right before the marker. Returns
/// whether the marker is there. An empty marker never is.
bool AnswerSplitter::take_until(std::string_view marker, std::string& to, bool last) {
  const std::size_t found = marker.empty() ? held_.npos : held_.find(marker);
  std::size_t size = held_.size();
  if (found != held_.npos || (!last && !marker.empty())) {
    size = std::min(found, held_.size() - begun_suffix(held_, marker));
    size = size_without_space(std::string_view(held_).substr(0, size));
  }
  to += held_.substr(0, size);
  drop(size);
  return found != held_.npos;
}

/// The state after the start: the same one while it is not known whether a thought begins.
AnswerSplitter::State AnswerSplitter::begin(bool last) const {
  const std::string_view text = without_space(held_);
  if (form_.thinks && text.starts_with(kThought)) return State::thought_start;
  if (form_.thinks && !last && kThought.starts_with(text)) return State::start;
  return State::text_start;
}

/// The state after the start of the text: the same one while it may be a bare call.
AnswerSplitter::State AnswerSplitter::begin_text(bool last) const {
  const std::string_view text = without_space(held_);
  if (form_.calls != AnswerForm::Calls::llama) return State::text;
  if (text.starts_with(kPythonTag) || text.starts_with('{')) return State::calls;
  return !last && kPythonTag.starts_with(text) ? State::text_start : State::text;
}

}  // namespace axonn
