#pragma once

#include <optional>
#include <string>
#include <vector>

#include "axonn/data/corpus/config.h"
#include "axonn/data/corpus/files/jsonl.h"

namespace axonn {

/// What a user should know of files of examples before training: the keys that nothing reads, among
/// the first lines of each file (4 MiB). Files with equal notes share one. Throws UsageError as
/// parse_example() does.
std::vector<std::string> notes_of_examples(const std::vector<std::string>& files,
                                           const ExampleEncoder& encoder);

/// The same of files of answers (preferences/answer_files.h). `chat`: the template of those that
/// are messages.
std::vector<std::string> notes_of_answers(const std::vector<std::string>& files,
                                          const AnswerData& data,
                                          const std::optional<ChatTemplate>& chat);

/// The same of files of text: for JSON lines, the keys other than `field`; for others, whether the
/// first MiB is hardly text in UTF-8 (note_of_bytes()).
std::vector<std::string> notes_of_texts(const std::vector<std::string>& files,
                                        const std::string& field);

/// Which files of the folders among these paths are not read, by the endings of their names; "" if
/// there are none. Hidden files do not count.
std::string note_of_left_out(const std::vector<std::string>& paths);

}  // namespace axonn
