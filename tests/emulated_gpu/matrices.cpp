#include "tests/emulated_gpu/matrices.h"

#include <bit>

namespace emulated_gpu {

namespace {

float half(std::uint32_t word, int which) {
  return std::bit_cast<float>(which == 0 ? word << 16 : word & 0xffff0000u);
}

template <int cols>
void multiply(float (&c)[16][cols], const float (&a)[16][16], const float (&b)[16][cols]) {
  for (int row = 0; row < 16; ++row)
    for (int k = 0; k < 16; ++k)
      for (int col = 0; col < cols; ++col) c[row][col] += a[row][k] * b[k][col];
}

}  // namespace

// PTX ISA, "Matrix Fragments for mma.m16n8k16 with floating point type".
void multiply_32(const FragmentsOf& of) {
  float a[16][16], b[16][8], c[16][8];
  for (int lane = 0; lane < 32; ++lane) {
    const Fragments& own = of(lane);
    const int row = lane / 4, pair = lane % 4 * 2;
    for (int i = 0; i < 8; ++i)
      a[row + i / 2 % 2 * 8][pair + i / 4 * 8 + i % 2] = half(own.a[i / 2], i % 2);
    for (int i = 0; i < 4; ++i) b[pair + i / 2 * 8 + i % 2][row] = half(own.b[i / 2], i % 2);
    for (int i = 0; i < 4; ++i) c[row + i / 2 * 8][pair + i % 2] = own.c[i];
  }
  multiply(c, a, b);
  for (int lane = 0; lane < 32; ++lane)
    for (int i = 0; i < 4; ++i) of(lane).c[i] = c[lane / 4 + i / 2 * 8][lane % 4 * 2 + i % 2];
}

// AMD matrix instruction calculator, --detail-instruction for cdna2 and cdna3: A[i][k] is in lane
// 16 · (k / 4) + i, B[k][j] in 16 · (k / 4) + j, both as half k % 4; D[i][j] is in lane
// 16 · (i / 4) + j, as number i % 4.
void multiply_64(const FragmentsOf& of) {
  float a[16][16], b[16][16], c[16][16];
  for (int lane = 0; lane < 64; ++lane)
    for (int i = 0; i < 4; ++i) {
      const Fragments& own = of(lane);
      const int first = lane % 16, second = lane / 16 * 4 + i;
      a[first][second] = half(own.a[i / 2], i % 2);
      b[second][first] = half(own.b[i / 2], i % 2);
      c[second][first] = own.c[i];
    }
  multiply(c, a, b);
  for (int lane = 0; lane < 64; ++lane)
    for (int i = 0; i < 4; ++i) of(lane).c[i] = c[lane / 16 * 4 + i][lane % 16];
}

}  // namespace emulated_gpu
