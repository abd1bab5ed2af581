#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>

namespace axonn::cluster {

/// What a run has noted of a step: its loss, the norm of its gradients, its validation loss.
using StepValues = std::map<std::string, double>;

/// The lines of a run's metrics.jsonl by their steps.
std::map<std::int64_t, StepValues> noted_steps(const std::string& run);

/// Hashes of a checkpoint's files with values, by their names; empty if there is no such folder.
std::map<std::string, std::uint64_t> hashes_of(const std::string& checkpoint);

/// The step behind the last occurrence of `before` in a text; -1: none.
std::int64_t step_after(const std::string& text, const std::string& before);

/// The first difference, in words; "" if the values are equal, or differ by at most `tolerance`
/// of them. Steps and values that only the second has are differences if `complete`.
std::string difference(const std::map<std::int64_t, StepValues>& got,
                       const std::map<std::int64_t, StepValues>& want, double tolerance,
                       bool complete);

}  // namespace axonn::cluster
