#include <cmath>

#include "axonn/ops/cuda/cuda_backend.cuh"
#include "axonn/ops/cuda/launch.cuh"
#include "axonn/ops/operand_checks.h"
#include "axonn/ops/rowwise/columns.h"
#include "axonn/ops/rowwise/dropout.h"
#include "axonn/ops/rowwise/elementwise.h"
#include "axonn/ops/rowwise/rotary.h"
#include "axonn/ops/rowwise/swiglu.h"

namespace axonn::cuda {

namespace {

template <typename F>
void unary(cudaStream_t stream, View out, View inp) {
  flatten(out, inp);
  with_type(out.dtype, [&]<typename Out>(Out) {
    with_type(inp.dtype, [&]<typename In>(In) {
      launch_tiles(stream, out.rows, out.cols, kTile,
                   rowwise::Unary<F, Out, In>{matrix<Out>(out), matrix<const In>(inp)});
    });
  });
}

template <typename F>
void binary(cudaStream_t stream, View out, View a, View b) {
  flatten(out, a, b);
  with_type(out.dtype, [&]<typename Out>(Out) {
    with_type(a.dtype, [&]<typename A>(A) {
      with_type(b.dtype, [&]<typename B>(B) {
        launch_tiles(stream, out.rows, out.cols, kTile,
                     rowwise::Binary<F, Out, A, B>{matrix<Out>(out), matrix<const A>(a),
                                                   matrix<const B>(b)});
      });
    });
  });
}

/// out[row] += bias.
template <typename Out, typename B>
struct AddBias {
  Matrix<Out> out;  // (R, C)
  const B* bias;    // (C)

  template <typename Team>
  AXONN_DEVICE void operator()(const Team& team, Tile tile) const {
    Out* y = out.row(tile.row) + tile.begin;
    team.map(y, tile.count, rowwise::Add{}, y, bias + tile.begin);
  }
};

/// The term of column_sum: the element itself.
struct ValueTerm {
  AXONN_DEVICE rowwise::Identity operator()(std::int64_t) const { return {}; }
};

}  // namespace

__global__ void add_rows(float* out, const float* partial, std::int64_t blocks, std::int64_t C) {
  const std::int64_t c = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (c >= C) return;
  float sum = out[c];
#pragma unroll 8
  for (std::int64_t b = 0; b < blocks; ++b) sum += partial[b * C + c];
  out[c] = sum;
}

void launch_add_rows(cudaStream_t stream, float* out, const Matrix<float>& partial,
                     std::int64_t blocks, std::int64_t C) {
  constexpr int kThreads = 64;  // small blocks, so that few columns occupy more multiprocessors
  if (C == 0) return;
  add_rows<<<grid_of(tiles_of(C, kThreads)), kThreads, 0, stream>>>(out, partial.data, blocks, C);
  check(cudaGetLastError());
}

void add_bias(Stream& stream, const View& out, const View& bias) {
  with_type(out.dtype, [&]<typename Out>(Out) {
    with_type(bias.dtype, [&]<typename B>(B) {
      launch_tiles(handle_of(stream), out.rows, out.cols, kTile,
                   AddBias<Out, B>{matrix<Out>(out), bias.as<const B>()});
    });
  });
}

void CudaBackend::gelu(View out, View inp) {
  check_elementwise("gelu", out, "inp", inp);
  unary<rowwise::Gelu>(stream(), out, inp);
}

void CudaBackend::gelu_backward(View d_inp, View d_out, View inp) {
  check_elementwise("gelu_backward", d_inp, "d_out", d_out);
  check_elementwise("gelu_backward", d_inp, "inp", inp);
  binary<rowwise::GeluGradient>(stream(), d_inp, d_out, inp);
}

void CudaBackend::add(View out, View a, View b) {
  check_elementwise("add", out, "a", a);
  check_elementwise("add", out, "b", b);
  binary<rowwise::Add>(stream(), out, a, b);
}

void CudaBackend::cast(View out, View inp) {
  check_elementwise("cast", out, "inp", inp);
  unary<rowwise::Identity>(stream(), out, inp);
}

void CudaBackend::column_sum(View out, View inp) {
  check_column_sum(out, inp);
  const std::int64_t blocks = tiles_of(inp.rows, rowwise::kRowBlock), C = inp.cols;
  const Matrix<float> partial{scratch_.take<float>(blocks * C), C};
  with_type(inp.dtype, [&]<typename T>(T) {
    launch_column_partials(
        stream(), inp.rows, C,
        rowwise::ColumnPartials<ValueTerm, T>{partial, inp.rows, {}, {matrix<const T>(inp)}});
  });
  launch_add_rows(stream(), out.as<float>(), partial, blocks, C);
}

void CudaBackend::dropout(const axonn::Dropout& args) {
  check_dropout(args);
  with_type(args.inp.dtype, [&]<typename T>(T) {
    launch_tiles(
        stream(), args.inp.rows, args.inp.cols, kTile,
        rowwise::DropoutKernel<T>{
            matrix<T>(args.out), matrix<const T>(args.inp), args.key,
            static_cast<std::uint64_t>(args.first_row), static_cast<std::uint32_t>(args.first_col),
            static_cast<std::uint32_t>(std::lround(args.probability * (1 << 24))),
            args.scale / (1 - args.probability)});
  });
}

void CudaBackend::rotary_embedding(const RotaryEmbedding& args) {
  check_rotary_embedding(args);
  const View &inp = args.inp, &table = args.table;
  const auto D = static_cast<int>(table.cols), heads = static_cast<int>(inp.cols / D);
  with_type(inp.dtype, [&]<typename T>(T) {
    launch_rows(stream(), inp.rows, D / 2,  // a head at a time
                rowwise::RotaryKernel<T>{matrix<T>(args.out), matrix<const T>(inp),
                                         matrix<const float>(table), table.rows, heads, D,
                                         args.inverse ? -1.0f : 1.0f,
                                         args.positions.as<const std::int32_t>()});
  });
}

void CudaBackend::swiglu(View out, View inp) {
  check_swiglu(out, inp);
  with_type(inp.dtype, [&]<typename T>(T) {
    launch_tiles(stream(), out.rows, out.cols, kTile,
                 rowwise::SwigluForward<T>{matrix<T>(out), matrix<const T>(inp), out.cols});
  });
}

void CudaBackend::swiglu_backward(View d_inp, View d_out, View inp) {
  check_swiglu_backward(d_inp, d_out, inp);
  with_type(inp.dtype, [&]<typename T>(T) {
    launch_tiles(stream(), d_out.rows, d_out.cols, kTile,
                 rowwise::SwigluBackward<T>{matrix<T>(d_inp), matrix<const T>(d_out),
                                            matrix<const T>(inp), d_out.cols});
  });
}

}  // namespace axonn::cuda
