#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "axonn/data/text/tokenizer.h"
#include "axonn/run/load/loaded_model.h"
#include "axonn/use/memorize/documents.h"
#include "axonn/use/memorize/near.h"
#include "axonn/use/memorize/recite.h"

namespace axonn {

/// Throws UsageError if near texts are asked for and the first policy keeps all of a vocabulary of
/// more than 4,096 tokens.
void check_near(const ReciteOptions& options, std::int64_t vocab);

/// Sets Recitation::near of those with the whole prompt, for each distance of options.near: the
/// bounds, and with options.near.samples also the samples that are so near. Sample i of document d
/// is drawn as Generator draws with options.near.seed and stream d · samples + i. Each next token
/// of a beam, or of samples with one prefix, costs a pass over one token where the cache still
/// holds its text.
/// Collective; the same on every rank. Throws UsageError as check_near(). Does nothing without
/// distances. Returns the number of values that it has set, bounds and then counts of samples: the
/// first of options.kept, which are not computed again, and of options.part.
std::int64_t add_near(LoadedModel& model, const Tokenizer& tokenizer,
                      const StudyDocuments& documents, const ReciteOptions& options,
                      std::span<Recitation> recitations);

}  // namespace axonn
