#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "axonn/use/infer/evaluate.h"

namespace axonn {

/// Parses a sampling policy: "greedy", or temperature, top-k and top-p as in "t=0.7,k=40,p=0.9", of
/// which those that are left out are 1, all and 1. Throws UsageError, beginning with `where`, for
/// other texts and for values out of range.
SamplingPolicy parse_policy(const std::string& text, const std::string& where);
std::vector<SamplingPolicy> parse_policies(std::span<const std::string> texts,
                                           const std::string& where);

/// The n and p of (n, p)-extraction, see least_log10_p(); both ascend.
struct ExtractionGrid {
  std::vector<double> n = {1, 10, 1e2, 1e3, 1e4, 1e5, 1e6}, p = {0.1, 0.5, 0.9, 0.999};

  /// The p of tables that have one: 0.5, or the first if it is not among them.
  double shown_p() const;
};
/// Throws UsageError unless both have values that ascend, n from 1 on and p between 0 and 1.
/// n_name, p_name: what a user sets, for messages.
ExtractionGrid extraction_grid(std::span<const std::int64_t> n, std::span<const double> p,
                               const std::string& n_name, const std::string& p_name);

/// Throws UsageError, naming what a user sets, if a further length of suffixes is there twice.
void check_suffixes(std::span<const std::int64_t> further, std::int64_t main,
                    const std::string& name);

/// The figures of a suffix that follow from the records of its tokens, without generation. Source:
/// Hayes et al., "Measuring memorization in language models via probabilistic extraction", 2024,
/// arXiv:2410.19482.
struct SuffixRecord {
  /// By policy: log10 of the probability that a sample is the suffix; minus infinity: never.
  std::vector<double> log10_p;
  bool greedy_exact = false;   ///< greedy decoding writes the suffix: all ranks are 1
  double greedy_accuracy = 0;  ///< share of tokens that are greedy after the true ones before them
  /// 1 - k / length, where k is the least number of tokens after which all are greedy.
  double extraction_strength = 0;
};

/// Throws Error if there are no tokens.
SuffixRecord suffix_record(std::span<const TargetRecord> suffix);

/// A text of probability p_z is (n, p)-extractable if among n samples it is with probability p at
/// least once: 1 - (1 - p_z)^n >= p.
///
/// log10 of the least p_z that is. Throws Error unless n >= 1 and 0 < p < 1.
double least_log10_p(double n, double p);
/// The least n for a text of this log10 p_z; infinite for probability 0.
double least_tries(double log10_p, double p);

}  // namespace axonn
