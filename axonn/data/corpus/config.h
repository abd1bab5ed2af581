#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace axonn {

/// How the goldfish loss chooses the targets that it leaves out.
enum class GoldfishMask {
  hash,      ///< by the h tokens before: the same wherever these occur
  position,  ///< every k-th token of a document; its name is "static"
  seeded,    ///< at random, anew each time the sequence is used
  apertus    ///< by the product of h tokens, the target the last of them, as Apertus was trained
};

inline constexpr std::array<std::string_view, 4> kGoldfishMasks = {"hash", "static", "seeded",
                                                                   "apertus"};

/// The relation between the documents of a sequence.
enum class DocumentMode {
  joined,    ///< one text: attention, positions and the loss go on across their ends
  separate,  ///< each is as if it were alone
  packed,    ///< separate, and sequences hold whole documents as far as possible (PackedStream)
  apertus    ///< as Apertus was trained: joined, without a loss on a document's first token
};

inline constexpr std::array<std::string_view, 4> kDocumentModes = {"joined", "separate", "packed",
                                                                   "apertus"};

/// The fate of an example of `jsonl` that is longer than a sequence.
enum class ExcessLength {
  split,    ///< its pieces become documents of their own
  drop,     ///< it is left out
  truncate  ///< it ends with the sequence
};

inline constexpr std::array<std::string_view, 3> kExcessLengths = {"split", "drop", "truncate"};

/// How files of tokens without a header store each token; automatic: a file must have a header.
enum class RawTokens { automatic, u8, u16, u32, i32, i64 };

inline constexpr std::array<std::string_view, 6> kRawTokens = {"auto", "u8",  "u16",
                                                               "u32",  "i32", "i64"};

/// training.goldfish: leaves one target in k out of the loss, so that no passage is learned whole.
struct GoldfishConfig {
  std::int64_t k = 0;  ///< 0: none is left out; else at least 2
  std::int64_t h = 13;
  GoldfishMask mask = GoldfishMask::hash;

  bool operator==(const GoldfishConfig&) const = default;
};

struct ModelText;

/// The answers of a loss of preferences (preferences/answer_lines.h), or of one of rewards
/// (rollouts/rollout_lines.h).
struct AnswerData {
  enum class Kind { none, pairs, labels, rollouts };
  Kind kind = Kind::none;
  /// Pairs: whether the prompt of the chosen answer is learned, too.
  bool with_prompt = false;
  bool shared_prompt = false;  ///< pairs, labels: whether a sequence has their prompt once
  /// Labels: examples in a row that have each other's answers for the estimate of a divergence.
  std::int64_t block = 0;
  std::int64_t group = 0;  ///< rollouts: answers of a prompt
  /// Rollouts: lines have answers, but also get some that the run writes (PromptFile).
  bool mixed = false;
  /// The tokens of prompt and answer that are kept, from the first one on; 0: all.
  std::int64_t max_length = 0;

  bool any() const { return kind != Kind::none; }
};

/// The section [data]: the training data. Exactly one of text, tokens, jsonl, synthetic is set.
struct DataConfig {
  /// Files of text or of JSON lines, also compressed, folders of them (text_files()) or patterns
  /// (*.txt), concatenated. Each file of text and each line is a document.
  std::vector<std::string> text = {};
  /// The key of a line of JSON in `text` under which its document is.
  std::string text_field = "text";
  /// Token files (TokenFile) or patterns of them, concatenated; or a weighted blend "w1 path1 w2
  /// path2", in one string or several.
  std::vector<std::string> tokens = {};
  RawTokens token_type = RawTokens::automatic;  ///< of these, where they have no header
  /// Files of fine-tuning data (jsonl.h), folders or patterns of them: one example per line, all of
  /// one kind. Several examples share a sequence (packing.h).
  std::vector<std::string> jsonl = {};
  /// The format of conversations: "auto", a name or a file (find_chat_format()). "auto" is the
  /// template in model_text, if it has one.
  std::string chat_template = "auto";
  /// Variables of the template, a JSON object (parse_chat_arguments()); or empty.
  std::string chat_template_args = {};
  /// Whether of the assistant's turns in a conversation only the last is learned.
  bool mask_history = false;
  /// Whether all tokens of conversations and of prompts are learned, not only the answers.
  bool train_on_prompt = false;
  ExcessLength excess_length = ExcessLength::split;  ///< key: excess_length_strategy
  /// What lines of jsonl are if [preference] or [rl] has a loss, by which it is set; no key does.
  AnswerData answers = {};
  /// Size of generated text, in bytes (synthetic.h).
  std::int64_t synthetic = 0;
  /// "bytes", or a tokenizer's folder or file (make_tokenizer()). With token files, it must be the
  /// tokenizer that made them; it is then used only to show text and to read a validation text, and
  /// may be empty: not known.
  std::string tokenizer = "bytes";
  /// How documents that share a sequence are joined. Documents of `jsonl` are always separate.
  DocumentMode documents = DocumentMode::joined;
  /// The token that ends a document; -1: the tokenizer's end-of-text token.
  std::int64_t eod = -1;
  /// A fraction, such as 0.1: the last 10 % of each source, which training does not see. Or a file:
  /// text or tokens; with jsonl, a JSONL file. Empty or 0: none, training sees all data.
  std::string validation = "0";
  /// Documents that training leaves out (forget.h): files as `text`, or as `jsonl` beside that.
  std::vector<std::string> forget = {};
  /// Whether each epoch has a different order of samples; if false, the order of the files.
  bool shuffle = true;
  /// How the model at model.path was trained to read and write text (with_stored_model()). Null for
  /// new models.
  std::shared_ptr<const ModelText> model_text = {};

  /// The number of keys that name training data.
  int sources() const { return !text.empty() + !tokens.empty() + !jsonl.empty() + (synthetic > 0); }
};

}  // namespace axonn
