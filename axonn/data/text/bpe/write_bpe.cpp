#include "axonn/data/text/bpe/write_bpe.h"

#include <vector>

#include <nlohmann/json.hpp>

#include "axonn/foundation/base/check.h"

namespace axonn {

namespace {

using nlohmann::json;

/// The tokens as the file writes them, by their ids.
std::vector<std::string> written_tokens(const BpeVocab& vocab) {
  std::vector<std::string> tokens;
  for (const std::string& token : vocab.tokens) tokens.push_back(bpe_characters(token));
  for (const AddedToken& token : vocab.added_tokens) tokens[token.id] = token.content;
  return tokens;
}

}  // namespace

std::string to_tokenizer_json(const BpeVocab& vocab) {
  AXONN_CHECK(vocab.pattern == kGpt2Pattern && vocab.words == BpeWords::pattern &&
                  vocab.characters.empty() && vocab.normalizer.empty() && vocab.spacing.empty(),
              "to_tokenizer_json: ", vocab.name, " is not GPT-2's kind of BPE");
  const std::vector<std::string> tokens = written_tokens(vocab);
  json ids = json::object(), merges = json::array(), added = json::array();
  for (std::size_t id = 0; id < tokens.size(); ++id) ids[tokens[id]] = id;
  for (const BpeMerge& merge : vocab.merges)
    merges.push_back(tokens[merge.left] + ' ' + tokens[merge.right]);
  for (const AddedToken& token : vocab.added_tokens)
    added.push_back({{"id", token.id},
                     {"content", token.content},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false},
                     {"special", token.special}});
  const json byte_level{{"type", "ByteLevel"},
                        {"add_prefix_space", false},
                        {"trim_offsets", true},
                        {"use_regex", true}};
  return json{{"version", "1.0"},
              {"truncation", nullptr},
              {"padding", nullptr},
              {"added_tokens", added},
              {"normalizer", nullptr},
              {"pre_tokenizer", byte_level},
              {"post_processor", nullptr},
              {"decoder", byte_level},
              {"model",
               {{"type", "BPE"},
                {"dropout", nullptr},
                {"unk_token", nullptr},
                {"continuing_subword_prefix", nullptr},
                {"end_of_word_suffix", nullptr},
                {"fuse_unk", false},
                {"byte_fallback", false},
                {"ignore_merges", false},
                {"vocab", ids},
                {"merges", merges}}}}
             .dump(1) +
         "\n";
}

std::string to_tokenizer_config(const BpeVocab& vocab) {
  // GPT2Tokenizer adds <|endoftext|> to a vocabulary without it.
  json config{{"tokenizer_class", vocab.end_of_text ? "GPT2Tokenizer" : "PreTrainedTokenizerFast"},
              {"add_bos_token", !vocab.begin_of_text.empty()},
              {"add_prefix_space", false},
              {"clean_up_tokenization_spaces", false}};
  for (const AddedToken& token : vocab.added_tokens) {
    if (token.id == vocab.end_of_text) config["eos_token"] = token.content;
    if (vocab.begin_of_text == std::vector{token.id}) config["bos_token"] = token.content;
  }
  return config.dump(2) + "\n";
}

}  // namespace axonn
