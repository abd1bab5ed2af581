#pragma once

#include <string>
#include <vector>

#include "axonn/study/recite.h"

namespace axonn {

/// Options of audit().
struct AuditOptions {
  std::int64_t suffix_tokens = 50;
  std::vector<std::int64_t> prompt_lengths = {kWholePrompt};
  std::int64_t batch = 0;  ///< batch and hold_weights: as in ReciteOptions
  bool hold_weights = true;
  std::function<void(std::int64_t done, std::int64_t of)> report = {};
  std::string model;  ///< one-line description of the model, for the report
};

/// Tests which of these documents a trained model can recite, and how well it recites controls:
/// documents that it cannot have seen. The report has the group "documents" and, if there are
/// controls, the group "control". Collective; the result is the same on every rank. Throws as
/// recite().
MemorizationReport audit(LoadedModel& model, const Tokenizer& tokenizer,
                         const StudyDocuments& documents, const StudyDocuments& control,
                         const AuditOptions& options);

}  // namespace axonn
