#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "axonn/compute/ops/operations.h"
#include "axonn/compute/tensor/arena.h"
#include "axonn/compute/tensor/device.h"
#include "axonn/compute/tensor/dtype.h"
#include "axonn/compute/tensor/tensor.h"

namespace axonn {

/// out = op(a) · op(b) (+ bias) (+ out). (M, N) = (M, K) · (K, N), sums in f32.
///
/// a, b and bias (1, N) are all f32, all bf16 or all f16; out has their type or is f32.
///
/// The fields below `accumulate` are the epilogue: work on the result, or on a, that some devices
/// fuse into the product. At most one of gelu, gelu_derivative_at and accumulate may be set.
struct Matmul {
  View out;  ///< (M, N)
  View a;    ///< (M, K), or (K, M) if transposed
  View b;    ///< (K, N), or (N, K) if transposed
  bool a_transposed = false;
  bool b_transposed = false;
  View bias = {};           ///< (1, N) or empty
  bool accumulate = false;  ///< out += instead of out =

  bool gelu = false;     ///< out = gelu(the product with its bias)
  View gelu_input = {};  ///< (M, N) of out's type: receives GELU's input; or empty
  /// (M, N) of out's type: out is multiplied by GELU's derivative at these values, which are the
  /// gelu_input of the forward product; or empty. Not with a bias.
  View gelu_derivative_at = {};
  /// (1, M) f32: the sum over a's K rows is added to it; or empty. In the product of a weight's
  /// gradient that sum is the gradient of the bias. a must be transposed.
  View bias_gradient = {};

  static constexpr std::string_view kName = "matmul";
  static constexpr std::uint32_t kAlsoWrites = 0b1010000;
  static constexpr auto kKind = OperationKind::product;
  auto operands() const {
    return std::array{out, a, b, bias, gelu_input, gelu_derivative_at, bias_gradient};
  }
};

/// out = a · bᵀ (+ bias) as a Matmul, to the bit, of a matrix b (N, K) that is kept as codes: its
/// values are those of ops::Dequantize in a's type.
struct QuantizedMatmul {
  View out;                 ///< (M, N) of a's type or f32
  View a;                   ///< (M, K), K a multiple of the form's unit
  View records;             ///< (1, form.bytes(N · K)) u8, row after row of b
  QuantizedForm form = {};  ///< of the records
  View bias = {};           ///< (1, N) or empty

  static constexpr std::string_view kName = "quantized_matmul";
  auto operands() const { return std::array{out, a, records, bias}; }
};

/// Up to this many rows a CPU computes a product with a matrix stored (N, K) by reading the matrix
/// as one stream. Found with GPT-2's products beside oneDNN's, in f32 and bf16; at 64 rows it
/// depends on the product.
inline constexpr std::int64_t kFewRows = 48;
/// Whether it reads the codes in such a product: of few rows, each row of b whole records.
inline bool cpu_reads_codes(const QuantizedMatmul& args) {
  return args.out.rows <= kFewRows && args.a.cols % args.form.unit == 0;
}

/// A product without its addresses: what the best way to compute it depends on.
struct MatmulShape {
  std::int64_t M = 0, N = 0, K = 0;
  bool a_transposed = false, b_transposed = false, bias = false, accumulate = false;
  DType type = DType::f32, out_type = DType::f32;
  bool gelu = false, gelu_input = false, gelu_derivative = false, bias_gradient = false;

  double flops() const {
    return 2.0 * static_cast<double>(M) * static_cast<double>(N) * static_cast<double>(K);
  }
  auto operator<=>(const MatmulShape&) const = default;
};

MatmulShape shape_of(const Matmul& args);

/// "NT", "TN": whether a and b are transposed, in BLAS notation.
std::string mode_of(const MatmulShape& shape);

/// "bf16 NT 1024x2304x768 + bias", "f32 TN 768x3072x1024 +=", "bf16 NT 256x50304x768 to f32".
/// With an epilogue: "+ bias gelu", "gelu kept" (with gelu_input), "d_gelu", "+= d_bias".
std::string to_string(const MatmulShape& shape);
/// The shape for which to_string() gives this text; nothing for any other text.
std::optional<MatmulShape> parse_matmul_shape(std::string_view text);

/// Queries at consecutive positions, and in consecutive rows of each sequence.
struct QueryRun {
  std::int64_t first_position = 0;
  std::int64_t rows = 0;
  auto operator<=>(const QueryRun&) const = default;
};

/// The queries of each sequence as runs, one after another, if they are few; else empty.
struct QueryRuns {
  static constexpr int kMost = 2;
  std::array<QueryRun, kMost> runs{};
  int count = 0;

