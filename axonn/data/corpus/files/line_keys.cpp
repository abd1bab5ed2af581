#include "axonn/data/corpus/files/line_keys.h"

#include <algorithm>
#include <array>

#include "axonn/data/text/jinja/jinja_print.h"
#include "axonn/foundation/base/check.h"
#include "axonn/foundation/base/utf8.h"

namespace axonn {

namespace {

using jinja::Dict;
using jinja::Value;

constexpr std::array<std::string_view, 4> kLearning{"weight", "train", "training", "loss"};

// Of TRL, LLaMA-Factory, OpenAI's API and published data sets of preferences.
constexpr std::array<std::string_view, 9> kPreference{
    "chosen",     "rejected",           "preferred_output",  "non_preferred_output", "kto_tag",
    "preference", "better_response_id", "safer_response_id", "rejected_messages"};
// Of whole lines. A number of 1, or true, asks for nothing.
constexpr std::array<std::string_view, 5> kLineWeights{"weight", "loss_weight", "sample_weight",
                                                       "train", "train_on_inputs"};
// Members of messages that choose parts of one, or weights between 0 and 1.
constexpr std::array<std::string_view, 7> kMessageParts{
    "train_detail", "training_detail", "loss_scale", "loss_weight", "loss_mask",
    "mask",         "train_on_inputs"};
constexpr std::array<std::string_view, 8> kMedia{"image", "images", "audio",  "audios",
                                                 "video", "videos", "speech", "pixel_values"};
// What formats of conversations have in messages; templates decide what they write of it.
constexpr std::array<std::string_view, 11> kMessageKeys{
    "role",         "content", "tool_calls", "reasoning_content", "reasoning", "thinking",
    "tool_call_id", "name",    "refusal",    "annotations",       "type"};
constexpr std::array<std::string_view, 26> kHarmless{
    "id",      "_id",      "idx",  "index",   "uid",  "uuid",      "guid",    "hash",   "md5",
    "source",  "origin",   "src",  "dataset", "meta", "metadata",  "split",   "subset", "url",
    "license", "language", "lang", "file",    "date", "timestamp", "created", "version"};

template <std::size_t N>
bool is_one_of(const std::array<std::string_view, N>& names, std::string_view name) {
  return std::ranges::find(names, name) != names.end();
}

std::string shown(const Value& value) {
  return shortened(printable(jinja::to_text(value).bytes()), 40);
}

/// Whether "label" tells a good answer from a bad one (KTO) and not a text's class.
bool is_preference_label(const Members& line, const Value& label) {
  if (label.as<bool>()) return true;
  return flag_of(label) && !line.peek("text");
}

/// Whether a message is learned, if `name` says so.
bool read_flag(std::string_view name, const Value& value, const std::string& location) {
  const std::optional<bool> flag = flag_of(value);
  if (!flag)
    refuse(location, ": \"", name, "\" is ", shown(value), "; it must be ",
           name == "weight" ? "0 or 1: other weights are not supported" : "true or false");
  return *flag;
}

/// Whether the message is learned, if one of its members says so.
std::optional<bool> flag_in(const Dict& message, const std::string& location) {
  std::optional<bool> learned;
  std::string_view said;
  for (const std::string_view name : kLearning) {
    const Value* value = message.find(name);
    if (!value || value->is_none()) continue;
    const bool flag = read_flag(name, *value, location);
    if (learned && *learned != flag)
      refuse(location, ": \"", said, "\" and \"", name, "\" contradict each other");
    learned = flag;
    said = name;
  }
  return learned;
}

void refuse_message_key(std::string_view name, const std::string& location) {
  if (is_preference_key(name)) refuse_preference_key(location, name);
  if (is_one_of(kMessageParts, name))
    refuse(location, ": \"", name,
           "\" would change what is learned, which this program does not do; a message is learned "
           "as a whole or, with \"weight\": 0, not at all");
}

}  // namespace

std::optional<bool> flag_of(const Value& value) {
  if (const bool* flag = value.as<bool>()) return *flag;
  if (const std::int64_t* number = value.as<std::int64_t>())
    return *number == 0 || *number == 1 ? std::optional(*number == 1) : std::nullopt;
  if (const double* number = value.as<double>())
    return *number == 0 || *number == 1 ? std::optional(*number == 1) : std::nullopt;
  return std::nullopt;
}

void refuse_line_keys(const Members& line, const std::string& location) {
  for (const auto& [key, value] : line.object().items()) {
    const std::string& name = key.text()->bytes();
    if (value.is_none()) continue;
    if (is_preference_key(name) || (name == "label" && is_preference_label(line, value)))
      refuse_preference_key(location, name);
  }
  refuse_pair_keys(line, location);
}

void refuse_pair_keys(const Members& line, const std::string& location) {
  for (const auto& [key, value] : line.object().items()) {
    const std::string& name = key.text()->bytes();
    if (value.is_none()) continue;
    if (is_one_of(kLineWeights, name) && flag_of(value) != true)
      refuse(location, ": \"", name, "\" is ", shown(value),
             "; whole lines have no weights here: leave out lines that must not be learned, and "
             "the key from the others");
    if (name == "loss_mask")
      refuse(location,
             ": \"loss_mask\" is not supported; what is learned follows from the kind of "
             "the line, and from \"weight\": 0 in messages");
    if (name == "functions" && value.truth())
      refuse(location,
             ": \"functions\" is not supported; give them as \"tools\": [{\"type\": "
             "\"function\", \"function\": {...}}]");
    if (is_one_of(kMedia, name) && value.truth())
      refuse(location, ": \"", name, "\": the model reads text alone");
  }
}

std::vector<std::string> read_message_keys(Conversation& talk, const std::string& location) {
  std::vector<std::string> others;
  for (std::size_t i = 0; i < talk.messages.size(); ++i) {
    const Dict& message = *talk.messages[i].dict();
    const std::string here = concat(location, ": message ", i + 1);
    if (const std::optional<bool> learned = flag_in(message, here)) {
      const bool assistant = talk.text(i, "role") == "assistant";
      if (*learned && !assistant)
        refuse(here, " is to be learned, but it is not the assistant's: only the assistant's ",
               "messages are; leave the key out");
      if (!*learned && assistant) talk.not_learned.push_back(i);
    }
    Dict kept;
    for (const auto& [key, value] : message.items()) {
      const std::string& name = key.text()->bytes();
      if (is_one_of(kLearning, name)) continue;
      if (!value.is_none()) {
        refuse_message_key(name, here);
        if (!is_one_of(kMessageKeys, name) && !is_harmless_key(name)) others.push_back(name);
      }
      kept.set(key, value);
    }
    if (kept.size() < message.size()) talk.messages[i] = std::move(kept);
  }
  return others;
}

bool is_harmless_key(std::string_view name) {
  return is_one_of(kHarmless, name) || name.ends_with("_id") || name.starts_with("__");
}

bool is_answer_key(std::string_view name) {
  return name != "role" && name != "name" && name != "type" && !is_harmless_key(name) &&
         !is_one_of(kLearning, name);
}

bool is_preference_key(std::string_view name) {
  if (is_one_of(kPreference, name)) return true;
  for (const std::string_view kind : {"chosen", "rejected"})
    for (const char sign : {'_', '-'})
      if (name.starts_with(std::string(kind) + sign)) return true;
  return false;
}

void refuse_preference_key(const std::string& location, std::string_view name) {
  refuse(location, ": \"", printable(std::string(name)),
         "\" belongs to preference data, of which every answer would be learned here, also those "
         "that are marked as worse; train on it by 'axonn prefer', or keep the lines of good "
         "answers, without this key");
}

}  // namespace axonn
