#include "axonn/study/audit.h"

#include <fmt/format.h>

#include "axonn/base/clock.h"
#include "axonn/base/log.h"

namespace axonn {

namespace {

std::string found_note(const char* what, const FoundDocuments& documents) {
  std::string note = fmt::format("{} of {} {} were tested", documents.documents.size(),
                                 format_count(documents.found), what);
  if (documents.too_short > 0) note += fmt::format("; {} are too short", documents.too_short);
  if (documents.repeated > 0) note += fmt::format("; {} are duplicates", documents.repeated);
  return note;
}

}  // namespace

MemorizationReport audit_model(LoadedModel& model, const Tokenizer& tokenizer,
                               const FoundDocuments& documents, const FoundDocuments& control,
                               const ReciteOptions& options) {
  std::vector<StudyDocument> all = documents.documents;
  all.insert(all.end(), control.documents.begin(), control.documents.end());
  std::vector<std::int64_t> groups(documents.documents.size(), 0);
  groups.resize(all.size(), 1);

  MemorizationReport report;
  report.title = "Memorization audit";
  report.suffix_tokens = options.suffix_tokens;
  report.prompt_lengths = options.prompt_lengths;
  report.groups = {"documents"};
  report.group_sizes = {std::ssize(documents.documents)};
  report.notes = {found_note("documents", documents)};
  if (!control.documents.empty()) {
    report.groups.push_back("control");
    report.group_sizes.push_back(std::ssize(control.documents));
    report.notes.push_back(found_note("control documents", control));
  }
  for (const StudyDocument& document : all) report.document_names.push_back(document.name);

  const double start = now_seconds();
  RecitationRun run{.variant = "", .trial = 1, .seed = 0};
  run.recitations = recite(model, tokenizer, all, groups, options);
  run.test_seconds = now_seconds() - start;
  report.runs.push_back(std::move(run));
  return report;
}

}  // namespace axonn