  /// The runs of `blocks`, the blocks of kSequenceBlock positions of `sequences` sequences, as
  /// positions among the keys, whose first has position `first_key`.
  static QueryRuns of(std::span<const std::int32_t> blocks, std::int64_t sequences,
                      std::int64_t first_key = 0);
};

/// Causal attention over heads, grouped key-value heads included.
///
/// Query head j uses key-value head (first_query + j) / group of k and v. Rows are sequences one
/// after another: T rows of k and v each, and Tq rows of q, which are T without query_blocks.
/// Columns are heads one after another, `head_dim` each.
///
/// The results of a row do not depend, to the bit, on which other rows are in the call. (On GPUs,
/// what is neither bf16 nor of heads of width 64 or 128 is computed by products of a library, whose
/// last bits may depend on the number of rows.)
struct Attention {
  View q;                        ///< (B·Tq, h·D)
  View k, v;                     ///< (B·T, k·D)
  View out;                      ///< (B·Tq, h·D)
  View stats;                    ///< (B·Tq, h) f32: log of the sum of exponentials, for backward
  std::int64_t positions = 0;    ///< T
  std::int64_t heads = 0;        ///< h, query heads here
  std::int64_t head_dim = 0;     ///< D
  std::int64_t group = 1;        ///< query heads that share a key-value head
  std::int64_t first_query = 0;  ///< index of query head 0 within its group
  std::int64_t window = 0;       ///< keys that a query sees, its own the last; 0: all
  float scale = 1;               ///< factor of the scores, usually 1 / sqrt(D)
  float cap = 0;                 ///< scaled scores s become cap · tanh(s / cap); 0: they stay
  /// (1, B·Tq) i32: the position in its sequence, 0 to its own, where each row's document begins.
  /// The row sees no key before it. Empty: 0.
  View starts = {};
  /// (1, B·Tq/64) i32: the block of kSequenceBlock positions of its sequence at which each block of
  /// query rows lies, ascending within a sequence; T and Tq are then multiples of kSequenceBlock.
  /// Empty: the queries are those of all positions, in order.
  View query_blocks = {};
  /// The runs of query_blocks, on the host, for kernels that need them; empty: none are known.
  QueryRuns runs = {};
  /// attention_pairs() of the queries, for counts of flops; 0: half of T for each row of q.
  std::int64_t pairs = 0;

  /// B.
  std::int64_t sequences() const { return k.rows / positions; }
  /// Tq.
  std::int64_t queries() const { return query_blocks.data ? q.rows / sequences() : positions; }

  static constexpr std::string_view kName = "attention";
  static constexpr std::uint32_t kAlsoWrites = 0b10000;
  static constexpr auto kKind = OperationKind::attention;
  auto operands() const { return std::array{out, q, k, v, stats, starts, query_blocks}; }
};

/// The number of pairs of a query and a key that one head computes for the queries of these blocks
/// of kSequenceBlock positions, as flops are counted: the causal half, so T² / 2 for all blocks of
/// a sequence. window: as in Attention.
std::int64_t attention_pairs(std::span<const std::int32_t> blocks, std::int64_t window = 0);

/// Flops of Q·Kᵀ and of P·V over the causal half. The gradients take 2.5 times as many.
double attention_flops(const Attention& args);

/// The gradients of Attention; d_q, d_k and d_v are overwritten. With query_blocks, d_k and d_v are
/// the parts that these queries contribute: 0 for a key that none of them sees.
struct AttentionBackward {
  Attention forward;
  View d_out;     ///< (B·Tq, h·D)
  View d_q;       ///< (B·Tq, h·D)
  View d_k, d_v;  ///< (B·T, k·D) of q's type or f32, both of the same

