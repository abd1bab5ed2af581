#pragma once

#include <array>
#include <span>
#include <string>
#include <string_view>

namespace axonn {

/// U+2581, which stands for a space in SentencePiece's vocabularies.
inline constexpr std::string_view kSpaceMark = "\u2581";

/// One change that a tokenizer makes to a text before it cuts it into words.
struct TextStep {
  enum class Kind {
    nfc,              ///< Unicode's composed normal form; bytes that are no UTF-8 stay
    replace,          ///< every `from` becomes `to`
    prepend,          ///< `to` before a text that is not empty
    prepend_missing,  ///< the same, unless the text begins with it
    prepend_first,    ///< the same, only where nothing stands before, no added token either
  };
  Kind kind;
  std::string from = {}, to = {};
};

/// What stands before a piece of text. Nothing is prepended where text does.
enum class Before { nothing, added_token, text };

/// Room for the changed text, kept from text to text.
using TextBuffers = std::array<std::string, 2>;

/// The text after all steps: the text itself where they change nothing, else in one of the buffers.
std::string_view apply_steps(std::span<const TextStep> steps, std::string_view text, Before before,
                             TextBuffers& buffers);

}  // namespace axonn
