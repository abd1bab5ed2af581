#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "axonn/text/text_steps.h"

namespace axonn {

/// Joins two neighbouring tokens into one.
struct BpeMerge {
  std::int32_t left, right, result;
};

/// How a text is cut into words; merges stay within a word.
enum class BpeWords {
  pattern,   ///< the matches of a pattern, and the text between two matches
  at_marks,  ///< before every U+2581, which stands for a space
  whole,     ///< the text is one word
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
  /// The token of each single byte: for the bytes of a byte-level word, and for those of a
  /// character that has no token. Empty: such a character becomes `unknown`.
  std::vector<std::int32_t> byte_tokens = {};
  std::int32_t unknown = 0;
  bool fuse_unknown = false;  ///< several unknown characters in a row are one token
  bool words_first = false;   ///< a word that is a token becomes that token, without merges

  // Changes to a text before it is cut into words.
  std::vector<TextStep> normalizer = {};  ///< applied before the search for normalized added tokens
  std::vector<TextStep> spacing = {};     ///< applied after that
  BpeWords words = BpeWords::pattern;
  std::string pattern = {};  ///< matches a word; in Oniguruma's syntax (word_pattern.h)
  std::vector<AddedToken> added_tokens = {};

  std::optional<std::int32_t> begin_of_text = {}, end_of_text = {};
  bool puts_space = false;              ///< decoding removes a space from the front of a text
  std::vector<std::string> notes = {};  ///< as Tokenizer::notes()
};

/// The pattern of GPT-2's words: the ending of an English contraction; a run of letters, of digits
/// or of other characters, each with an optional space before it; or white space. Source: Radford
/// et al., "Language models are unsupervised multitask learners", 2019.
extern const std::string_view kGpt2Pattern;

/// The character that stands for a byte in a byte-level vocabulary, in UTF-8. Printable Latin-1
/// characters stand for their own byte; the other bytes are U+0100, U+0101, ... in order (a space
/// is U+0120). Source: as above.
std::string bpe_character(unsigned char byte);

/// These characters of all bytes of a token.
std::string bpe_characters(std::string_view bytes);

/// The tokenizer "bytes" as a byte-level BPE without merges.
BpeVocab bytes_as_bpe();
/// Whether a vocabulary, also one that is read from files, is that tokenizer.
bool is_bytes(const BpeVocab& vocab);

/// Reads GPT-2's byte-level BPE: folder/vocab.json, an object that maps tokens to the ids 0 .. n -
/// 1, and folder/merges.txt, with a line "left right" for each merge after an optional first line
/// "#version". Throws UsageError with the file, the line and the fault; also if
/// folder/tokenizer_config.json names a class whose pattern is not GPT-2's.
BpeVocab read_bpe_vocab(const std::string& folder);

/// Reads tokenizer.json of Hugging Face's tokenizers library, with tokenizer_config.json beside it
/// for the tokens that begin and end a text.
///
///   part            supported
///   model           BPE: merges as "a b" or ["a", "b"], byte_fallback, unk_token, fuse_unk,
///                   ignore_merges
///   normalizer      none, NFC, Prepend, Replace of a string, a Sequence of these
///   pre_tokenizer   none, ByteLevel, Split by a regular expression (Isolated) and then ByteLevel,
///                   Metaspace
///   decoder         ByteLevel, Metaspace, or a Sequence of Replace, ByteFallback, Fuse, Strip,
///                   in this order
///   post_processor  none, ByteLevel, TemplateProcessing with one token before the text, a Sequence
///   added_tokens    without single_word, lstrip and rstrip
///
/// That covers the published files of GPT-2, Llama 2 and 3, Mistral, Qwen2, 2.5 and 3. Ignores
/// truncation and padding, which concern batches. Throws UsageError for anything else, with the
/// file and the place in it ("tokenizer.json: pre_tokenizer.pretokenizers[0].behavior"); also for a
/// key that it does not know, unless it is null, false or empty.
BpeVocab read_tokenizer_json(const std::string& path);

}  // namespace axonn