  static constexpr std::string_view kName = "attention_backward";
  static constexpr std::uint32_t kAlsoWrites = 0b110;
  static constexpr auto kKind = OperationKind::attention;
  auto operands() const {
    return std::array{
        d_q,       d_k,         d_v,           d_out,          forward.q,           forward.k,
        forward.v, forward.out, forward.stats, forward.starts, forward.query_blocks};
  }
};

/// Attention of new tokens to the cached keys and values of their sequences, their own included:
/// row r sees its own position and those before it, which must all be in the cache, or the last
/// `window` of them. Rows of a negative slot become zero.
struct CachedAttention {
  View q;                     ///< (R, h·D)
  View keys, values;          ///< (slots · k · entries, D), or codes, as in KeepHeads
  View out;                   ///< (R, h·D)
  View stats = {};            ///< (R, h) f32: log of the sum of exponentials; or empty
  View slots, positions;      ///< (1, R) i32, as in KeepHeads
  std::int64_t entries = 0;   ///< positions that a slot has room for
  std::int64_t longest = 0;   ///< every position is less than this
  std::int64_t heads = 0;     ///< h, query heads here
  std::int64_t kv_heads = 0;  ///< k
  std::int64_t head_dim = 0;  ///< D; the rest as in Attention
  std::int64_t group = 1;
  std::int64_t first_query = 0;
  std::int64_t window = 0;
  bool chunks = false;  ///< positions are in chunks of `window`; a row sees those of its own chunk
  float scale = 1;
  float cap = 0;

  static constexpr std::string_view kName = "cached_attention";
  static constexpr std::uint32_t kAlsoWrites = 0b10000;
  auto operands() const { return std::array{out, q, keys, values, stats, slots, positions}; }
};

/// An operation of a program's own, which code of the host computes. `compute` gets the same views
/// in the same order, and reads and writes them as any memory; results may be read, too.
struct HostOperation {
  std::string name;  ///< in traces, plans and messages: "layer_scale"
  std::vector<View> results = {}, inputs = {};
  std::function<void(std::span<const View> results, std::span<const View> inputs)> compute;
};

/// The arithmetic of one rank on its device. Every operation is enqueued on device().compute();
/// none makes the host wait for a GPU. Every sum has a fixed order, whatever the number of threads,
/// unless CudaOptions::deterministic is off.
class Backend {
 public:
  virtual ~Backend() = default;

  virtual Device& device() = 0;
  /// This rank's memory on the device. Operations on GPUs take from it what they need besides their
  /// operands.
  virtual Arena& arena() = 0;
  virtual std::string name() const = 0;

  /// Names the layer that the following operations belong to, for traces.
  virtual void mark(std::string_view /*layer*/) {}

  /// Remarks for the user on how operations were computed since the last call, such as a library
  /// that does not support their operands. One line each; no line is ever repeated.
  virtual std::vector<std::string> take_remarks() { return {}; }

  /// Compares the memory with checksums that this backend keeps of it, if any (GuardingBackend).
  /// Returns whether all was right; if not, it is now. Throws Error if that cannot be.
  virtual bool check_memory() { return true; }

  /// Computes a product and its epilogue: by product() alone if fuses() is true. Otherwise by
  /// product(), then ops::Gelu, GeluBackward and ColumnSum, with the result rounded in between.
  void matmul(const Matmul& args);
  /// The device's part of matmul(): a product, with its epilogue only if fuses() is true.
  virtual void product(const Matmul& args) = 0;
  /// Computes independent products, such as those of a layer's experts: alike but for M, or for K
  /// if a is transposed, either of which may be 0, and for accumulate. They write to different
  /// memory. The bits of a result do not depend on the other products of the call; they may differ
  /// from those of matmul().
  void matmuls(std::span<const Matmul> all);
  /// The device's part of matmuls(): products without an epilogue, but perhaps with a bias.
  virtual void products(std::span<const Matmul> all) {
    for (const Matmul& one : all) product(one);
  }
  /// Whether this backend computes such a product from the codes. Otherwise the caller makes the
  /// values, and uses matmul().
  virtual bool reads_codes(const QuantizedMatmul&) const { return false; }
  /// Computes a product of which reads_codes() is true.
  virtual void quantized_product(const QuantizedMatmul& args);
  /// Whether product() also computes the epilogue of this product. Depends on its shape, the way
  /// that set_matmul_way() chose for that, types, strides and alignment.
  virtual bool fuses(const Matmul&) { return false; }
  /// Names of the ways in which this backend can compute such a product, the default first. They
  /// differ in speed and in the order of rounding, not in what the caller must provide.
  virtual std::vector<std::string> matmul_ways(const MatmulShape& shape) const = 0;
  /// Computes products of this shape in that way from now on. Returns false, and changes nothing,
  /// if there is no such way.
  virtual bool set_matmul_way(const MatmulShape& shape, std::string_view way) = 0;
  /// Names the device, threads, library and version, on which the fastest way depends, too.
  virtual std::string matmul_device() const = 0;

