#pragma once

#include "axonn/network/nn/attention/attention.h"

namespace axonn {

/// Queries and keys (R, (h + k)·D), of a product that makes these alone, as qkv
/// (R, (h + 2k)·D) whose values are the keys. No communication.
Var keys_as_values(const Context& ctx, const Var& qk, const Heads& heads);

/// The keys and values (R, 2k·D) of qkv (R, (h + 2k)·D), for layers that use those of another one:
/// they stand after their own queries (concat_columns). No communication.
Var keys_and_values(const Context& ctx, const Var& qkv, const Heads& heads);

/// qkv (R, (h + 2k)·D) with each value head divided by its root mean square, as in Gemma 4. No
/// communication.
Var value_norm(const Context& ctx, const Var& qkv, const Heads& heads, float eps);
/// The same with each query head and each key head, as in Llama 4.
Var query_key_norm(const Context& ctx, const Var& qkv, const Heads& heads, float eps);

}  // namespace axonn
