#pragma once

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "axonn/data/corpus/blanks.h"
#include "axonn/data/corpus/corpus.h"

namespace axonn {

/// Leaves the documents of data.forget out of the training data (Blanks): finds all their exact
/// copies, also within longer texts, and sets Corpus::forgotten and the blanks of streams or
/// examples. A document is one of data.text, without the tokens that begin and end it, or, beside
/// data.jsonl, an example. Documents that are found nowhere stay in `forgotten` without
/// occurrences: see refuse_unknown_documents(). Validation data stay as they are.
///
/// Reads all training data once. Throws UsageError for a document without tokens, or with too few
/// to be told from other text, for data that are still being written, without a tokenizer, or for
/// the answers of [preference] and [rl].
void forget_documents(const DataConfig& config, Corpus& corpus);

/// Corpus::forgotten; empty if it is null.
std::span<const ForgottenDocument> forgotten_of(const Corpus& corpus);

/// The corpus with only those of its forgotten documents left out for which `which` holds.
Corpus with_blanks(Corpus corpus, const std::function<bool(const ForgottenDocument&)>& which);

/// Throws UsageError, with the names of the documents of data.forget that none of these corpora,
/// the stages of a run, has in its training data.
void refuse_unknown_documents(const std::vector<std::shared_ptr<const Corpus>>& stages);

}  // namespace axonn
