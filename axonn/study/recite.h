#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "axonn/data/tokenizer.h"
#include "axonn/study/documents.h"
#include "axonn/study/recitation.h"
#include "axonn/train/session.h"

namespace axonn {

struct ReciteOptions {
  std::int64_t suffix_tokens = 50;
  std::vector<std::int64_t> prompt_lengths = {kWholePrompt};  ///< as MemorizationReport's
  std::int64_t batch = 0;    ///< sequences of a (z, data) coordinate at a time; 0: as memory allows
  bool hold_weights = true;  ///< as Generator::Options has it
  /// Called on rank 0 when so many of all questions have been answered.
  std::function<void(std::int64_t done, std::int64_t of)> report = {};
};

/// Asks a model to go on, greedily, from every document's tokens before the suffix, or the last so
/// many of them behind the tokenizer's beginning of text; and scores the true suffix after the same
/// prompt. groups: of each document. One recitation a document and prompt length, the documents of
/// the first length first; a document that is too short for a length has none of it.
///
/// Collective over the session's ranks; the same on every one, up to ties within rounding.
/// Errors: UsageError if a document is longer than the model's positions; as score().
std::vector<Recitation> recite(Session& session, const Tokenizer& tokenizer,
                               std::span<const StudyDocument> documents,
                               std::span<const std::int64_t> groups, const ReciteOptions& options);

}  // namespace axonn
