#pragma once

#include <string>
#include <string_view>

namespace axonn {

/// The maker of the cards that a build computes on, in words for its user.
struct CardPlatform {
  std::string_view device;         ///< the parallelism.device that asks for cards
  std::string_view name;           ///< "CUDA"
  std::string_view maker;          ///< "NVIDIA"
  std::string_view units;          ///< what a card has many of: "multiprocessors"
  std::string_view collectives;    ///< "NCCL"
  std::string_view visible_cards;  ///< what of the environment hides cards
  std::string_view option;         ///< CMake's, that builds for these cards
  std::string_view needs;          ///< what is there where that option may be ON
};

inline constexpr CardPlatform kCuda = {.device = "cuda",
                                       .name = "CUDA",
                                       .maker = "NVIDIA",
                                       .units = "multiprocessors",
                                       .collectives = "NCCL",
                                       .visible_cards = "CUDA_VISIBLE_DEVICES",
                                       .option = "AXONN_CUDA",
                                       .needs = "nvcc, cuBLASLt and NCCL"};
inline constexpr CardPlatform kHip = {.device = "hip",
                                      .name = "HIP",
                                      .maker = "AMD",
                                      .units = "compute units",
                                      .collectives = "RCCL",
                                      .visible_cards =
                                          "ROCR_VISIBLE_DEVICES or "
                                          "HIP_VISIBLE_DEVICES",
                                      .option = "AXONN_HIP",
                                      .needs = "ROCm with hipBLASLt and RCCL"};

/// This build's; null where it is built without cards.
const CardPlatform* card_platform();

/// What a driver says that shows no card.
struct NoCard {
  std::string built_with;  ///< "13.0": what this build is of
  std::string driver;      ///< "12.4": the newest that the driver runs; "": there is no driver
  std::string error;       ///< the driver's own words
  bool too_old = false;    ///< the driver, for this build
};

/// Why there is no card, and what to do.
std::string trouble_of(const CardPlatform& platform, const NoCard& answer);

/// Why a build for `built` (null: without cards) does not compute on `wanted`'s cards, and what to
/// do; "": it does.
std::string trouble_of_build(const CardPlatform& wanted, const CardPlatform* built);

}  // namespace axonn
