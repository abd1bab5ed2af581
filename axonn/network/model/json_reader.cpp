#include "axonn/network/model/json_reader.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <fstream>

#include "axonn/foundation/base/check.h"

namespace axonn {

namespace {

constexpr std::size_t kMostBytes = 1 << 20;  // of a file; published ones have a few thousand
constexpr int kDeepest = 16;                 // levels of nested objects; published files have 3

}  // namespace

bool JsonReader::has(const char* key) const {
  const auto found = object_.find(key);
  if (found != object_.end()) asked_->ask(*found);
  return found != object_.end();
}

const nlohmann::json* JsonReader::find(Keys spellings) const {
  for (const char* key : spellings) has(key);
  for (const char* key : spellings)
    if (const auto found = object_.find(key); found != object_.end() && !found->is_null()) {
      name_ = key;
      return &*found;
    }
  name_ = *spellings.begin();
  return nullptr;
}

bool JsonReader::has_objects() const {
  return std::ranges::any_of(object_,
                             [](const nlohmann::json& value) { return value.is_object(); });
}

std::optional<std::int64_t> JsonReader::integer(Keys spellings, std::int64_t most) const {
  const auto fits = [&](const nlohmann::json& value) {
    const bool whole = value.is_number_integer() &&
                       (!value.is_number_unsigned() || value.get<std::uint64_t>() <= kUnsigned);
    return whole && value.get<std::int64_t>() >= 1 && value.get<std::int64_t>() <= most;
  };
  return get<std::int64_t>(spellings, fits, concat("an integer from 1 to ", most));
}

std::int64_t JsonReader::needed(Keys spellings, std::int64_t most) const {
  const auto value = integer(spellings, most);
  if (!value) refuse(location_, ": ", name_, " is missing");
  return *value;
}

std::int64_t JsonReader::integer_or(const char* key, std::int64_t most,
                                    const Absent& absent) const {
  return integer({key}, most).value_or(has(key) ? absent.null : absent.missing);
}

std::int64_t JsonReader::zero_or(const char* key, std::int64_t most, std::int64_t otherwise) const {
  const nlohmann::json* const value = find({key});
  if (value && value->is_number_integer() && *value == 0) return 0;
  return integer_or(key, most, {.missing = otherwise, .null = 0});
}

std::vector<std::int64_t> JsonReader::integers(const char* key) const {
  const auto fits = [](const nlohmann::json& value) {
    return value.is_array() && std::ranges::all_of(value, [](const nlohmann::json& one) {
             return one.is_number_unsigned() && one.get<std::uint64_t>() < kUnsigned;
           });
  };
  return get<std::vector<std::int64_t>>({key}, fits, "a list of integers of at least 0")
      .value_or(std::vector<std::int64_t>{});
}

double JsonReader::real(Keys spellings, double otherwise) const {
  const auto fits = [](const nlohmann::json& value) {
    return value.is_number() && std::isfinite(value.get<double>()) && value.get<double>() > 0;
  };
  return get<double>(spellings, fits, "a number above 0").value_or(otherwise);
}

double JsonReader::needed_real(const char* key) const {
  if (!find({key})) refuse(location_, ": ", key, " is missing");
  return real({key}, 0);
}

std::vector<double> JsonReader::needed_reals(const char* key) const {
  if (!find({key})) refuse(location_, ": ", key, " is missing");
  const auto fits = [](const nlohmann::json& value) {
    return value.is_array() && std::ranges::all_of(value, [](const nlohmann::json& one) {
             return one.is_number() && std::isfinite(one.get<double>()) && one.get<double>() > 0;
           });
  };
  return *get<std::vector<double>>({key}, fits, "a list of numbers above 0");
}

bool JsonReader::flag(const char* key, bool otherwise) const {
  return get<bool>({key}, &nlohmann::json::is_boolean, "true or false").value_or(otherwise);
}

std::string JsonReader::text(Keys spellings, std::string_view otherwise) const {
  return get<std::string>(spellings, &nlohmann::json::is_string, "a string")
      .value_or(std::string(otherwise));
}

std::optional<JsonReader> JsonReader::object(const char* key) const {
  const nlohmann::json* value = find({key});
  if (!value) return std::nullopt;
  if (!value->is_object()) refuse_value(*value, "an object");
  return JsonReader(*value, concat(location_, ": ", key), asked_);
}

std::vector<std::string> JsonReader::unread(std::span<const std::string_view> harmless) const {
  std::vector<std::string> keys;
  for (AskedKeys::Unread& key : asked_->unread(object_))
    if (std::ranges::find(harmless, key.path) == harmless.end())
      keys.push_back(std::move(key.path));
  return keys;
}

void JsonReader::refuse_value(const nlohmann::json& value, const std::string& wanted) const {
  constexpr std::size_t kShown = 40;
  std::string got = value.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
  if (got.size() > kShown) got = got.substr(0, kShown) + "...";
  refuse(location_, ": ", name_, " wants ", wanted, ", got ", got);
}

nlohmann::json parse_json_object(std::string_view text, const std::string& location) {
  const auto shallow = [&](int depth, nlohmann::json::parse_event_t, nlohmann::json&) {
    if (depth > kDeepest) refuse(location, ": objects are nested more than ", kDeepest, " deep");
    return true;
  };
  if (text.size() > kMostBytes)
    refuse(location, ": more than ", kMostBytes, " bytes; is it the config.json of a model?");
  nlohmann::json json;
  try {
    json = nlohmann::json::parse(text, shallow);
  } catch (const nlohmann::json::exception& error) {
    refuse(location, ": not valid JSON: ", error.what());
  }
  if (!json.is_object()) refuse(location, ": not a JSON object");
  return json;
}

std::string read_json_text(const std::string& file) {
  std::ifstream in(file, std::ios::binary);
  if (!in) refuse("cannot read '", file, "': ", std::strerror(errno));
  std::string text(kMostBytes + 1, '\0');
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(in.gcount()));
  if (in.bad()) refuse("cannot read '", file, "': ", std::strerror(errno));
  return text;
}

nlohmann::json read_json_object(const std::string& file) {
  return parse_json_object(read_json_text(file), file);
}

}  // namespace axonn
