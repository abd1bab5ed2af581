"""Random options of the types of Hugging Face's models that have more than Llama's.

The types are those of axonn/network/model/families/llama. A function draws what a type's files can
say, other heads, windows, orders of layers, routers, caps and scales than published models have.
"""

import math

from training_draws import draw_delta, draw_latents, draw_layers

SIZES = ("family", "layers", "heads", "hidden", "head_dim", "kv_heads", "ffn", "vocab", "tied")


def some(rng, *values):
    return rng.choice(values)


def whole_heads(keys):
    """Heads that are together as wide as the model."""
    keys.pop("model.head_dim", None)
    keys["model.hidden"] = 24 * keys["model.heads"]


def width(keys):
    return keys.get("model.head_dim") or keys["model.hidden"] // keys["model.heads"]


def alike(rng, keys, *biases):
    keys |= dict.fromkeys((f"model.{bias}_bias" for bias in biases), some(rng, True, False))


def windows(rng, keys, length, needed=False):
    """A window of some layers, or of none."""
    if not needed and rng.random() < 0.3:
        return
    keys["model.window"] = some(rng, 1, 7, length - 1, length)
    if keys["model.layers"] > 1 and rng.random() < 0.7:
        keys["model.full_layers"] = draw_layers(rng, keys, keys["model.layers"] - 1)


def full_layers_without_rope(keys):
    if "model.full_layers" in keys:
        keys["model.nope_layers"] = keys["model.full_layers"]


def experts(rng, keys, shared=0):
    """Experts; beside them, perhaps, an MLP as wide as up to `shared` of them."""
    count, ffn = some(rng, 2, 4, 5), some(rng, 16, 19, 24)
    keys |= {"model.experts": count, "model.experts_per_token": rng.randint(1, min(3, count)),
             "model.expert_ffn": ffn}  # fmt: skip
    if shared:
        keys["model.shared_ffn"] = ffn * rng.randint(1, shared)


def first_dense(rng, keys, dense_or_experts=True):
    """The first layers have no experts; perhaps all."""
    layers = keys["model.layers"]
    dense = rng.randint(0, layers if dense_or_experts else layers - 1)
    if dense == layers:
        for key in [k for k in keys if "expert" in k or k == "model.shared_ffn"]:
            del keys[key]
    elif dense:
        keys["model.dense_layers"] = ",".join(map(str, range(dense)))
    return dense < layers