  /// true: from now on a row of a product whose b is stored (N, K) and whose a is not transposed,
  /// as in a forward pass, has the same bits whatever other rows there are, and cached_attention()
  /// has the bits of attention() where the cached keys are those of the sequence. Products take
  /// longer. Returns false, and changes nothing, if this backend cannot do that.
  virtual bool set_batch_invariant(bool /*value*/) { return false; }
  /// true: from now on products of a few rows, or of any, with codes of ggml round their other
  /// operand to 8 bits, as llama.cpp does, and multiply integers. Elements are then off by about a
  /// hundredth of their usual size. Returns false, and changes nothing, if this backend cannot do
  /// that.
  virtual bool set_integer_products(bool /*value*/) { return false; }

  virtual void attention(const Attention& args) = 0;
  virtual void attention_backward(const AttentionBackward& args) = 0;
  virtual void cached_attention(const CachedAttention& args) = 0;
  /// Whether cached_attention() reads keys and values that are kept as codes. Each is then its
  /// code's value in q's type.
  virtual bool reads_kept_codes() const { return false; }
  virtual void run(const RowwiseOperation& operation) = 0;

  /// Computes an operation of a program's own on any device. On a GPU it waits for the device and
  /// copies the operands to the host and the results back, which is right, but slow. A device that
  /// keeps no values (dry runs, plans) counts the operands' bytes as those of a row-wise operation,
  /// and does not call `compute`. Throws Error if there is no `compute`, and what it throws; an
  /// AccessError then names the operation. Within Device::capture() a GPU refuses the copies.
  virtual void on_host(const HostOperation& operation);
};

/// Backend on the CPU: oneDNN for products, this project's kernels for the rest. The calling thread
/// uses `threads` OpenMP threads from now on. Throws if threads is below 1.
std::unique_ptr<Backend> make_cpu_backend(int threads);

/// The library of attention. automatic: cuDNN where it supports the operands, else this project's
/// kernels, which take_remarks() reports. cudnn: cuDNN alone; UsageError where it does not support
/// the operands. own: this project's kernels alone.
enum class CudaAttention { automatic, cudnn, own };

/// The default of CudaOptions::attention_bytes. The same on every GPU, because the pieces decide on
/// the order of sums.
constexpr std::int64_t kAttentionBytes = std::int64_t{2} << 30;

struct CudaOptions {
  CudaAttention attention = CudaAttention::automatic;
  bool deterministic = true;  ///< the same operands give the same bits every time
  /// The most memory that attention takes besides its operands. What needs more is computed in
  /// pieces, or in another way.
  std::int64_t attention_bytes = kAttentionBytes;
};

/// Backend on one GPU, the one of index `gpu` in cuda_status().gpus: cuBLASLt or hipBLASLt for
/// products, cuDNN for attention if the build has it, this project's kernels for the rest. Only the
/// thread that makes it may use and destroy it. Ranks may share a GPU.
///
/// Throws UsageError if there is no such GPU, if this build has no kernels for it or no GPU support
/// at all, or if cuDNN is requested and missing.
std::unique_ptr<Backend> make_cuda_backend(int gpu, const CudaOptions& options = {});

/// "cuBLASLt 13.0.2", or "" in a build without GPU support.
std::string cuda_product_library();

/// "cuDNN 9.19.0", or "" in a build without it.
std::string cuda_attention_library();
/// 91900, or 0 in a build without it.
int cuda_attention_version();

}  // namespace axonn
