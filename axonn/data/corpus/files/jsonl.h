#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "axonn/data/corpus/documents.h"
#include "axonn/data/corpus/tokens/tokenize.h"
#include "axonn/data/text/chat/chat_template.h"

namespace axonn {

/// An example of fine-tuning data: a line of a file.
struct Example {
  enum class Kind {
    text,        ///< {"text": "..."}: all of it is learned
    completion,  ///< {"prompt": "...", "completion": "..."}: the completion is learned
    /// {"messages": [{"role": "...", "content": "..."}, ...]}: the assistant's turns. May also have
    /// "tools", "documents" and "chat_template_kwargs", as data for transformers has them. Also
    /// lines of ShareGPT's and alpaca's formats (conversation_lines.h).
    messages,
  };
  Kind kind = Kind::text;
  std::string prompt = {}, text = {};  ///< text: also the completion
  Conversation conversation = {};
  /// Keys of the line, and of its messages, that are neither read nor usual beside examples. A chat
  /// template may read those of messages.
  std::vector<std::string> line_keys = {}, message_keys = {};

  /// Whether an answer is missing: the text, the completion, or a message of the assistant, is
  /// nothing but white space. Training would learn that to say nothing is an answer.
  bool lacks_answer() const;
};
std::string_view name_of(Example::Kind kind);

/// A line of a file that is not blank.
struct Line {
  std::string_view text;
  std::string location;  ///< "FILE:17"
};
/// The lines of a text of a file, which follow `before` others. They point into the text.
std::vector<Line> lines_of(std::string_view text, const std::string& file, std::int64_t before);

/// The string under a key of a JSON object. Throws UsageError, beginning with the line's location,
/// if the line is not UTF-8 or not a JSON object, or has no string there, or for keys of preference
/// data, unless `field` is one of them.
std::string text_of_line(const Line& line, const std::string& field);
/// Whether text_of_line() looks at a key: the field, and those of preference data.
bool decides_text(std::string_view name, std::string_view field);
/// The keys of the line other than the field, null ones and harmless ones (line_keys.h), for
/// messages.
std::vector<std::string> other_keys_of_line(const Line& line, const std::string& field);

/// The JSON object of a line. Throws UsageError, beginning with `location`, if it is not UTF-8 or
/// no JSON object.
jinja::Value parse_line(std::string_view line, const std::string& location);

/// Parses a line. A member that is null counts as absent; other keys are listed in the example,
/// among them "prompt" where there is no "completion". Throws UsageError, beginning with
/// `location`, if the line is not UTF-8, not a JSON object or not exactly one of the kinds, if a
/// value has the wrong type, or for keys that would change what is learned (line_keys.h).
Example parse_example(std::string_view line, const std::string& location);

/// These keys of a line, and those of its messages that the chat template does not read, for
/// messages to the user.
std::vector<std::string> unread_names(const std::vector<std::string>& line_keys,
                                      const std::vector<std::string>& message_keys,
                                      const std::optional<ChatTemplate>& chat);

/// Encodes examples as documents of tokens.
class ExampleEncoder {
 public:
  /// `chat` may be empty if no example has messages. learns_all: data.train_on_prompt.
  explicit ExampleEncoder(std::shared_ptr<const Tokenizer> tokenizer,
                          std::optional<ChatTemplate> chat = {}, bool learns_all = false);

  /// A text or prompt begins with the begin-of-text token, and a text or completion ends with the
  /// end-of-text token, which is learned too, if the tokenizer has these tokens. Throws UsageError,
  /// beginning with `location`, for messages that the template refuses, and for those that say that
  /// they are not learned if all are.
  ChatTemplate::Rendered encode(const Example& example, const std::string& location) const;

  std::string fingerprint() const;

  /// The keys of an example that neither this program nor the chat template reads, for messages.
  std::vector<std::string> unread_keys(const Example& example) const;

  /// The warning that the chat template teaches no end of an answer; "" if it does.
  std::string warning() const;

 private:
  ChatTemplate::Rendered answer(const Example& example, const std::string& location) const;

  std::shared_ptr<const Tokenizer> tokenizer_;
  std::optional<ChatTemplate> chat_;
  bool learns_all_;
};

/// The files that the paths or patterns of data.jsonl name, in order. A folder stands for its files
/// of lines and rows (is_json_lines()). Throws UsageError if it has none.
std::vector<std::string> example_files(const std::vector<std::string>& paths);

/// The kind of a JSONL file's first example. Throws UsageError as parse_example() does, or if there
/// is no example.
Example::Kind kind_of_examples(const std::string& file);

/// The keys that `keys_of_line` finds in the first lines of a JSONL file (4 MiB), each once.
std::vector<std::string> unread_keys(
    const std::string& file,
    const std::function<std::vector<std::string>(const Line&)>& keys_of_line);

/// Whether the first line of a JSONL file is a conversation, or a prompt and a completion.
bool holds_answers(const std::string& file);

/// Encodes the lines of JSONL files, also compressed ones (text_reader.h), as documents, one per
/// line, in order; skips empty lines. The document of an example that lacks an answer is empty.
/// The cache keeps the documents for later runs, in CachedParts. Encodes with all cores; memory: a
/// few times 8 MB per core. Throws UsageError, with "FILE:LINE", as parse_example() and
/// ExampleEncoder::encode() do, and if a line is of another kind than the first.
std::shared_ptr<const Documents> encode_examples(const std::vector<std::string>& files,
                                                 const ExampleEncoder& encoder,
                                                 const TokenCache& cache,
                                                 const TokenizeReport& report);

}  // namespace axonn
