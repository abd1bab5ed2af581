#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "axonn/run/config/config.h"

namespace axonn {

/// [memorize]: the memorization study.
struct MemorizeConfig {
  std::vector<std::string> documents = {};        ///< JSONL files; empty: generated records
  std::int64_t bucket_size = 200;                 ///< documents
  std::vector<std::int64_t> epochs = {1, 4, 6};   ///< per bucket; the control bucket has 0
  std::int64_t suffix_tokens = 50;                ///< to recite
  std::vector<std::int64_t> prompt_lengths = {};  ///< tokens, in addition to the whole document
  std::int64_t trials = 3;
  std::vector<std::string> losses = {kStandardLoss, kGoldfishLoss};
  std::vector<std::string> policies = {"t=1,k=40", "t=1"};  ///< see parse_policy()
  std::int64_t batch = 0;    ///< documents that a (z, data) coordinate recites at a time; 0: auto
  bool hold_weights = true;  ///< keep weights gathered over z while reciting

  static constexpr const char* kStandardLoss = "standard";
  static constexpr const char* kGoldfishLoss = "goldfish";

  /// Whether the goldfish loss is among the losses.
  bool has_goldfish() const;
  bool operator==(const MemorizeConfig&) const = default;
};

/// The section [memorize] of a configuration, with its values in `memorize`.
FurtherSection memorize_section(
    std::shared_ptr<MemorizeConfig> memorize = std::make_shared<MemorizeConfig>());

/// Throws UsageError, naming the keys, if [memorize] contradicts itself or other sections.
void validate_study(const Config& config, const MemorizeConfig& memorize);

}  // namespace axonn
