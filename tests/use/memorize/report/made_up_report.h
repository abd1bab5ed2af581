#pragma once

#include <algorithm>
#include <cmath>
#include <string>

#include "axonn/use/memorize/report/report.h"

namespace axonn::testing_support {

/// A recitation of 10 tokens whose longest run is `run`; exact if `run` is 10.
inline Recitation recited(std::int64_t document, std::int64_t group, std::int64_t run,
                          std::int64_t prompt = 0) {
  return {.document = document,
          .group = group,
          .prompt = prompt,
          .exact = run == 10,
          .longest_run = run,
          .token_accuracy = static_cast<double>(run) / 10,
          .edit_distance = 10 - run,
          .loss = 3 - 0.25 * static_cast<double>(run),
          .texts = RecitationTexts{
              .before = "So ends the prompt of document " + std::to_string(document),
              .truth = "and so it goes on to its end",
              .written = run == 10 ? "and so it goes on to its end" : "and so it stops at an end"}};
}

/// Two groups of two documents, two variants, two trials, one prompt length. Exact recitations by
/// trial: standard: control 0 0, learned 1 2; goldfish: none.
inline MemorizationReport small_study() {
  const auto run = [](const char* variant, std::int64_t trial, std::vector<std::int64_t> runs) {
    RecitationRun one{
        .variant = variant, .trial = trial, .seed = 40 + static_cast<std::uint64_t>(trial)};
    one.validation_loss = 2.5 + 0.25 * static_cast<double>(trial);
    one.kept_fraction = std::string(variant) == "goldfish" ? 0.5 : 1;
    one.train_seconds = 100;
    one.test_seconds = 10;
    for (std::int64_t document = 0; document < 4; ++document)
      one.recitations.push_back(recited(document, document / 2, runs[document]));
    return one;
  };
  return {.title = "Memorization study",
          .model = "gpt, 1.2 million parameters",
          .notes = {"Four documents are learned.", "They are made up."},
          .groups = {"control", "6 epochs"},
          .group_sizes = {2, 2},
          .group_epochs = {0, 6},
          .controls = {0, 0},
          .document_names = {"Alder", "Birch", "Cedar", "Dogwood"},
          .suffix_tokens = 10,
          .prompt_lengths = {kWholePrompt},
          .runs = {run("standard", 1, {1, 0, 10, 4}), run("standard", 2, {2, 1, 10, 10}),
                   run("goldfish", 1, {1, 0, 3, 2}), run("goldfish", 2, {0, 1, 2, 5})},
          .origin = {.program = "axonn 1.2.3",
                     .command = "axonn memorize 'a study.toml'",
                     .date = "2026-11-21 18:02:11 UTC",
                     .machine = "2 ranks on node7: a processor, 2 cores",
                     .config = "[model]\nlayers = 4\n"}};
}

/// One run over two groups of two documents with three prompt lengths, the whole prompt first.
/// Exact recitations of the first group with 8, 32 and all tokens: 0, 1, 2; of the second: none.
inline MemorizationReport small_audit() {
  RecitationRun run{.variant = "", .trial = 1, .seed = 7, .test_seconds = 3};
  const std::int64_t runs[3][4] = {{10, 10, 2, 1}, {4, 2, 1, 0}, {10, 6, 1, 1}};
  for (std::int64_t prompt = 0; prompt < 3; ++prompt)
    for (std::int64_t document = 0; document < 4; ++document)
      run.recitations.push_back(recited(document, document / 2, runs[prompt][document], prompt));
  return {.title = "Memorization audit",
          .model = "gpt, 1.2 million parameters",
          .groups = {"asked", "controls"},
          .group_sizes = {2, 2},
          .controls = {1, 1},
          .document_names = {"alder.txt", "birch.txt", "cedar.txt", "dogwood.txt"},
          .suffix_tokens = 10,
          .prompt_lengths = {kWholePrompt, 8, 32},
          .runs = {run}};
}

/// small_audit() with two policies and scores. With the first policy log10 p of the documents asked
/// is -0.5 - 2 · (their number), of the controls -30; with the second all are 0. Texts within a
/// distance of 2 are 10 to 1,000 times as likely as the suffixes.
inline MemorizationReport recorded_audit() {
  MemorizationReport report = small_audit();
  RecitationRun& run = report.runs[0];
  run.policies = {"t=1,k=40", "t=1"};
  run.readings = {{.document = 0,
                   .tokens = {"The ", "end", " of", " it"},
                   .log_p = {std::log(.95), std::log(.3), std::log(.0005)},
                   .rank = {1, 2, 1700},
                   .log_q = {-0.5, -1.25, -INFINITY},
                   .extracted = {{1, 3}}}};
  for (Recitation& r : run.recitations) {
    const auto number = static_cast<double>(r.document);
    r.record = SuffixRecord{.log10_p = {r.group == 0 ? -0.5 - 2 * number : -30, -INFINITY},
                            .greedy_exact = r.exact,
                            .greedy_accuracy = r.token_accuracy,
                            .extraction_strength = r.token_accuracy / 2};
    if (r.prompt > 0) continue;
    const double log10_p = r.record->log10_p[0];
    r.near = {{2, std::min(log10_p + 1, 0.0), std::min(log10_p + 3, 0.0), 100, 20}};
    r.scores = MembershipScores{
        .loss = -number, .zlib = -number / 8, .min_k = -2 * number, .min_k_pp = -3 * number};
  }
  return report;
}

/// recorded_audit() by a reference under which each document asked costs 0.5 nats a token more, and
/// the controls as much.
inline MemorizationReport audit_with_reference() {
  MemorizationReport report = recorded_audit();
  for (Recitation& r : report.runs[0].recitations)
    if (r.scores) r.scores->ratio = r.group == 0 ? 0.5 : 0;
  return report;
}

/// recorded_audit() whose shorter prompts, of 8 tokens, begin 20 tokens after the document's
/// beginning, where they have the worst matches, and at it. Rates for n = 3 and 50, p = 0.25.
inline MemorizationReport swept_audit() {
  MemorizationReport report = recorded_audit();
  report.prompt_lengths = {kWholePrompt, 8, 8};
  report.prompt_offsets = {kBeforeSuffix, 20, 0};
  report.extraction = {.n = {3, 50}, .p = {0.25}};
  return report;
}

/// recorded_audit() whose suffixes also have 4 tokens after the whole prompt, of which no document
/// matches; in place of prompts of 32 tokens.
inline MemorizationReport suffixes_audit() {
  MemorizationReport report = recorded_audit();
  report.prompt_lengths = {kWholePrompt, kWholePrompt, 8};
  report.prompt_offsets = {kBeforeSuffix, kBeforeSuffix, kBeforeSuffix};
  report.prompt_suffixes = {10, 4, 10};
  return report;
}

/// A control, and buckets in two parts of the steps, with records and a curve of two points.
/// The documents of the last bucket are canaries. Those and the controls hold 80 bits, of which a
/// model of 1,000 parameters holds 0, 0, 80 and 60.
inline MemorizationReport arms_study() {
  MemorizationReport report = small_study();
  report.groups = {"control", "early-2", "early-8", "late-8"};
  report.group_sizes = {2, 2, 2, 2};
  report.group_epochs = {0, 2, 8, 8};
  report.group_designs = {{0.2, 1}, {0.2, 0.5}, {0.2, 0.5}, {0.8, 1}};
  report.controls = {0, 0, 0, 0};
  report.exposures = {{}, {}, {3, 4}, {3, 5}, {3}, {3}, {18}, {19}};
  report.document_names = {"a", "b", "c", "d", "e", "f", "g", "h"};
  report.runs.resize(1);
  RecitationRun& run = report.runs[0];
  run.policies = {"t=1,k=40"};
  run.recitations.clear();
  for (std::int64_t d = 0; d < 8; ++d) {
    run.recitations.push_back(recited(d, d / 2, d < 5 ? 1 : 10));
    run.recitations.back().record = SuffixRecord{.log10_p = {d < 5 ? -20.0 : -1.0}};
  }
  run.recitations[6].exposure = Exposure{.rank = 1, .candidates = 1000};
  run.recitations[7].exposure = Exposure{.rank = 250, .candidates = 1000};
  report.parameters = 1000;
  for (std::int64_t d : {0, 1, 6, 7})
    run.recitations[d].information =
        Information{.bits = 80, .coded = d < 2 ? 90.0 : 20.0 * (d - 6)};
  report.references.groups = {
      {.group = 3,
       .documents = 2,
       .references = 8,
       .memorized = {.nats = 0.25, .error = 0.06},
       .lira =
           LiraDecisions{
               .auc_mean = .75, .auc_least = .5, .auc_most = 1, .right = .625, .flips = .375}},
      {.group = 2, .documents = 2, .references = 8, .memorized = {.nats = 0.5, .error = 0.125}}};
  report.references.documents = {{.group = 3, .document = 6, .memorized = {.nats = .5}}};
  report.references.pairs = {
      {.influence = {.of = 6, .on = 7, .mean = {.nats = 1.5, .error = .5}, .deviations = 3}}};
  const std::vector<bool> none(8, false);
  std::vector<bool> late = none;
  late[6] = late[7] = true;
  run.curve = {
      {.step = 10, .loss = std::vector(8, 3.0), .log10_p = std::vector(8, -9.0), .exact = none},
      {.step = 20, .loss = std::vector(8, 4.0), .log10_p = std::vector(8, -8.0), .exact = late}};
  return report;
}

}  // namespace axonn::testing_support
