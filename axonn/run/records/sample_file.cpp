#include "axonn/run/records/sample_file.h"

#include <fstream>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "axonn/foundation/base/check.h"
#include "axonn/run/records/event_file.h"
#include "axonn/run/records/run_steps.h"

namespace axonn {

SamplesFile::SamplesFile(const std::string& folder, std::int64_t after_step)
    : file_(folder + '/' + kSamplesFile, keep_steps(folder + '/' + kSamplesFile, after_step)) {}

std::string SamplesFile::write(const TextSample& sample) {
  const auto quoted = [](const std::string& text) {  // a model may write invalid UTF-8
    return nlohmann::json(text).dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
  };
  return file_.append(fmt::format(
      "{{\"step\": {}, \"time\": {:.3f}, \"prompt\": {}, \"text\": {}, \"tokens\": {}, \"end\": "
      "{}}}\n",
      sample.step, sample.time, quoted(sample.prompt), quoted(sample.text), sample.tokens,
      quoted(sample.end)));
}

TextSample parse_sample(std::string_view line) {
  const auto entry = nlohmann::json::parse(line, nullptr, false);
  TextSample sample;
  if (!entry.is_object()) return sample;
  const auto text = [&](const char* key) {
    const auto found = entry.find(key);
    return found != entry.end() && found->is_string() ? found->get<std::string>() : std::string();
  };
  const auto number = [&](const char* key) {
    const auto found = entry.find(key);
    return found != entry.end() && found->is_number() ? found->get<double>() : 0.0;
  };
  return {.step = static_cast<std::int64_t>(number("step")),
          .time = number("time"),
          .prompt = text("prompt"),
          .text = text("text"),
          .tokens = static_cast<std::int64_t>(number("tokens")),
          .end = text("end")};
}

std::vector<TextSample> read_samples(const std::string& folder) {
  std::vector<TextSample> samples;
  std::ifstream file(folder + '/' + kSamplesFile);
  for (std::string line; std::getline(file, line);) {
    TextSample sample = parse_sample(line);
    if (sample.step == 0) continue;
    const bool first = samples.empty() || samples.back().step != sample.step;
    sample.number = first ? 1 : samples.back().number + 1;
    samples.push_back(std::move(sample));
  }
  return samples;
}

std::string TextSample::tag() const { return concat("sample/", number); }

std::string to_markdown(const TextSample& sample) {
  return concat("Prompt:\n\n", as_code(sample.prompt), "\nText:\n\n", as_code(sample.text));
}

}  // namespace axonn
