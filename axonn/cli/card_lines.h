#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "axonn/tensor/card_platform.h"
#include "axonn/tensor/cuda_device.h"

namespace axonn {

/// What info says of the cards, as pairs of a word and a text: in the words of the platform that
/// the build is for (null: for none).
std::vector<std::pair<std::string_view, std::string>> card_lines(const CardPlatform* platform,
                                                                 const CudaStatus& status);

}  // namespace axonn
