#pragma once

#include <string>
#include <vector>

#include "axonn/study/recite.h"

namespace axonn {

/// What is asked of a model that somebody trained.
struct AuditOptions {
  std::int64_t suffix_tokens = 50;
  std::vector<std::int64_t> prompt_lengths = {kWholePrompt};
  std::int64_t batch = 0;  ///< this and the next: as ReciteOptions
  bool hold_weights = true;
  std::function<void(std::int64_t done, std::int64_t of)> report = {};
  std::string model;  ///< one line about it, for the report
};

/// Which of these documents can the model recite, and how does it do on controls, which it cannot
/// have seen? Two groups, "documents" and, if there are any, "control". Collective; the same on
/// every rank. Errors: as recite().
MemorizationReport audit(Session& session, const Tokenizer& tokenizer,
                         const StudyDocuments& documents, const StudyDocuments& control,
                         const AuditOptions& options);

}  // namespace axonn
