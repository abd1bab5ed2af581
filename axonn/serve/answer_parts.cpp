#include "axonn/serve/answer_parts.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>

#include <nlohmann/json.hpp>

#include "axonn/text/stream_decoder.h"
#include "axonn/text/tokenizer.h"

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

std::optional<ToolCall> call_in(const CallJson& value) {
  if (!value.is_object() || !value.contains("name") || !value["name"].is_string()) return {};
  for (const char* key : {"arguments", "parameters"}) {
    const auto found = value.find(key);
    if (found == value.end()) continue;
    const CallJson arguments =
        found->is_string() ? CallJson::parse(found->get_ref<const std::string&>(), nullptr, false)
                           : *found;
    if (!arguments.is_object()) return {};
    return ToolCall{value["name"], arguments.dump()};
  }
  return {};
}

/// Appends the calls of a JSON object, or of a list of them. Returns whether there are only calls.
bool take_calls(std::string_view text, std::vector<ToolCall>& calls) {
  const CallJson value = CallJson::parse(text, nullptr, false);
  for (const CallJson& each : value.is_array() ? value : CallJson::array({value})) {
    auto call = call_in(each);
    if (!call) return false;
    calls.push_back(std::move(*call));
  }
  return !calls.empty();
}

Calls hermes_calls(std::string_view text) {
  AnswerParts parts;
  for (text = without_space(text); !text.empty(); text = without_space(text)) {
    if (!text.starts_with(kCall)) {  // words between calls
      const std::size_t next = std::min(text.find(kCall), text.size());
      parts.text += text.substr(0, next);
      text.remove_prefix(next);
      continue;
    }
    text.remove_prefix(kCall.size());
    const std::size_t end = std::min(text.find(kCallEnd), text.size());
    if (!take_calls(text.substr(0, end), parts.calls)) return {};
    text.remove_prefix(std::min(end + kCallEnd.size(), text.size()));
  }
  return parts;
}

Calls mistral_calls(std::string_view text) {
  AnswerParts parts;
  for (text = without_space(text); !text.empty();) {
    text.remove_prefix(kCalls.size());
    const std::size_t next = std::min(text.find(kCalls), text.size());
    const std::string_view part = text.substr(0, next);
    text.remove_prefix(next);
    const std::size_t at = part.find(kArguments);
    if (at == part.npos) {
      if (!take_calls(part, parts.calls)) return {};
      continue;
    }
    const auto arguments = CallJson::parse(part.substr(at + kArguments.size()), nullptr, false);
    const std::string_view name = without_space(part.substr(0, std::min(at, part.find(kCallId))));
    if (name.empty() || !arguments.is_object()) return {};
    parts.calls.push_back({std::string(name), arguments.dump()});
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
  return parts;
}

AnswerParts AnswerSplitter::finish() {
  AnswerParts parts;
  while (advance(parts, true)) {
  }
  if (state_ != State::calls) return parts;
  if (auto calls = parse_calls(form_.calls, held_))
    parts.append(std::move(*calls));
  else
    parts.text += held_;
  return parts;
}

/// Goes on in the current state. Returns whether another state follows.
bool AnswerSplitter::advance(AnswerParts& parts, bool last) {
  const State before = state_;
  switch (state_) {
    case State::start:
      state_ = begin(last);
      if (state_ == State::thought_start) held_.erase(0, held_.find(kThought) + kThought.size());
      break;
    case State::thought_start:
      if (skip_space()) state_ = State::thought;
      break;
    case State::thought:
      if (!take_until(kThoughtEnd, parts.thought, last)) break;
      held_.erase(0, held_.find(kThoughtEnd) + kThoughtEnd.size());
      state_ = State::after_thought;
      break;
    case State::after_thought:
      if (skip_space()) state_ = State::text_start;
      break;
    case State::text_start:
      state_ = begin_text(last);
      break;
    case State::text:
      if (take_until(call_marker(form_.calls), parts.text, last)) state_ = State::calls;
      break;
    case State::calls:
      break;
  }
  return state_ != before;
}

/// Returns whether anything but white space is there.
bool AnswerSplitter::skip_space() {
  held_.erase(0, std::min(held_.find_first_not_of(kWhiteSpace), held_.size()));
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
  held_.erase(0, size);
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
