// Stands for sentencepiece_tokenizer.cpp in a build without the SentencePiece library.
#include "axonn/data/text/sentencepiece/sentencepiece_tokenizer.h"
#include "axonn/foundation/base/check.h"

namespace axonn {

std::string sentencepiece_library() {
  return "none: tokenizer.model is refused; tokenizer.json needs no SentencePiece";
}

std::shared_ptr<const Tokenizer> make_sentencepiece_tokenizer(const std::string& path) {
  refuse(path,
         ": a model of SentencePiece, and this build has no SentencePiece: install "
         "libsentencepiece-dev and configure with -DAXONN_SENTENCEPIECE=ON, or use the model's "
         "tokenizer.json");
}

}  // namespace axonn
