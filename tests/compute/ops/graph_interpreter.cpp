#include "tests/compute/ops/graph_interpreter.h"

#include <cmath>
#include <functional>
#include <limits>

#include "axonn/foundation/base/check.h"

namespace axonn {

namespace {

using Dims = std::array<std::int64_t, 4>;

/// A tensor's elements in the order of its dims.
struct Elements {
  Dims dims{};
  std::vector<double> values;

  explicit Elements(const Dims& of)
      : dims(of), values(static_cast<std::size_t>(of[0] * of[1] * of[2] * of[3])) {}
  /// The element at `place`; dims of 1 are broadcast.
  double& at(const Dims& place) {
    std::int64_t index = 0;
    for (int i = 0; i < 4; ++i) index = index * dims[i] + (dims[i] == 1 ? 0 : place[i]);
    return values[static_cast<std::size_t>(index)];
  }
};

void for_places(const Dims& dims, const std::function<void(const Dims&)>& body) {
  Dims p{};
  for (p[0] = 0; p[0] < dims[0]; ++p[0])
    for (p[1] = 0; p[1] < dims[1]; ++p[1])
      for (p[2] = 0; p[2] < dims[2]; ++p[2])
        for (p[3] = 0; p[3] < dims[3]; ++p[3]) body(p);
}

double rounded(double value, GraphType type) {
  bf16 low{};
  switch (type) {
    case GraphType::f32:
      return static_cast<float>(value);
    case GraphType::bf16:
      put(low, static_cast<float>(value));
      return get(low);
    case GraphType::i32:
    case GraphType::boolean:
      return std::trunc(value);
  }
  return value;
}

class Interpreter {
 public:
  Interpreter(const AttentionGraph& graph, const std::vector<void*>& memory)
      : graph_(graph), memory_(memory) {
    for (std::size_t i = 0; i < graph.tensors.size(); ++i) {
      tensors_.emplace_back(graph.tensors[i].dims);
      if (memory[i]) load(static_cast<int>(i));
    }
  }

  void run() {
    for (const GraphNode& node : graph_.nodes) {
      switch (node.op) {
        case GraphOp::product:
          product(node);
          break;
        case GraphOp::largest:
        case GraphOp::sum:
          reduce(node);
          break;
        case GraphOp::transpose:
          for_places(dims(node.out), [&](const Dims& p) {
            to(node.out, p) = from(node.a, {p[0], p[1], p[3], p[2]});
          });
          break;
        default:
          for_places(dims(node.out), [&](const Dims& p) { to(node.out, p) = pointwise(node, p); });
      }
      for (double& value : tensors_[node.out].values) value = rounded(value, type(node.out));
      if (memory_[node.out]) store(node.out);
    }
  }

 private:
  const Dims& dims(int at) const { return graph_.tensors[at].dims; }
  GraphType type(int at) const { return graph_.tensors[at].type; }
  double from(int at, const Dims& place) { return tensors_[at].at(place); }
  double& to(int at, const Dims& place) { return tensors_[at].at(place); }

  std::int64_t offset(int at, const Dims& place) const {
    std::int64_t offset = 0;
    for (int i = 0; i < 4; ++i) offset += place[i] * graph_.tensors[at].strides[i];
    return offset;
  }
  void load(int at) {
    for_places(dims(at), [&](const Dims& p) {
      const std::int64_t o = offset(at, p);
      const void* data = memory_[at];
      to(at, p) = type(at) == GraphType::f32    ? static_cast<const float*>(data)[o]
                  : type(at) == GraphType::bf16 ? get(static_cast<const bf16*>(data)[o])
                                                : static_cast<const std::int32_t*>(data)[o];
    });
  }
  void store(int at) {
    for_places(dims(at), [&](const Dims& p) {
      const auto value = static_cast<float>(from(at, p));
      if (type(at) == GraphType::bf16)
        put(static_cast<bf16*>(memory_[at])[offset(at, p)], value);
      else
        static_cast<float*>(memory_[at])[offset(at, p)] = value;
    });
  }

  void product(const GraphNode& node) {
    const Dims &a = dims(node.a), &b = dims(node.b), &out = dims(node.out);
    AXONN_CHECK(a[3] == b[2] && out[2] == a[2] && out[3] == b[3] && a[1] == out[1] &&
                    a[1] % b[1] == 0 && a[0] == b[0] && a[0] == out[0],
                "a product of matrices that do not fit");
    const std::int64_t group = a[1] / b[1];
    for_places(out, [&](const Dims& p) {
      double sum = 0;
      for (std::int64_t i = 0; i < a[3]; ++i)
        sum += from(node.a, {p[0], p[1], p[2], i}) * from(node.b, {p[0], p[1] / group, i, p[3]});
      to(node.out, p) = sum;
    });
  }

  void reduce(const GraphNode& node) {
    const bool largest = node.op == GraphOp::largest;
    for (double& value : tensors_[node.out].values)
      value = largest ? -std::numeric_limits<double>::infinity() : 0;
    for_places(dims(node.a), [&](const Dims& p) {
      Dims into = p;
      for (int i = 0; i < 4; ++i) into[i] /= dims(node.a)[i] / dims(node.out)[i];
      double& value = to(node.out, into);
      value = largest ? std::max(value, from(node.a, p)) : value + from(node.a, p);
    });
  }

  double pointwise(const GraphNode& node, const Dims& p) {
    const double a = from(node.a, p), b = node.b < 0 ? 0 : from(node.b, p);
    switch (node.op) {
      case GraphOp::multiply:
        return a * b;
      case GraphOp::add:
        return a + b;
      case GraphOp::subtract:
        return a - b;
      case GraphOp::divide:
        return a / b;
      case GraphOp::exponential:
        return std::exp(a);
      case GraphOp::logarithm:
        return std::log(a);
      case GraphOp::index:
        return static_cast<double>(p[node.axis]);
      case GraphOp::at_least:
        return a >= b ? 1 : 0;
      case GraphOp::greater:
        return a > b ? 1 : 0;
      case GraphOp::select:
        return from(node.where, p) != 0 ? a : b;
      default:
        return a;
    }
  }

  const AttentionGraph& graph_;
  const std::vector<void*>& memory_;
  std::vector<Elements> tensors_;
};

}  // namespace

void interpret(const AttentionGraph& graph, const std::vector<void*>& memory) {
  Interpreter(graph, memory).run();
}

}  // namespace axonn
