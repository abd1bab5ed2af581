#include "axonn/app/serve/request_body.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string_view>

#include "axonn/data/text/jinja/jinja_value.h"
#include "axonn/foundation/base/json_extent.h"
#include "axonn/foundation/base/utf8.h"

namespace axonn {

namespace {

// Of a body: a few times what the longest lists of tokens have. A value takes up to about 200 bytes
// while it is read.
static_assert(RequestBody::kMostDepth == jinja::Value::kMostDepth);
constexpr std::int64_t kMostValues = std::int64_t{1} << 19;
constexpr std::size_t kLongestShown = 200;  // bytes of a value in an error

}  // namespace

std::optional<std::int64_t> whole_number(const nlohmann::json& value) {
  constexpr double kExact = 9007199254740992;  // from 2^53 on, not all whole numbers are floats
  if (value.is_number_float()) {
    const double real = value;
    if (std::trunc(real) != real || std::abs(real) > kExact) return {};
    return static_cast<std::int64_t>(real);
  }
  if (!value.is_number_integer() || value > std::numeric_limits<std::int64_t>::max()) return {};
  return value.get<std::int64_t>();
}

std::string dumped(const nlohmann::ordered_json& value) {
  return value.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

nlohmann::ordered_json member_of(const nlohmann::ordered_json& of, const char* name) {
  return of.is_object() ? of.value(name, nlohmann::ordered_json()) : nlohmann::ordered_json();
}

std::string shown_value(const nlohmann::json& value) {
  if (value.is_array()) return "a list";
  if (value.is_object()) return "an object";
  const std::string text =
      value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace).substr(0, kLongestShown);
  return text.substr(0, valid_utf8_prefix(text));
}

RequestBody::RequestBody(const std::string& text) {
  const JsonExtent extent = json_extent(text);
  if (extent.depth > kMostDepth) refuse("the brackets of the body nest deeper than ", kMostDepth);
  if (extent.values > kMostValues)
    refuse("the body has more than ", kMostValues, " values; send several requests");
  try {
    json_ = nlohmann::json::parse(text);
  } catch (const nlohmann::json::exception& error) {
    const std::string_view why = error.what();  // begins with "[json.exception...] "
    refuse("the body is not JSON: ",
           printable(why.substr(std::min(why.find(']') + 2, why.size()), kLongestShown)));
  }
  if (!json_.is_object()) refuse("the body is not a JSON object");
}

const nlohmann::json& RequestBody::operator[](const char* key) const {
  static const nlohmann::json null;
  const auto found = json_.find(key);
  return found == json_.end() ? null : *found;
}

bool RequestBody::flag(const char* key, bool otherwise) const {
  const nlohmann::json& value = (*this)[key];
  if (value.is_null()) return otherwise;
  if (!value.is_boolean()) reject_key(key, "wanted true or false");
  return value;
}

double RequestBody::real(const char* key, double otherwise, double least, double most) const {
  const nlohmann::json& value = (*this)[key];
  if (value.is_null()) return otherwise;
  if (!value.is_number() || !(value >= least && value <= most))
    reject_key(key, "wanted a number from ", least, " to ", most);
  return value;
}

std::int64_t RequestBody::whole(const char* key, std::int64_t otherwise, std::int64_t least,
                                std::int64_t most, const char* limit) const {
  const nlohmann::json& value = (*this)[key];
  if (value.is_null()) return otherwise;
  const std::optional<std::int64_t> number = whole_number(value);
  if (!number || *number < least || *number > most)
    reject_key(key, "wanted a whole number from ", least, " to ", most, limit);
  return *number;
}

std::size_t RequestBody::choice(const char* key, std::initializer_list<const char*> texts) const {
  const nlohmann::json& value = (*this)[key];
  if (value.is_null()) return 0;
  std::string all;
  for (std::size_t i = 0; i < texts.size(); ++i) {
    if (value == texts.begin()[i]) return i;
    all += concat(i > 0 ? " or \"" : "\"", texts.begin()[i], '"');
  }
  reject_key(key, "wanted ", all, ", got ", shown_value(value));
}

std::vector<std::int32_t> RequestBody::tokens(const char* key, const nlohmann::json& list,
                                              std::int64_t vocab) const {
  std::vector<std::int32_t> tokens;
  if (!list.is_array()) reject_key(key, "wanted a list of tokens");
  for (const nlohmann::json& token : list) {
    const std::optional<std::int64_t> number = whole_number(token);
    if (!number || *number < 0 || *number >= vocab)
      reject_key(key, "wanted tokens from 0 to ", vocab - 1, ", got ", shown_value(token));
    tokens.push_back(static_cast<std::int32_t>(*number));
  }
  return tokens;
}

void RequestBody::only(const char* key, const nlohmann::json& plain) const {
  const nlohmann::json& value = (*this)[key];
  if (!value.is_null() && value != plain) reject_key(key, "only ", plain.dump(), " is supported");
}

}  // namespace axonn
