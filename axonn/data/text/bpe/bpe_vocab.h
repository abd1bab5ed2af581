#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "axonn/data/text/byte_characters.h"
#include "axonn/data/text/text_steps.h"
#include "axonn/data/text/unigram.h"
#include "axonn/data/text/word_splits.h"

namespace axonn {

struct TokenizerConfig;

/// Joins two neighbouring tokens into one.
struct BpeMerge {
  std::int32_t left, right, result;
};

/// How a text is cut into words; merges stay within a word.
enum class BpeWords {
  pattern,   ///< the matches of a pattern, and the text between two matches
  at_marks,  ///< before every U+2581, which stands for a space
  whole,     ///< the text is one word
  splits,    ///< by several patterns, or by one in another way
};

/// A BPE tokenizer as its files define it.
struct BpeVocab {
  std::string name;                 ///< for messages
  std::uint64_t fingerprint = 0;    ///< hash of everything that determines encoding
  std::vector<std::string> tokens;  ///< decoded bytes of each token
  std::vector<BpeMerge> merges;     ///< in order of preference

  // The initial tokens of a word, before merges.
  /// The token of each character (UTF-8); empty in a byte-level vocabulary, whose words are bytes.
  std::unordered_map<std::string, std::int32_t> characters = {};
  /// The token of each single byte, -1 if it has none: for the bytes of a byte-level word, and for
  /// those of a character that has no token. Empty, or one has none: it becomes `unknown`.
  std::vector<std::int32_t> byte_tokens = {};
  std::int32_t unknown = -1;  ///< -1: unknown characters are left out
  bool fuse_unknown = false;  ///< several unknown characters in a row are one token
  /// Words that become a token without merges.
  std::vector<std::pair<std::string, std::int32_t>> whole_words = {};
  /// If set, words are cut by it, and not merged.
  std::shared_ptr<const Unigram> unigram = {};

  // Changes to a text before it is cut into words.
  std::vector<TextStep> normalizer = {};  ///< applied before the search for normalized added tokens
  std::vector<TextStep> spacing = {};     ///< applied after that
  BpeWords words = BpeWords::pattern;
  std::string pattern = {};  ///< matches a word; in Oniguruma's syntax (word_pattern.h)
  std::vector<WordSplit> splits = {};
  std::vector<AddedToken> added_tokens = {};

  std::vector<std::int32_t> begin_of_text = {};
  std::optional<std::int32_t> end_of_text = {};
  bool puts_space = false;              ///< decoding removes a space from the front of a text
  std::vector<std::string> notes = {};  ///< as Tokenizer::notes()
};

/// The pattern of GPT-2's words: the ending of an English contraction; a run of letters, of digits
/// or of other characters, each with an optional space before it; or white space. Source: Radford
/// et al., "Language models are unsupervised multitask learners", 2019.
extern const std::string_view kGpt2Pattern;

/// The tokenizer "bytes" as a byte-level BPE without merges.
BpeVocab bytes_as_bpe();
/// Whether a vocabulary, also one that is read from files, is that tokenizer.
bool is_bytes(const BpeVocab& vocab);

/// Reads GPT-2's byte-level BPE: folder/vocab.json, an object that maps tokens to the ids 0 .. n -
/// 1, and folder/merges.txt, with a line "left right" for each merge after an optional first line
/// "#version". folder/tokenizer_config.json may name the tokens that are no text, and put one
/// before each text, as OPT's does. Throws UsageError with the file, the line and the fault; also
/// if it names a class whose pattern is not GPT-2's, or tokens that there are not.
BpeVocab read_bpe_vocab(const std::string& folder);

/// Reads tokenizer.json of Hugging Face's tokenizers library, with tokenizer_config.json beside it
/// for the tokens that begin and end a text.
///
///   part            supported
///   model           BPE: merges as "a b" or ["a", "b"], byte_fallback, unk_token, fuse_unk,
///                   ignore_merges; Unigram
///   normalizer      none, Lowercase, NFC, NFD, NFKC, NFKD, Prepend, Replace, Strip, StripAccents,
///                   a Sequence of these
///   pre_tokenizer   none, ByteLevel, CharDelimiterSplit, Digits, Metaspace, Punctuation, Split,
///                   WhitespaceSplit, a Sequence of these
///   decoder         ByteLevel, Metaspace, or a Sequence of Replace, ByteFallback, Strip, Fuse
///   post_processor  none, ByteLevel, TemplateProcessing with tokens before the text and one behind
///                   it, RobertaProcessing, BertProcessing, a Sequence
///   added_tokens    with single_word, lstrip and rstrip
///
/// That covers the published files of DeepSeek, Falcon, Gemma, GPT-2, Llama 2 and 3, Mistral, Phi,
/// Qwen2, 2.5 and 3, SmolLM and StarCoder 2. Ids are equal to those of the library 0.23. Ignores
/// truncation and padding, which concern batches. Throws UsageError for anything else, with the
/// file and the location in it ("tokenizer.json: pre_tokenizer.pretokenizers[0].behavior"); also
/// for a key that it does not know, unless it is null, false or empty.
BpeVocab read_tokenizer_json(const std::string& path);
/// The same of a text, which `location` names in messages; `config` is what its
/// tokenizer_config.json says.
BpeVocab parse_tokenizer_json(std::string_view text, const std::string& location,
                              const TokenizerConfig& config);

}  // namespace axonn
