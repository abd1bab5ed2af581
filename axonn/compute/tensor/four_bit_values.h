#pragma once

#include "axonn/compute/tensor/dtype.h"

namespace axonn {

/// The values of the codes of nf4, of fp4, of mxfp4, and of iq4_nl and iq4_xs.
struct FourBitValues {
  /// values[code]. A GPU chooses among registers; an array with an index that is not known to the
  /// compiler would lie in memory there.
  AXONN_DEVICE static constexpr float chosen(const float (&values)[16], unsigned code) {
#if AXONN_GPU_CODE
    float eight[8], four[4];
    for (int i = 0; i < 8; ++i) eight[i] = (code & 8) != 0 ? values[i + 8] : values[i];
    for (int i = 0; i < 4; ++i) four[i] = (code & 4) != 0 ? eight[i + 4] : eight[i];
    const float low = (code & 2) != 0 ? four[2] : four[0],
                high = (code & 2) != 0 ? four[3] : four[1];
    return (code & 1) != 0 ? high : low;
#else
    return values[code];
#endif
  }
  AXONN_DEVICE static constexpr float nf4(unsigned code) {
    constexpr float kValues[] = {-1.0f,
                                 -0.6961928009986877f,
                                 -0.5250730514526367f,
                                 -0.39491748809814453f,
                                 -0.28444138169288635f,
                                 -0.18477343022823334f,
                                 -0.09105003625154495f,
                                 0.0f,
                                 0.07958029955625534f,
                                 0.16093020141124725f,
                                 0.24611230194568634f,
                                 0.33791524171829224f,
                                 0.44070982933044434f,
                                 0.5626170039176941f,
                                 0.7229568362236023f,
                                 1.0f};
    return chosen(kValues, code);
  }
  AXONN_DEVICE static constexpr float fp4(unsigned code) {
    constexpr float kValues[] = {
        0.0f,  0.0625f / 12,  8.0f / 12,  1.0f,  4.0f / 12,  0.5f,  2.0f / 12,  3.0f / 12,
        -0.0f, -0.0625f / 12, -8.0f / 12, -1.0f, -4.0f / 12, -0.5f, -2.0f / 12, -3.0f / 12};
    return chosen(kValues, code);
  }
  /// Code 8 is 0, not -0, as the package gguf has it.
  AXONN_DEVICE static constexpr float mxfp4(unsigned code) {
    constexpr float kValues[] = {0.0f, 0.5f,  1.0f,  1.5f,  2.0f,  3.0f,  4.0f,  6.0f,
                                 0.0f, -0.5f, -1.0f, -1.5f, -2.0f, -3.0f, -4.0f, -6.0f};
    return chosen(kValues, code);
  }
  AXONN_DEVICE static constexpr float iq4(unsigned code) {
    constexpr float kValues[] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                 1,    13,   25,  38,  53,  69,  89,  113};
    return chosen(kValues, code);
  }
};

}  // namespace axonn
