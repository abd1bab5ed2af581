#include "axonn/model/language_model.h"

#include "axonn/base/check.h"

namespace axonn {

namespace {

void with_all(const Context& ctx, std::span<ParameterGroup* const> groups,
              const std::function<void(const Context&)>& f) {
  if (groups.empty()) return f(ctx);
  with_parameters(
      ctx, *groups.front(), [&](const Context& inside) { with_all(inside, groups.subspan(1), f); },
      ReadIn::held);
}

}  // namespace

/// Calls f(ctx, output layer, its input) with the head's parameters gathered.
template <typename F>
void LanguageModel::at_end(const Context& ctx, const Tokens& tokens, const F& f) {
  const Var x = hidden(ctx, tokens);
  const Head end = head();
  with_all(ctx, end.groups,
           [&](const Context& inside) { f(inside, end.output, end.norm(inside, x)); });
}

void LanguageModel::loss(const Context& ctx, const Tokens& tokens, float scale,
                         const Tensor& total) {
  at_end(ctx, tokens, [&](const Context& inside, const CrossEntropy& output, const Var& x) {
    output(inside, x, tokens.targets, scale, total);
  });
}

Tensor LanguageModel::target_losses(const Context& ctx, const Tokens& tokens) {
  Tensor out;
  at_end(ctx, tokens, [&](const Context& inside, const CrossEntropy& output, const Var& x) {
    out = output.each(inside, x, tokens.targets);
  });
  return out;
}

Tensor LanguageModel::next_logits(const Context& ctx, const Tokens& tokens,
                                  std::span<const std::int64_t> rows) {
  AXONN_CHECK(!ctx.tape, "next_logits: got a tape; call it without one");
  Tensor out;
  at_end(ctx, tokens, [&](const Context& inside, const CrossEntropy& output, const Var& x) {
    out = output.logits_of_rows(inside, x, rows);
    out.wait();
  });
  return out;
}

}  // namespace axonn
