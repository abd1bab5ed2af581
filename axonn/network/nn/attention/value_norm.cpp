#include "axonn/network/nn/attention/value_norm.h"

#include "axonn/ranks/parallel/scheduling.h"

namespace axonn {

Var keys_as_values(const Context& context, const Var& qk, const Heads& heads) {
  return each_later(context, qk, [heads](const Context& ctx, const Chunk& in) {
    const LocalHeads at(ctx, heads, in.placement.cols);
    const std::int64_t all = at.width(), both = all - at.room * at.dim;
    const auto of = [ctx, at, all, both](const Tensor& from) {
      Tensor value = ctx.empty(from.rows(), all, from.dtype());
      ctx.backend.run(ops::Cast{value.view().col_range(0, both), from.view()});
      ctx.backend.run(ops::Cast{at.v(value.view()), at.k(from.view())});
      return value;
    };
    Chunk out = make_chunk(ctx, in, of(in.value), in.placement);
    let_remake(ctx, out, Remade::heads, in, of);
    return with_backward(ctx, out, [ctx, at, both, to = in.gradient](const Tensor& d_out) {
      const View d = d_out.view();
      Tensor d_inp = ctx.empty(d_out.rows(), both, d_out.dtype());
      ctx.backend.run(ops::Cast{at.q(d_inp.view()), at.q(d)});
      ctx.backend.run(ops::Add{at.k(d_inp.view()), at.k(d), at.v(d)});
      to->add(ctx, std::move(d_inp));
    });
  });
}

Var keys_and_values(const Context& context, const Var& qkv, const Heads& heads) {
  return each_later(context, qkv, [heads](const Context& ctx, const Chunk& in) {
    const LocalHeads at(ctx, heads, in.placement.cols);
    const std::int64_t begin = at.heads * at.dim, count = 2 * at.room * at.dim;
    const Tensor value = ctx.empty(in.value.rows(), count, in.value.dtype());
    ctx.backend.run(ops::Cast{value.view(), in.value.view().col_range(begin, count)});
    const auto backward = [ctx, begin, cols = at.width(), to = in.gradient](const Tensor& d_out) {
      to->add_columns(ctx, cols, begin, d_out);
    };
    return with_backward(ctx, make_chunk(ctx, in, value, in.placement), backward);
  });
}

namespace {

/// Heads divided by their root mean square, and the others.
struct NormedPart {
  View (LocalHeads::*normed)(const View&) const;
  View (LocalHeads::*others)(const View&) const;
};

Var norm_part(const Context& context, const Var& qkv, const Heads& heads, float eps,
              const NormedPart& part) {
  return each_later(context, qkv, [heads, eps, part](const Context& ctx, const Chunk& in) {
    const LocalHeads at(ctx, heads, in.placement.cols);
    const std::int64_t count = (at.*part.normed)(in.value.view()).cols / at.dim;
    const Tensor rstd = ctx.empty(in.value.rows(), count, DType::f32),
                 ones = ctx.zeros(1, at.dim, DType::f32);
    ctx.backend.run(ops::AddNumber{ones.view(), ones.view(), 1});
    const auto norm = [at, eps, part, rstd, ones](const View& out, const View& inp) {
      return ops::HeadNorm{.out = (at.*part.normed)(out),
                           .inp = (at.*part.normed)(inp),
                           .weight = ones.view(),
                           .rstd = rstd.view(),
                           .eps = eps};
    };
    const auto of = [ctx, at, norm, part](const Tensor& from) {
      Tensor value = ctx.like(from);
      ctx.backend.run(ops::Cast{(at.*part.others)(value.view()), (at.*part.others)(from.view())});
      ctx.backend.run(norm(value.view(), from.view()));
      return value;
    };
    Chunk out = make_chunk(ctx, in, of(in.value), in.placement);
    let_remake(ctx, out, Remade::heads, in, of);
    const auto backward = [ctx, at, norm, part, kept = SavedChunk(ctx, in)](const Tensor& d) {
      const Chunk inp = kept.get();
      Tensor d_inp = ctx.like(inp.value);
      ctx.backend.run(ops::Cast{(at.*part.others)(d_inp.view()), (at.*part.others)(d.view())});
      ctx.backend.run(ops::HeadNormBackward{.forward = norm(d_inp.view(), inp.value.view()),
                                            .d_out = (at.*part.normed)(d.view()),
                                            .d_inp = (at.*part.normed)(d_inp.view())});
      inp.gradient->add(ctx, std::move(d_inp));
    };
    return with_backward(ctx, out, backward);
  });
}

}  // namespace

Var value_norm(const Context& context, const Var& qkv, const Heads& heads, float eps) {
  return norm_part(context, qkv, heads, eps, {&LocalHeads::v, &LocalHeads::qk});
}

Var query_key_norm(const Context& context, const Var& qkv, const Heads& heads, float eps) {
  return norm_part(context, qkv, heads, eps, {&LocalHeads::qk, &LocalHeads::v});
}

}  // namespace axonn
