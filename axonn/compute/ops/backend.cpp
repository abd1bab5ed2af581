#include "axonn/compute/ops/backend.h"

#include <algorithm>
#include <cstddef>
#include <sstream>

#include "axonn/compute/ops/operand_checks.h"
#include "axonn/foundation/base/check.h"

namespace axonn {

namespace {

std::optional<DType> compute_type(std::string_view name) {
  for (const DType type : {DType::f32, DType::bf16, DType::f16})
    if (name_of(type) == name) return type;
  return std::nullopt;
}

/// The words of to_string() after the extents, besides "to TYPE", and their fields.
constexpr std::pair<std::string_view, bool MatmulShape::*> kWords[] = {
    {"bias", &MatmulShape::bias},
    {"+=", &MatmulShape::accumulate},
    {"gelu", &MatmulShape::gelu},
    {"kept", &MatmulShape::gelu_input},
    {"d_gelu", &MatmulShape::gelu_derivative},
    {"d_bias", &MatmulShape::bias_gradient}};

bool has_epilogue(const Matmul& args) {
  return args.gelu || args.gelu_derivative_at.data || args.bias_gradient.data;
}

}  // namespace

double attention_flops(const Attention& args) {
  const double pairs = args.pairs > 0 ? static_cast<double>(args.pairs)
                                      : static_cast<double>(args.q.rows * args.positions) / 2;
  return 4.0 * pairs * static_cast<double>(args.heads * args.head_dim);
}

QueryRuns QueryRuns::of(std::span<const std::int32_t> blocks, std::int64_t sequences,
                        std::int64_t first_key) {
  const std::size_t each = sequences > 0 ? blocks.size() / static_cast<std::size_t>(sequences) : 0;
  QueryRuns found;
  for (std::size_t i = 0; i < each; ++i) {
    if (i == 0 || blocks[i] != blocks[i - 1] + 1) {
      if (found.count == kMost) return {};
      found.runs[found.count++] = {blocks[i] * kSequenceBlock - first_key, 0};
    }
    found.runs[found.count - 1].rows += kSequenceBlock;
  }
  for (std::size_t i = each; i < blocks.size(); ++i)
    if (blocks[i] != blocks[i - each]) return {};
  return found;
}

std::int64_t attention_pairs(std::span<const std::int32_t> blocks, std::int64_t window) {
  // The query at position t sees t + 1/2 keys of the causal half, counted here twice.
  std::int64_t twice = 0;
  for (const std::int64_t block : blocks) {
    const std::int64_t first = block * kSequenceBlock, end = first + kSequenceBlock;
    const std::int64_t limit = window > 0 ? std::clamp(window, first, end) : end;
    twice += limit * limit - first * first + 2 * window * (end - limit);
  }
  return twice / 2;
}

MatmulShape shape_of(const Matmul& args) {
  return {.M = args.out.rows,
          .N = args.out.cols,
          .K = args.a_transposed ? args.a.rows : args.a.cols,
          .a_transposed = args.a_transposed,
          .b_transposed = args.b_transposed,
          .bias = args.bias.data != nullptr,
          .accumulate = args.accumulate,
          .type = args.a.dtype,
          .out_type = args.out.dtype,
          .gelu = args.gelu,
          .gelu_input = args.gelu_input.data != nullptr,
          .gelu_derivative = args.gelu_derivative_at.data != nullptr,
          .bias_gradient = args.bias_gradient.data != nullptr};
}

std::string mode_of(const MatmulShape& shape) {
  return {shape.a_transposed ? 'T' : 'N', shape.b_transposed ? 'T' : 'N'};
}

std::string to_string(const MatmulShape& s) {
  std::string text = concat(name_of(s.type), ' ', mode_of(s), ' ', s.M, 'x', s.N, 'x', s.K);
  if (s.out_type != s.type) text += concat(" to ", name_of(s.out_type));
  if (s.bias) text += " + bias";
  if (s.accumulate) text += " +=";
  if (s.gelu) text += s.gelu_input ? " gelu kept" : " gelu";
  if (s.gelu_derivative) text += " d_gelu";
  if (s.bias_gradient) text += " d_bias";
  return text;
}

std::optional<MatmulShape> parse_matmul_shape(std::string_view text) {
  std::istringstream words{std::string(text)};
  std::string type, mode, word;
  MatmulShape shape;
  char first = 0, second = 0;
  if (!(words >> type >> mode >> shape.M >> first >> shape.N >> second >> shape.K)) return {};
  const auto known = compute_type(type);
  if (!known) return {};
  shape.type = shape.out_type = *known;
  shape.a_transposed = mode == "TN" || mode == "TT";
  shape.b_transposed = mode == "NT" || mode == "TT";
  while (words >> word) {
    if (word == "to" && words >> word) shape.out_type = compute_type(word).value_or(shape.type);
    for (const auto& [name, flag] : kWords)
      if (word == name) shape.*flag = true;
  }
  if (to_string(shape) != text) return {};  // rejects whatever the loop skipped
  return shape;
}

void Backend::matmul(const Matmul& args) {
  if (!has_epilogue(args)) return product(args);
  check_matmul(args);
  if (fuses(args)) return product(args);
  Matmul plain = args;
  plain.gelu = false;
  plain.gelu_input = plain.gelu_derivative_at = plain.bias_gradient = {};
  if (args.gelu_input.data) plain.out = args.gelu_input;
  product(plain);
  if (args.gelu) run(ops::Gelu{args.out, plain.out});
  if (args.gelu_derivative_at.data)
    run(ops::GeluBackward{args.out, args.out, args.gelu_derivative_at});
  if (args.bias_gradient.data) run(ops::ColumnSum{args.bias_gradient, args.a});
}

namespace {

/// The values of a view of a GPU in memory of the host, without gaps between rows.
class HostCopy {
 public:
  HostCopy(Device& device, const View& of)
      : device_(device),
        of_(of),
        memory_(static_cast<std::size_t>(of.count() * bytes_of(of.dtype))) {
    for_each_run([&](void* host, void* there, std::int64_t bytes) {
      device_.copy_to_host(host, there, bytes);
    });
  }
  View view() {
    return {of_.count() > 0 ? memory_.data() : nullptr, of_.dtype, of_.rows, of_.cols, of_.cols};
  }
  void write_back() {
    for_each_run([&](void* host, void* there, std::int64_t bytes) {
      device_.copy_from_host(there, host, bytes);
    });
  }

