#include <cmath>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "axonn/foundation/base/check.h"
#include "axonn/use/memorize/report/fields.h"
#include "axonn/use/memorize/report/json.h"

namespace axonn {

namespace {

using Json = nlohmann::ordered_json;

/// A JSON value and its path, for error messages. Does not own the value.
class Node {
 public:
  Node(const Json& value, std::string file, std::string path = "")
      : value_(&value), file_(std::move(file)), path_(std::move(path)) {}

  Node operator[](const char* key) const {
    want(value_->is_object(), "an object");
    const auto found = value_->find(key);
    if (found == value_->end()) refuse(location(), ": '", key, "' is missing");
    return {*found, file_, path_.empty() ? key : concat(path_, '.', key)};
  }

  bool has(const char* key) const { return value_->is_object() && value_->contains(key); }

  void read(std::string& text) const {
    want(value_->is_string(), "a text");
    text = value_->get<std::string>();
  }
  void read(bool& flag) const {
    want(value_->is_boolean(), "true or false");
    flag = value_->get<bool>();
  }
  void read(std::uint64_t& seed) const {
    want(value_->is_number_unsigned(), "a whole number, 0 or more");
    seed = value_->get<std::uint64_t>();
  }
  void read(std::int64_t& count) const {
    std::uint64_t value = 0;
    read(value);
    want(std::in_range<std::int64_t>(value), "a whole number below 2^63");
    count = static_cast<std::int64_t>(value);
  }
  void read(double& number) const {
    want(value_->is_number() || value_->is_null(), "a number");
    number = value_->is_null() ? std::nan("") : value_->get<double>();
  }
  void read(std::optional<double>& number) const {
    if (!value_->is_null()) read(number.emplace());
  }
  template <typename T>
  void read_each(std::vector<T>& list) const {
    want(value_->is_array(), "a list");
    for (const Json& each : *value_) Node(each, file_, path_).read(list.emplace_back());
  }
  void read(std::vector<std::string>& texts) const { read_each(texts); }
  void read(std::vector<std::int64_t>& numbers) const { read_each(numbers); }
  void read(TokenSpan& span) const {
    std::vector<std::int64_t> ends;
    read(ends);
    want(ends.size() == 2, "a span of tokens, [first, end]");
    span = {ends[0], ends[1]};
  }
  /// Logarithms, of which that of 0 is null.
  void read(std::vector<double>& logarithms) const {
    want(value_->is_array(), "a list");
    for (const Json& each : *value_) {
      double& one = logarithms.emplace_back();
      Node(each, file_, path_).read(one);
      if (std::isnan(one)) one = -std::numeric_limits<double>::infinity();
    }
  }
  void read(std::vector<Reading>& readings) const {
    want(value_->is_array(), "a list");
    for (const Json& each : *value_) {
      const Node node(each, file_, concat(path_, '[', readings.size(), ']'));
      Reading& one = readings.emplace_back();
      node["document"].read(one.document);
      node["tokens"].read(one.tokens);
      node["log_p"].read(one.log_p);
      node["rank"].read(one.rank);
      node["log_q"].read(one.log_q);
      node["extracted"].read_each(one.extracted);
    }
  }
  void read(std::vector<std::vector<float>>& losses) const {
    want(value_->is_array(), "a list");
    for (const Json& each : *value_) {
      std::vector<double> row;
      Node(each, file_, path_).read(row);
      losses.emplace_back(row.begin(), row.end());
    }
  }
  void read(std::vector<NearRecord>& all) const {
    want(value_->is_array(), "a list");
    for (const Json& each : *value_) {
      const Node node(each, file_, concat(path_, '[', all.size(), ']'));
      NearRecord& one = all.emplace_back();
      const auto read = [&](const char* key, auto& value) { node[key].read(value); };
      visit_near(one, read);
      if (node.has("samples")) visit_near_samples(one, read);
      for (double* log10_p : {&one.log10_low, &one.log10_high})  // that of 0 is null
        if (std::isnan(*log10_p)) *log10_p = -std::numeric_limits<double>::infinity();
    }
  }
  void read(std::vector<bool>& flags) const {
    want(value_->is_array(), "a list");
    for (const Json& each : *value_) {
      bool flag = false;
      Node(each, file_, path_).read(flag);
      flags.push_back(flag);
    }
  }
  void read(CurvePoint& point) const {
    (*this)["step"].read(point.step);
    (*this)["validation_loss"].read(point.validation_loss);
    (*this)["loss"].read(point.loss);
    (*this)["log10_p"].read(point.log10_p);
    (*this)["exact"].read(point.exact);
  }
  void read(std::vector<CurvePoint>& curve) const {
    want(value_->is_array(), "a list");
    for (const Json& each : *value_)
      Node(each, file_, concat(path_, '[', curve.size(), ']')).read(curve.emplace_back());
  }
  void read(std::vector<Recitation>& recitations) const {
    want(value_->is_array(), "a list");
    for (const Json& each : *value_) {
      const Node node(each, file_, concat(path_, '[', recitations.size(), ']'));
      const auto read = [&](const char* key, auto& value) { node[key].read(value); };
      Recitation& one = recitations.emplace_back();
      visit_recitation(one, read);
      if (node.has("log10_p")) {
        node["log10_p"].read(one.record.emplace().log10_p);
        visit_record(*one.record, read);
      }
      if (node.has("score_loss"))
        visit_scores(
            one.scores.emplace(), [&](const char* key, double) { return node.has(key); }, read);
      if (node.has("canary_rank")) visit_exposure(one.exposure.emplace(), read);
      if (node.has("random_bits")) visit_information(one.information.emplace(), read);
      if (node.has("near")) node["near"].read(one.near);
    }
  }

 private:
  void want(bool right, const std::string& what) const {
    if (!right) refuse(location(), " is not ", what);
  }
  std::string location() const { return path_.empty() ? file_ : file_ + ": " + path_; }

  const Json* value_;
  std::string file_, path_;
};

/// Throws UsageError, beginning with `where`, for a text that is no JSON.
Json parsed(const std::string& text, const std::string& where) {
  try {
    return Json::parse(text);
  } catch (const Json::exception& error) {
    refuse(where, ": damaged: ", error.what());
  }
}

}  // namespace

CurvePoint parse_point(const std::string& text, const std::string& where) {
  CurvePoint point;
  Node(parsed(text, where), where).read(point);
  return point;
}

Recitation parse_recitation(const std::string& text, const std::string& where) {
  const Json list = Json::array({parsed(text, where)});
  std::vector<Recitation> one;
  Node(list, where).read(one);
  return one.front();
}

std::vector<double> parse_values(const std::string& text, const std::string& where) {
  std::vector<double> values;
  const Json json = parsed(text, where);
  Node(json, where).read(values);
  return values;
}

RecitationRun parse_run(const std::string& text, const std::string& where) {
  const Json json = parsed(text, where);
  const Node node(json, where);
  RecitationRun run;
  visit_run(run, [&](const char* key, auto& value) { node[key].read(value); });
  if (node.has("policies")) node["policies"].read(run.policies);
  node["recitations"].read(run.recitations);
  if (node.has("curve")) node["curve"].read(run.curve);
  if (node.has("readings")) node["readings"].read(run.readings);
  if (node.has("losses")) node["losses"].read(run.losses);
  for (const Recitation& r : run.recitations)
    if (r.record && r.record->log10_p.size() != run.policies.size())
      refuse(where, ": a recitation has ", r.record->log10_p.size(), " log10_p, but there are ",
             run.policies.size(), " policies");
  return run;
}

}  // namespace axonn
