#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "axonn/data/text/tokenizer.h"
#include "axonn/run/load/loaded_model.h"
#include "axonn/use/memorize/documents.h"
#include "axonn/use/memorize/recite.h"

namespace axonn {

/// Among which texts a canary is ranked: those whose last digits are others.
struct CanarySpace {
  std::int64_t digits = 0;  ///< 0: the document is no canary
  std::int64_t others = 0;  ///< number of other texts, drawn without repetition; 0: all
  std::uint64_t seed = 1;   ///< of the draw

  /// With the canary itself.
  std::int64_t candidates() const;
  bool operator==(const CanarySpace&) const = default;
};

/// The other texts. Throws Error if the text has no run of so many digits.
std::vector<std::string> other_canaries(const std::string& text, const CanarySpace& space);

/// The rank of the first of these losses: 1 + how many of the others are not larger.
std::int64_t rank_of_first(std::span<const double> losses);

/// Documents, and the space of each.
struct SpacedDocuments {
  std::span<const StudyDocument> documents;
  std::span<const CanarySpace> spaces;
};

/// Sets Recitation::exposure of canaries with the whole prompt, by the losses of all tokens from
/// the first on that any of its candidates changes. Costs a forward pass
/// over each candidate. Collective; the same on every rank, and on every grid but for losses that
/// are equal within rounding. Throws Error if a document is not the whole text of a canary.
/// Source: Carlini et al., "The Secret Sharer", 2019, arXiv:1802.08232.
void add_exposure(LoadedModel& model, const Tokenizer& tokenizer, const SpacedDocuments& of,
                  const ReciteOptions& options, std::span<Recitation> recitations);

}  // namespace axonn