 private:
  template <typename F>
  void for_each_run(const F& copy) {
    const bool whole = of_.contiguous();
    const std::int64_t runs = whole ? std::min<std::int64_t>(of_.rows, 1) : of_.rows,
                       bytes = (whole ? of_.count() : of_.cols) * bytes_of(of_.dtype);
    for (std::int64_t i = 0; i < runs; ++i)
      copy(memory_.data() + i * bytes, of_.row_range(i, 1).data, bytes);
  }

  Device& device_;
  View of_;
  std::vector<std::byte> memory_;
};

}  // namespace

void Backend::on_host(const HostOperation& op) {
  AXONN_CHECK(op.compute, "on_host: the operation '", op.name, "' has no function `compute`");
  try {
    if (device().memory() == Memory::host) return op.compute(op.results, op.inputs);
    std::vector<HostCopy> copies;
    std::vector<View> views;
    for (const auto* operands : {&op.results, &op.inputs})
      for (const View& view : *operands) copies.emplace_back(device(), view);
    for (HostCopy& copy : copies) views.push_back(copy.view());
    const std::span<const View> all(views);
    op.compute(all.first(op.results.size()), all.subspan(op.results.size()));
    for (std::size_t i = 0; i < op.results.size(); ++i) copies[i].write_back();
  } catch (const AccessError& error) {
    throw AccessError(concat("operation ", op.name, ": ", error.what()));
  }
}

void Backend::quantized_product(const QuantizedMatmul& args) {
  fail(Where::here(), "quantized_matmul: ", name(), " reads no codes; got out ", args.out);
}

void Backend::matmuls(std::span<const Matmul> all) {
  check_matmuls(all);
  if (all.empty()) return;
  if (!has_epilogue(all.front())) return products(all);
  for (const Matmul& one : all) matmul(one);
}

}  // namespace axonn
