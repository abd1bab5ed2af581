#include "axonn/use/memorize/extraction.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numbers>
#include <set>
#include <sstream>

#include "axonn/foundation/base/check.h"

namespace axonn {

namespace {

/// The number that a text is; NaN if it is none.
double number_of(const std::string& text) {
  std::istringstream in(text);
  double value = 0;
  return in >> value && in.peek() == std::istringstream::traits_type::eof() ? value : NAN;
}

}  // namespace

SamplingPolicy parse_policy(const std::string& text, const std::string& where) {
  if (text == "greedy") return {.temperature = 0};
  SamplingPolicy policy;
  std::istringstream parts(text);
  std::string named;
  for (std::string part; std::getline(parts, part, ',');) {
    const double value = part.size() > 2 && part[1] == '=' ? number_of(part.substr(2)) : NAN;
    const char name = part.empty() ? ' ' : part[0];
    const bool known = (name == 't' && value > 0 && std::isfinite(value)) ||
                       (name == 'k' && value >= 1 && value <= 1e9 && value == std::floor(value)) ||
                       (name == 'p' && value > 0 && value <= 1);
    if (!known || named.find(name) != std::string::npos)
      refuse(where, " has '", text,
             "'; a policy is 'greedy' or such as 't=0.7,k=40,p=0.9': "
             "temperature t > 0, the k >= 1 likeliest tokens, and of these the likeliest that "
             "reach the probability p, 0 < p <= 1");
    if (name == 't') policy.temperature = value;
    if (name == 'k') policy.top_k = static_cast<std::int64_t>(value);
    if (name == 'p') policy.top_p = value;
    named += name;
  }
  if (named.empty())
    refuse(where, " has an empty policy; name one, such as 't=1,k=40', or 'greedy'");
  return policy;
}

std::vector<SamplingPolicy> parse_policies(std::span<const std::string> texts,
                                           const std::string& where) {
  std::vector<SamplingPolicy> policies;
  for (const std::string& text : texts) policies.push_back(parse_policy(text, where));
  return policies;
}

double ExtractionGrid::shown_p() const {
  constexpr double kHalf = 0.5;
  return std::ranges::count(p, kHalf) > 0 ? kHalf : p.front();
}

ExtractionGrid extraction_grid(std::span<const std::int64_t> n, std::span<const double> p,
                               const std::string& n_name, const std::string& p_name) {
  const auto ascends = [](const auto& values) {
    return !values.empty() &&
           std::ranges::adjacent_find(values, std::greater_equal()) == values.end();
  };
  if (!ascends(n) || n.front() < 1)
    refuse(n_name, ": numbers of samples ascend from 1 or more, such as 1, 10, 1000");
  if (!ascends(p) || !(p.front() > 0 && p.back() < 1))
    refuse(p_name, ": probabilities ascend between 0 and 1, such as 0.1, 0.5, 0.9");
  return {.n = {n.begin(), n.end()}, .p = {p.begin(), p.end()}};
}

void check_suffixes(std::span<const std::int64_t> further, std::int64_t main,
                    const std::string& name) {
  std::set<std::int64_t> lengths{main};
  for (const std::int64_t length : further)
    if (!lengths.insert(length).second)
      refuse(name, " has ", length, length == main ? ", which is tested anyway" : " twice",
             "; leave it out");
}

SuffixRecord suffix_record(std::span<const TargetRecord> suffix) {
  AXONN_CHECK(!suffix.empty(), "suffix_record: the suffix has no tokens");
  SuffixRecord record;
  for (std::size_t policy = 0; policy < suffix.front().log_q.size(); ++policy) {
    double sum = 0;
    for (const TargetRecord& token : suffix) sum += token.log_q[policy];
    record.log10_p.push_back(sum / std::numbers::ln10);
  }
  std::size_t greedy = 0, wrong_until = 0;  // the position after the last token that is not greedy
  for (std::size_t i = 0; i < suffix.size(); ++i)
    if (suffix[i].rank == 1)
      ++greedy;
    else
      wrong_until = i + 1;
  const auto length = static_cast<double>(suffix.size());
  record.greedy_exact = wrong_until == 0;
  record.greedy_accuracy = static_cast<double>(greedy) / length;
  record.extraction_strength = 1 - static_cast<double>(wrong_until) / length;
  return record;
}

double least_log10_p(double n, double p) {
  AXONN_CHECK(n >= 1 && p > 0 && p < 1, "least_log10_p: n = ", n, ", p = ", p,
              ", wanted n >= 1 and p between 0 and 1");
  return std::log10(-std::expm1(std::log1p(-p) / n));
}

double least_tries(double log10_p, double p) {
  AXONN_CHECK(p > 0 && p < 1, "least_tries: p = ", p, ", wanted one between 0 and 1");
  constexpr double kSmall = -12;  // log1p(-p_z) is -p_z to all digits
  if (log10_p >= 0) return 1;
  if (log10_p == -std::numeric_limits<double>::infinity()) return -log10_p;
  if (log10_p < kSmall) return std::pow(10, std::log10(-std::log1p(-p)) - log10_p);
  return std::ceil(std::log1p(-p) / std::log1p(-std::pow(10, log10_p)));
}

}  // namespace axonn
