#pragma once

#include "axonn/study/recite.h"

namespace axonn {

/// Tests which of these documents a trained model can recite, and how well it recites controls:
/// documents that it cannot have seen. The report has the group "documents" and, if there are
/// controls, the group "control"; it does not describe the model. Collective; the result is the
/// same on every rank. Throws as recite().
MemorizationReport audit_model(LoadedModel& model, const Tokenizer& tokenizer,
                               const FoundDocuments& documents, const FoundDocuments& control,
                               const ReciteOptions& options);

}  // namespace axonn
