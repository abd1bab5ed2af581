#include "axonn/text/word_tokens.h"

#include "axonn/base/utf8.h"

namespace axonn {

WordTokens::WordTokens(const BpeVocab& vocab) : vocab_(vocab) {
  ascii_.fill(-1);
  for (const auto& [character, token] : vocab.characters)
    if (character.size() == 1 && static_cast<unsigned char>(character[0]) < ascii_.size())
      ascii_[static_cast<unsigned char>(character[0])] = token;
  if (!vocab.words_first) return;
  for (std::size_t i = 0; i < vocab.tokens.size(); ++i)
    words_.emplace(vocab.tokens[i], static_cast<std::int32_t>(i));
  for (const AddedToken& token : vocab.added_tokens) words_.erase(token.content);
}

WordTokens::State WordTokens::append(std::string_view word,
                                     std::vector<std::int32_t>& tokens) const {
  if (!words_.empty()) {
    if (const auto found = words_.find(word); found != words_.end()) {
      tokens.push_back(found->second);
      return State::whole;
    }
  }
  if (!vocab_.characters.empty()) {
    append_characters(word, tokens);
  } else {
    for (char c : word) tokens.push_back(vocab_.byte_tokens[static_cast<unsigned char>(c)]);
  }
  return State::mergeable;
}

void WordTokens::append_characters(std::string_view word, std::vector<std::int32_t>& tokens) const {
  bool after_unknown = false;
  while (!word.empty()) {
    const Utf8Front front = utf8_front(word);
    const auto first = static_cast<unsigned char>(word[0]);
    std::int32_t token = -1;
    if (first < ascii_.size()) {
      token = ascii_[first];
    } else if (const auto found = vocab_.characters.find(std::string(word.substr(0, front.bytes)));
               front.kind == Utf8Front::Kind::complete && found != vocab_.characters.end()) {
      token = found->second;
    }
    const bool unknown = token < 0 && vocab_.byte_tokens.empty();
    if (token >= 0) {
      tokens.push_back(token);
    } else if (!unknown) {
      for (char c : word.substr(0, front.bytes))
        tokens.push_back(vocab_.byte_tokens[static_cast<unsigned char>(c)]);
    } else if (!after_unknown || !vocab_.fuse_unknown) {
      tokens.push_back(vocab_.unknown);
    }
    after_unknown = unknown;
    word.remove_prefix(front.bytes);
  }
}

}  // namespace axonn