def groups(rng, keys, best):
    count, per_token = keys["model.experts"], keys["model.experts_per_token"]
    if count % 2 == 0 and rng.random() < 0.6:
        keys |= {"model.expert_groups": 2, "model.expert_group_best": best,
                 "model.expert_groups_per_token": 1 if per_token <= count // 2 else 2}  # fmt: skip


def granite(rng, keys, length, grid):
    whole_heads(keys)
    for scale in ("embedding", "residual", "logit", "attention"):
        if rng.random() < 0.7:
            keys[f"model.{scale}_scale"] = some(rng, 0.25, 0.5, 1.5)
    alike(rng, keys, "qkv", "out")
    if "model.type" not in keys:
        keys["model.mlp_bias"] = some(rng, True, False)


def granitemoe(rng, keys, length, grid):
    granite(rng, keys, length, grid)
    experts(rng, keys)


def gemma(rng, keys, length, grid):
    keys |= {"model.block_norm": "both", "model.norm_plus_one": True, "model.activation": "geglu",
             "model.embedding_scale": repr(math.sqrt(keys["model.hidden"]))}  # fmt: skip
    alike(rng, keys, "qkv", "out")
    windows(rng, keys, length)
    if rng.random() < 0.5:
        keys["model.attention_scale"] = repr(1 / math.sqrt(width(keys) + 3))
    if rng.random() < 0.5:
        keys["model.logit_cap"] = some(rng, 1.5, 30.0)


def gemma2(rng, keys, length, grid):
    gemma(rng, keys, length, grid)
    if rng.random() < 0.7:
        keys["model.score_cap"] = some(rng, 0.7, 50.0)


def gemma3(rng, keys, length, grid):
    gemma(rng, keys, length, grid)
    keys |= {"model.qk_norm": "head", "model.rope_scaling": some(rng, "none", "linear")}
    if "model.window" in keys:
        keys |= {"model.window_rope_theta": some(rng, 0, 700.0),
                 "model.window_rope_scaling": some(rng, True, False)}  # fmt: skip


def gemma4(rng, keys, length, grid):
    layers = keys["model.layers"]
    keys |= {"model.block_norm": "both", "model.activation": "geglu", "model.qk_norm": "head",
             "model.embedding_scale": repr(math.sqrt(keys["model.hidden"])),
             "model.attention_scale": 1, "model.value_norm": True, "model.layer_factor": True,
             "model.head_dim": 8, "model.init_std": 0.02}  # fmt: skip
    alike(rng, keys, "qkv", "out")
    if rng.random() < 0.5:
        keys["model.logit_cap"] = some(rng, 1.5, 30.0)
    if layers > 1 and rng.random() < 0.8:
        full = {layers - 1, *rng.sample(range(layers), rng.randint(0, layers - 2))}
        keys |= {"model.window": some(rng, 1, 7, length), "model.window_rope_theta": 700.0,
                 "model.full_layers": ",".join(map(str, sorted(full)))}  # fmt: skip
        if rng.random() < 0.6:
            keys |= {"model.rope_scaling": "proportional", "model.rope_share": 0.5,
                     "model.window_rope_scaling": False}  # fmt: skip
        if rng.random() < 0.6:
            keys["model.full_head_dim"] = 12
        if rng.random() < 0.5:
            keys |= {"model.full_values_are_keys": True,
                     "model.full_kv_heads": some(rng, 1, keys["model.heads"])}  # fmt: skip
    elif rng.random() < 0.5:
        keys["model.full_values_are_keys"] = True
    if rng.random() < 0.5:
        keys["model.layer_input"] = 6 * grid[0]
    if layers > 1 and "model.window" not in keys and rng.random() < 0.5:
        keys |= {"model.shared_kv_layers": 1, "model.double_shared_ffn": some(rng, True, False)}
    if rng.random() < 0.4:
        experts(rng, keys)
        keys |= {"model.expert_block_norms": True, "model.shared_ffn": keys["model.ffn"]}


def glm4(rng, keys, length, grid):
    keys |= {"model.block_norm": "both", "model.rope_pairs": "neighbours",
             "model.partial_rotary_factor": some(rng, 1, 0.5)}  # fmt: skip
    alike(rng, keys, "qkv")


def glm4_moe(rng, keys, length, grid):
    keys |= {"model.qk_norm": some(rng, "none", "head"), "model.router": "sigmoid",
             "model.router_bias": True, "model.partial_rotary_factor": some(rng, 1, 0.5)}  # fmt: skip
    alike(rng, keys, "qkv")
    experts(rng, keys, some(rng, 0, 2))
    if first_dense(rng, keys):
        groups(rng, keys, 2)
        keys |= {"model.router_scale": some(rng, 1, 2.5), "model.expert_norm": some(rng, True, False)}


def exaone4(rng, keys, length, grid):
    keys |= {"model.block_norm": "output", "model.qk_norm": "head"}
    windows(rng, keys, length)
    full_layers_without_rope(keys)


def ernie4_5(rng, keys, length, grid):
    keys["model.rope_pairs"] = "neighbours"
    alike(rng, keys, "qkv", "out", "mlp")


def ernie4_5_moe(rng, keys, length, grid):
    ernie4_5(rng, keys, length, grid)
    keys["model.router_bias"] = True
    experts(rng, keys, 2)
    first_dense(rng, keys)


def hunyuan(rng, keys, length, grid):
    keys["model.qk_norm"] = "rotated-head"
    alike(rng, keys, "qkv", "out")


def starcoder2(rng, keys, length, grid):
    whole_heads(keys)
    keys |= {"model.norm": "layer", "model.activation": "gelu"}
    alike(rng, keys, "qkv", "out", "mlp")
    if rng.random() < 0.5:
        keys["model.window"] = some(rng, 1, 7, length)


def nemotron(rng, keys, length, grid):
    keys |= {"model.norm": "layer", "model.norm_plus_one": True, "model.activation": "relu2",
             "model.partial_rotary_factor": some(rng, 1, 0.5),
             "model.mlp_bias": some(rng, True, False)}  # fmt: skip
    alike(rng, keys, "qkv", "out")


def cohere2(rng, keys, length, grid):
    whole_heads(keys)
    keys |= {"model.norm": "layer-without-bias", "model.block_norm": "parallel",
             "model.rope_pairs": "neighbours", "model.logit_scale": some(rng, 0.0625, 0.5)}  # fmt: skip
    alike(rng, keys, "qkv", "out")
    windows(rng, keys, length, needed=True)
    full_layers_without_rope(keys)


def minimax_m2(rng, keys, length, grid):
    keys |= {"model.qk_norm": "width", "model.router": "sigmoid", "model.router_bias": True,
             "model.partial_rotary_factor": some(rng, 1, 0.5)}  # fmt: skip
    experts(rng, keys)
    keys["model.ffn"] = keys["model.expert_ffn"]


def gpt_oss(rng, keys, length, grid):
    keys |= {"model.sinks": True, "model.activation": "clamped-swiglu", "model.expert_bias": True,
             "model.router_logit_bias": True, "model.swiglu_limit": some(rng, 0.5, 7.0),
             "model.swiglu_alpha": some(rng, 1.3, 1.702),
             "model.rope_scaling": some(rng, "none", "yarn")}  # fmt: skip
    alike(rng, keys, "qkv", "out")
    experts(rng, keys)
    keys["model.ffn"] = keys["model.expert_ffn"]
    windows(rng, keys, length)


def ministral3(rng, keys, length, grid):
    keys |= {"model.rope_scaling": some(rng, "none", "yarn"), "model.query_growth": some(rng, 0, 0.3)}
    if rng.random() < 0.5:
        keys["model.window"] = some(rng, 1, 7, length)


def deepseek(rng, keys, length, grid):
    keys["model.rope_scaling"] = some(rng, "none", "yarn")
    draw_latents(rng, keys, grid)
    keys |= {"model.rope_pairs": "neighbours", "model.qk_norm": "none"}
    for key in ("model.sinks", "model.partial_rotary_factor"):
        keys.pop(key, None)
    experts(rng, keys, 2)


def deepseek_v2(rng, keys, length, grid):
    deepseek(rng, keys, length, grid)
    alike(rng, keys, "qkv", "out")
    keys |= {"model.expert_norm": False, "model.mlp_bias": some(rng, True, False)}
    if first_dense(rng, keys):
        groups(rng, keys, 1)
        keys["model.router_scale"] = some(rng, 1, 2.5)


def deepseek_v3(rng, keys, length, grid):
    deepseek(rng, keys, length, grid)
    alike(rng, keys, "qkv", "out")
    keys |= {"model.router": "sigmoid", "model.router_bias": True,
             "model.rope_pairs": some(rng, "neighbours", "halves")}  # fmt: skip
    if first_dense(rng, keys):
        groups(rng, keys, 2)
        keys |= {"model.router_scale": some(rng, 1, 2.5), "model.expert_norm": some(rng, True, False)}


def llama4(rng, keys, length, grid):
    keys |= {"model.rope_pairs": "neighbours", "model.qk_norm": some(rng, "rotated-plain", "none")}
    alike(rng, keys, "qkv", "out")
    windows(rng, keys, length)
    if "model.window" in keys:
        keys["model.window_chunks"] = True
    if rng.random() < 0.6:
        keys |= {"model.nope_layers": draw_layers(rng, keys),
                 "model.nope_query_growth": some(rng, 0, 0.3), "model.nope_query_positions": 3}  # fmt: skip
    if rng.random() < 0.7:
        experts(rng, keys)
        keys |= {"model.shared_ffn": keys["model.expert_ffn"], "model.router": "sigmoid",
                 "model.expert_input_scores": True, "model.expert_norm": False}  # fmt: skip
        keys["model.expert_step"] = some(rng, 1, 2) if keys["model.layers"] > 1 else 1


def some_routed(rng, keys):
    """Layers with experts, by their step or by a list of others."""
    several = keys["model.layers"] > 1
    keys["model.expert_step"] = some(rng, 1, 2) if several else 1
    if several and keys["model.expert_step"] == 1 and rng.random() < 0.5:
        keys["model.dense_layers"] = rng.randrange(keys["model.layers"])


def qwen2_moe(rng, keys, length, grid):
    whole_heads(keys)
    keys |= {"model.shared_gate": True, "model.expert_norm": some(rng, True, False)}
    alike(rng, keys, "qkv")
    experts(rng, keys, 2)
    some_routed(rng, keys)
    windows(rng, keys, length)


def qwen_delta(rng, keys):
    keys |= {"model.qk_norm": "head", "model.norm_plus_one": True, "model.attention_gate": True,
             "model.partial_rotary_factor": some(rng, 1, 0.5)}  # fmt: skip
    alike(rng, keys, "qkv", "out")
    if keys["model.layers"] > 1 and rng.random() < 0.8:
        draw_delta(rng, keys)


def qwen3_5_moe(rng, keys, length, grid):
    qwen_delta(rng, keys)
    keys["model.shared_gate"] = True
    experts(rng, keys, 2)


def qwen3_next(rng, keys, length, grid):
    qwen_delta(rng, keys)
    if rng.random() < 0.2:
        return
    keys |= {"model.shared_gate": True, "model.expert_norm": some(rng, True, False)}
    experts(rng, keys, 2)
    some_routed(rng, keys)


# With these, model.type must say which it is.
NAMED = {"granitemoe": granitemoe, "gemma2": gemma2, "gemma4_text": gemma4, "glm4_moe": glm4_moe,
         "ernie4_5_moe": ernie4_5_moe, "minimax_m2": minimax_m2, "gpt_oss": gpt_oss,
         "deepseek_v2": deepseek_v2, "deepseek_v3": deepseek_v3, "llama4_text": llama4,
         "qwen3_5_moe_text": qwen3_5_moe, "qwen3_next": qwen3_next,
         "ministral3": ministral3}  # fmt: skip
FAMILIES = NAMED | {"granite": granite, "gemma3_text": gemma3, "glm4": glm4, "exaone4": exaone4,
                    "ernie4_5": ernie4_5, "hunyuan_v1_dense": hunyuan, "starcoder2": starcoder2,
                    "nemotron": nemotron, "cohere2": cohere2, "qwen2_moe": qwen2_moe}  # fmt: skip


def as_family(rng, keys, name, length, grid):
    """Changes the options of a drawn Llama to those of one of these types."""
    for key in [k for k in keys if k.removeprefix("model.") not in SIZES]:
        del keys[key]
    keys["model.rope_scaling"] = "none"
    if name in NAMED:
        keys["model.type"] = name
    FAMILIES[name](rng, keys, length, grid)
