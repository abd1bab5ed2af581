#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "axonn/data/corpus/preferences/answer_lines.h"

namespace axonn {

/// An answer that was found to be good or bad.
struct LabelledAnswer {
  Answer answer;
  bool good = true;
};

struct LabelledLine {
  std::vector<LabelledAnswer> answers;
  /// Keys of the line, and of its messages, that nothing reads and that are not usual.
  std::vector<std::string> line_keys = {}, message_keys = {};
};

/// Parses a line {"prompt": ..., "completion": ..., "label": ...}, strings or lists of messages and
/// true or false, or 1 or 0. A pair (parse_pair()) is a good answer and a bad one. Throws
/// UsageError, beginning with `location`, as parse_pair() does, and if a key is missing.
LabelledLine parse_labelled(std::string_view line, const std::string& location);

}  // namespace axonn
