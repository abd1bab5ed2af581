#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "axonn/run/records/record_file.h"

namespace axonn {

/// A text that a model in training wrote after a prompt.
struct TextSample {
  std::int64_t step = 0;  ///< after which step; counted from 1
  double time = 0;        ///< seconds since 1970
  std::string prompt, text;
  std::int64_t tokens = 0;  ///< of `text`
  std::string end;          ///< why it ends there: "max_tokens"
  int number = 0;           ///< of the prompt among those of the step; counted from 1

  std::string tag() const;  ///< "sample/1", in TensorBoard's events
};

/// DIR/samples.jsonl, a line a sample, as RecordFile keeps it:
///
///   {"step": 20, "time": 1763800000.125, "prompt": "The", "text": " sea", "tokens": 4,
///    "end": "max_tokens"}
///
/// In ASCII: a line that is cut short is no invalid UTF-8.
class SamplesFile {
 public:
  /// Keeps an earlier run's samples of steps up to after_step. Throws as MetricsFile.
  SamplesFile(const std::string& folder, std::int64_t after_step);

  /// Adds a line. Returns as RecordFile::append() does.
  std::string write(const TextSample& sample);
  RecordFile& records() { return file_; }

 private:
  RecordFile file_;
};

inline constexpr const char* kSamplesFile = "samples.jsonl";

/// The sample in a line of samples.jsonl; its step is 0 if the line is damaged.
TextSample parse_sample(std::string_view line);

/// The samples of a run, in order; none if it has no such file.
std::vector<TextSample> read_samples(const std::string& folder);

/// The sample as Markdown, for TensorBoard.
std::string to_markdown(const TextSample& sample);

}  // namespace axonn
