#include "axonn/use/rewards/verifiers.h"

#include <cctype>
#include <cmath>
#include <numeric>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "axonn/foundation/base/check.h"
#include "axonn/foundation/base/utf8.h"

namespace axonn {

namespace {

std::string_view trimmed(std::string_view text) {
  const std::size_t first = text.find_first_not_of(kWhiteSpace);
  if (first == text.npos) return {};
  return text.substr(first, text.find_last_not_of(kWhiteSpace) - first + 1);
}

bool is_digit(char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; }

/// An integer or a decimal fraction over a power of ten.
struct Fraction {
  std::int64_t over = 0, under = 1;
};

/// Reads digits, commas between them and a point from `at` on, and moves it behind them.
std::optional<Fraction> read_decimal(std::string_view text, std::size_t& at) {
  constexpr int kMostDigits = 18;
  Fraction number;
  int digits = 0;
  bool point = false;
  const auto digit_at = [&](std::size_t i) { return i < text.size() && is_digit(text[i]); };
  for (; at < text.size(); ++at) {
    const char c = text[at];
    if (is_digit(c)) {
      if (++digits > kMostDigits) return {};
      number.over = 10 * number.over + (c - '0');
      if (point) number.under *= 10;
    } else if (c == '.' && !point && digit_at(at + 1)) {
      point = true;
    } else if (!(c == ',' && !point && digits > 0 && digit_at(at + 1))) {
      break;
    }
  }
  if (digits == 0) return {};
  return number;
}

std::string reduced(Fraction number, bool negative) {
  const std::int64_t by = std::gcd(number.over, number.under);
  return fmt::format("{}{}/{}", negative && number.over != 0 ? "-" : "", number.over / by,
                     number.under / by);
}

double exact_reward(std::string_view answer, std::string_view wanted) {
  return trimmed(answer) == trimmed(wanted) ? 1 : 0;
}

double number_reward(std::string_view answer, std::string_view wanted) {
  const auto right = last_number(wanted), got = last_number(answer);
  if (!right) return exact_reward(answer, wanted);
  return got == right ? 1 : 0;
}

double format_reward(std::string_view answer, std::string_view) {
  constexpr std::string_view kBegin = "<think>", kEnd = "</think>";
  if (!answer.starts_with(kBegin)) return 0;
  const std::string_view rest = answer.substr(kBegin.size());
  return rest.find(kBegin) == rest.npos && rest.find(kEnd) != rest.npos ? 1 : 0;
}

}  // namespace

Verifier make_verifier(const std::string& name) {
  if (name == "exact") return exact_reward;
  if (name == "number") return number_reward;
  if (name == "format") return format_reward;
  refuse("[rl] rewards: there is no reward \"", name,
         "\"; built in are exact, number and format, and rl.reward_program gives any other");
}

bool reads_wanted(const std::string& name) { return name != "format"; }

std::optional<std::string> wanted_of_line(std::string_view line) {
  const auto value = nlohmann::json::parse(line, nullptr, false);
  if (!value.is_object()) return {};
  const auto text_of = [](const nlohmann::json& object,
                          const char* key) -> std::optional<std::string> {
    const auto found = object.find(key);
    if (found == object.end()) return {};
    if (found->is_string()) return found->get<std::string>();
    if (found->is_number()) return found->dump();
    return {};
  };
  for (const char* key : {"answer", "solution", "ground_truth"})
    if (auto text = text_of(value, key)) return text;
  if (const auto nested = value.find("reward_model"); nested != value.end() && nested->is_object())
    return text_of(*nested, "ground_truth");
  return {};
}

std::optional<std::string> last_number(std::string_view text) {
  std::optional<std::string> last;
  for (std::size_t at = 0; at < text.size();) {
    const bool point = text[at] == '.' && at + 1 < text.size() && is_digit(text[at + 1]);
    if (!is_digit(text[at]) && !point) {
      ++at;
      continue;
    }
    const bool negative = at > 0 && text[at - 1] == '-' &&
                          (at == 1 || !std::isalnum(static_cast<unsigned char>(text[at - 2])));
    std::optional<Fraction> number = read_decimal(text, at);
    if (!number) {  // too many digits: none of them is another number
      while (at < text.size() && is_digit(text[at])) ++at;
      last.reset();
      continue;
    }
    if (at + 1 < text.size() && text[at] == '/' && is_digit(text[at + 1])) {
      std::size_t behind = at + 1;
      const std::optional<Fraction> by = read_decimal(text, behind);
      // Products of two long numbers would not fit.
      constexpr std::int64_t kMost = 1'000'000'000;
      if (by && by->over > 0 && by->over < kMost && by->under < kMost && number->over < kMost &&
          number->under < kMost) {
        number = {number->over * by->under, number->under * by->over};
        at = behind;
      }
    }
    std::size_t sign = at;
    while (sign < text.size() && text[sign] == ' ') ++sign;
    if (sign < text.size() && text[sign] == '%' && number->under < 1'000'000'000'000'000)
      number->under *= 100;
    last = reduced(*number, negative);
  }
  return last;
}

}  // namespace axonn
