#pragma once

// The fields of a run's results in JSON, for their writer and their reader: each function calls
// f(key, value) for each field, in the order of the file.

#include <string>

#include "axonn/foundation/base/check.h"
#include "axonn/use/memorize/report/report.h"

namespace axonn {

/// Of a recitation, without what it may lack.
template <typename R, typename F>
void visit_recitation(R& r, const F& f) {
  f("document", r.document);
  f("group", r.group);
  f("prompt", r.prompt);
  f("exact", r.exact);
  f("longest_run", r.longest_run);
  f("token_accuracy", r.token_accuracy);
  f("edit_distance", r.edit_distance);
  f("loss", r.loss);
  f("before", r.texts->before);
  f("truth", r.texts->truth);
  f("written", r.texts->written);
}

/// Visits the values of a suffix's record but its probabilities, and the scores of its document.
template <typename R, typename F>
void visit_record(R& record, const F& f) {
  f("greedy_exact", record.greedy_exact);
  f("greedy_accuracy", record.greedy_accuracy);
  f("extraction_strength", record.extraction_strength);
}
/// Those that need references only if there are some: `has` says so by the name.
template <typename S, typename H, typename F>
void visit_scores(S& scores, const H& has, const F& f) {
  for (std::size_t i = 0; i < kScores.size(); ++i) {
    const auto& [name, member] = kScores[i];
    const std::string key = concat("score_", name);
    if (i < kScoresWithoutReferences || has(key.c_str(), scores.*member))
      f(key.c_str(), scores.*member);
  }
}

template <typename E, typename F>
void visit_exposure(E& exposure, const F& f) {
  f("canary_rank", exposure.rank);
  f("canary_candidates", exposure.candidates);
}

template <typename I, typename F>
void visit_information(I& information, const F& f) {
  f("random_bits", information.bits);
  f("coded_bits", information.coded);
}

template <typename N, typename F>
void visit_near(N& near, const F& f) {
  f("epsilon", near.epsilon);
  f("log10_low", near.log10_low);
  f("log10_high", near.log10_high);
}

template <typename N, typename F>
void visit_near_samples(N& near, const F& f) {
  f("samples", near.samples);
  f("found", near.found);
}

/// Visits the fields of a run but its policies and recitations.
template <typename R, typename F>
void visit_run(R& run, const F& f) {
  f("variant", run.variant);
  f("trial", run.trial);
  f("seed", run.seed);
  f("validation_loss", run.validation_loss);
  f("kept_fraction", run.kept_fraction);
  f("train_seconds", run.train_seconds);
  f("test_seconds", run.test_seconds);
}

}  // namespace axonn
