#pragma once

#include <cstdint>
#include <limits>

#include "axonn/ops/rowwise/matrix.h"

namespace axonn::cpu {

/// A team of one thread: its members are the lanes of a vector register. Bodies take values, and
/// get() and put() turn elements into floats and back, which is what lets g++ vectorise them.
struct Team {
  template <typename F, typename... In>
  float sum(int count, F f, const In*... in) const {
    float total = 0;
#pragma omp simd reduction(+ : total)
    for (int i = 0; i < count; ++i) total += f(get(in[i])...);
    return total;
  }

  /// For sums over more than a row, where a float's 24 bits would not do.
  template <typename F, typename... In>
  double sum_double(int count, F f, const In*... in) const {
    double total = 0;
#pragma omp simd reduction(+ : total)
    for (int i = 0; i < count; ++i) total += f(static_cast<double>(get(in[i]))...);
    return total;
  }

  template <typename F, typename... In>
  int count_if(int count, F f, const In*... in) const {
    int total = 0;
#pragma omp simd reduction(+ : total)
    for (int i = 0; i < count; ++i) total += f(get(in[i])...) ? 1 : 0;
    return total;
  }

  /// -infinity if there is none. NaN elements are passed over.
  template <typename In>
  float max(int count, const In* in) const {
    float most = -std::numeric_limits<float>::infinity();
#pragma omp simd reduction(max : most)
    for (int i = 0; i < count; ++i) {
      const float value = get(in[i]);
      most = value > most ? value : most;
    }
    return most;
  }

  template <typename Out, typename F, typename... In>
  void map(Out* out, int count, F f, const In*... in) const {
#pragma omp simd
    for (int i = 0; i < count; ++i) put(out[i], f(get(in[i])...));
  }

  /// The body returns a Pair; either may be written over what it is made from.
  template <typename Out, typename F, typename... In>
  void map_pair(Out* first, Out* second, int count, F f, const In*... in) const {
#pragma omp simd
    for (int i = 0; i < count; ++i) {
      const rowwise::Pair pair = f(get(in[i])...);
      put(first[i], pair.first);
      put(second[i], pair.second);
    }
  }

  /// The body takes the index first.
  template <typename Out, typename F, typename... In>
  void map_indexed(Out* out, int count, F f, const In*... in) const {
#pragma omp simd
    for (int i = 0; i < count; ++i) put(out[i], f(i, get(in[i])...));
  }

  /// Updates a, b and c in one pass and writes out: the body takes the three by reference and the
  /// values of `in`, and returns what out becomes.
  template <typename Out, typename F, typename... In>
  void update(Out* out, float* a, float* b, float* c, int count, F f, const In*... in) const {
#pragma omp simd
    for (int i = 0; i < count; ++i) {
      float x = a[i], y = b[i], z = c[i];
      put(out[i], f(x, y, z, get(in[i])...));
      a[i] = x;
      b[i] = y;
      c[i] = z;
    }
  }

  /// out[c] = sum over rows [begin, end), in order, of f(row, in.row(row)[c]...), c below count.
  template <typename F, typename... In>
  void column_sums(float* out, int count, std::int64_t begin, std::int64_t end, F f,
                   rowwise::Matrix<In>... in) const {
    map(out, count, [] { return 0.0f; });
    for (std::int64_t r = begin; r < end; ++r)
      map(
          out, count, [=](float sum, auto... x) { return sum + f(r, x...); }, out, in.row(r)...);
  }

  /// Calls f(i) for every i below count.
  template <typename F>
  void each(int count, F f) const {
    for (int i = 0; i < count; ++i) f(i);
  }

  template <typename F>
  void once(F f) const {
    f();
  }
};

}  // namespace axonn::cpu
