"""Draws random trainings, and counts the pairs of values that they reach.

A training has a model with its options, data, a batch, losses, masks, an optimizer, recomputation,
and a grid with its overlap, context and experts. draws() needs few trainings for many pairs of
values: it leaves out most of those that bring no pair that is new.
"""

import itertools
import math
import random
from dataclasses import dataclass

BLOCK = 64  # positions of a sequence that ranks of a context have together
MOST_TOKENS = 3000  # of a batch, so that a training takes about a second
FEWEST_TOKENS = 48  # of a batch with padding: gradients of fewer rows are too near to rounding
THINNED = 20  # of so many trainings without a new pair, one is taken


@dataclass(frozen=True)
class Training:
    keys: dict  # "section.key" -> value
    grid: list  # x, y, z, data
    other: list | None = None  # the grid on which its second half is trained; None: axonn check
    mpi: bool = False  # whether the ranks of `grid` are processes under mpirun

    def places(self, grid):
        """The parts into which the batch is cut."""
        return grid[2] // math.gcd(self.keys.get("parallelism.context", 1), grid[2]) * grid[3]


def near(rng, *borders):
    """A number at one of the borders, or beside it. Not 1: a window of one key has gradients of 0,
    of which only rounding is left to compare."""
    return max(2, rng.choice(borders) + rng.choice((-1, 0, 1)))


def draw_grid(rng):
    """2 to 8 ranks. A z of 4, which contexts and experts over four ranks need, would be rare."""
    if rng.random() < 0.15:
        return list(rng.choice(((1, 1, 4, 1), (2, 1, 4, 1), (1, 2, 4, 1), (1, 1, 4, 2))))
    while True:
        grid = [rng.choice((1, 1, 2, 2, 3, 4)) for _ in range(4)]
        if 2 <= grid[0] * grid[1] * grid[2] * grid[3] <= 8:
            return grid


def draw_model(rng, keys, grid, dtype):
    x, y = grid[0], grid[1]
    llama = keys["model.family"] == "llama"
    heads = x * rng.choice((1, 2, 3)) if rng.random() < 0.7 else rng.choice((3, 5, 6, 9))
    width = rng.choice((8, 16, 24)) if dtype == "f32" else rng.choice((16, 32))
    keys |= {"model.layers": rng.choice((1, 2, 2, 3)), "model.heads": heads}
    if rng.random() < 0.3:
        keys |= {"model.head_dim": width, "model.hidden": y * rng.choice((12, 20, 32))}
    else:
        hidden = heads * width
        while hidden % y:
            hidden += heads * width
        keys["model.hidden"] = hidden
        if hidden // heads % 2:
            keys["model.head_dim"] = width
    keys["model.kv_heads"] = rng.choice([k for k in range(1, heads + 1) if heads % k == 0])
    keys["model.ffn"] = rng.choice((32 * x, 40 * x, 56 * x, 96 * x, 37, 53))
    keys["model.vocab"] = rng.choice((256, 257, 263, 290))
    keys["model.tied"] = rng.choice((True, False))
    if not llama:
        keys["model.bias"] = rng.choice((True, False))
        return
    for bias in ("qkv_bias", "out_bias", "mlp_bias"):
        keys[f"model.{bias}"] = rng.choice((True, False))
    keys["model.qk_norm"] = rng.choice(("none", "head", "width", "rotated-head", "rotated-plain"))
    keys["model.rope_scaling"] = rng.choice(
        ("none", "none", "llama3", "yarn", "longrope", "linear"))
    keys["model.rope_pairs"] = rng.choice(("halves", "halves", "neighbours"))
    keys["model.norm_plus_one"] = rng.random() < 0.2
    for scale in ("embedding_scale", "residual_scale", "logit_scale", "attention_scale"):
        if rng.random() < 0.2:  # larger scores and residuals make rounding count more
            large = {"attention_scale": 1, "residual_scale": 1.5}.get(scale, 3)
            keys[f"model.{scale}"] = rng.choice((0.25, 0.5, large))
    if rng.random() < 0.2:
        keys |= {"model.query_growth": 0.3, "model.rope_original_positions": 8}
    keys["model.partial_rotary_factor"] = rng.choice((1, 1, 0.5))
    if keys["model.rope_scaling"] == "yarn":
        keys |= {"model.rope_factor": 4.0, "model.rope_original_positions": rng.choice((8, 64))}
    if keys["model.rope_scaling"] == "longrope":
        draw_longrope(rng, keys)
    keys["model.block_norm"] = rng.choice(("input", "input", "output", "both", "parallel"))
    keys["model.norm"] = rng.choice(("rms", "rms", "layer", "layer-without-bias"))
    if rng.random() < 0.3:
        keys["model.nope_layers"] = draw_layers(rng, keys)
    for cap in ("score_cap", "logit_cap"):
        if rng.random() < 0.1:
            keys[f"model.{cap}"] = rng.choice((1.5, 30.0))
    keys["model.sinks"] = rng.random() < 0.15
    gates = ("geglu", "clamped-swiglu")
    if rng.random() < 0.5:
        draw_experts(rng, keys, grid)
        if not {"model.shared_ffn", "model.dense_layers"} & keys.keys():
            keys["model.mlp_bias"] = False
        for bias in ("expert_bias", "router_logit_bias"):
            keys[f"model.{bias}"] = rng.random() < 0.2
        if rng.random() < 0.2:
            keys["model.activation"] = rng.choice(gates)
    elif rng.random() < 0.4:
        keys["model.activation"] = rng.choice(("xielu", "gelu", "relu2", *gates))
    if keys.get("model.activation") == "clamped-swiglu":
        keys["model.swiglu_limit"] = rng.choice((0.5, 7.0))
    if rng.random() < 0.12:
        draw_latents(rng, keys, grid)
    elif rng.random() < 0.2:
        keys["model.attention_gate"] = True
    # In bf16 the direction of a key that is near 0, which is made as long as others, is chance.
    if keys["model.layers"] > 1 and dtype == "f32" and rng.random() < 0.25:
        draw_delta(rng, keys)


def draw_latents(rng, keys, grid):
    """Latent attention, of as many columns as the grid can cut."""
    x, y = grid[:2]
    for key in ("kv_heads", "head_dim"):
        keys.pop(f"model.{key}", None)
    rotated = 2 * x * rng.choice((1, 3))
    keys |= {"model.kv_lora_rank": x * y * rng.choice((4, 6)), "model.qk_rope_head_dim": rotated,
             "model.q_lora_rank": x * y * rng.choice((0, 5, 8)), "model.qk_norm": "none",
             "model.qk_nope_head_dim": rng.choice((1, 6, 8)), "model.sinks": False,
             "model.v_head_dim": rng.choice((3, 8, 20)), "model.partial_rotary_factor": 1}  # fmt: skip
    if keys["model.rope_scaling"] == "longrope":
        keys["model.rope_scaling"] = "none"
        for key in [key for key in keys if key.startswith("model.rope_") and "factor" in key]:
            keys.pop(key)


def draw_delta(rng, keys):
    """Layers with gated delta nets, of any number of heads."""
    heads = rng.choice((1, 2, 3, 4))
    keys |= {"model.delta_layers": draw_layers(rng, keys, keys["model.layers"] - 1),
             "model.delta_key_heads": heads,
             "model.delta_value_heads": heads * rng.choice((1, 2, 3)),
             "model.delta_key_dim": rng.choice((3, 8, 16)),
             "model.delta_value_dim": rng.choice((5, 8, 24)),
             "model.delta_taps": rng.choice((2, 3, 4, 5, 11))}  # fmt: skip


def draw_longrope(rng, keys):
    width = keys.get("model.head_dim") or keys["model.hidden"] // keys["model.heads"]
    pairs = int(width * keys["model.partial_rotary_factor"]) // 2
    for kind in ("short", "long"):
        factors = [rng.choice((1.0, 1.5, 4.25)) for _ in range(pairs)]
        keys[f"model.rope_{kind}_factors"] = ",".join(map(str, factors))
    keys |= {"model.rope_factor": 4.0, "model.rope_original_positions": rng.choice((8, 64))}


def draw_layers(rng, keys, most=3):
    """Some layers, at most `most` of them, as a list on a command line."""
    layers = range(keys["model.layers"])
    return ",".join(map(str, sorted(rng.sample(layers, rng.randint(1, min(most, len(layers)))))))


def draw_window(rng, keys, window):
    """A window, perhaps not of all layers, nor with the rotary frequencies of the others."""
    keys["model.window"] = window
    if keys["model.layers"] > 1 and rng.random() < 0.4:
        keys["model.full_layers"] = draw_layers(rng, keys, keys["model.layers"] - 1)
    if rng.random() < 0.2:
        keys["model.window_rope_theta"] = 500.0
    if keys["model.rope_scaling"] != "none" and rng.random() < 0.3:
        keys["model.window_rope_scaling"] = False


def draw_differing_layers(rng, keys, grid):
    """Options by which layers with the window, or without rotary positions, differ from others."""
    latents, gate = "model.kv_lora_rank" in keys, "model.attention_gate" in keys
    delta, several = "model.delta_layers" in keys, keys["model.layers"] > 1
    if keys.get("model.window", 0):
        keys["model.window_chunks"] = rng.random() < 0.15
    if "model.nope_layers" in keys and not latents and rng.random() < 0.4:
        keys |= {"model.nope_query_growth": 0.3, "model.nope_query_positions": rng.choice((3, 8))}
    if "model.shared_ffn" in keys and keys["model.block_norm"] == "both":
        keys["model.expert_block_norms"] = rng.random() < 0.5
    if keys.get("model.expert_block_norms"):
        keys["model.shared_gate"] = False
    elif "model.experts" in keys and not keys["model.expert_bias"]:
        keys["model.expert_input_scores"] = rng.random() < 0.15
    keys["model.value_norm"] = not latents and rng.random() < 0.15
    if keys["model.block_norm"] == "parallel":
        return
    keys["model.layer_factor"] = rng.random() < 0.15
    if rng.random() < 0.15:
        keys["model.layer_input"] = 6 * grid[0]
    plain = keys["model.qk_norm"] in ("none", "head", "rotated-head")
    if several and plain and not (latents or gate or delta) and rng.random() < 0.2:
        keys |= {"model.shared_kv_layers": 1, "model.double_shared_ffn": rng.choice((True, False))}
        # The last layer needs one before it that sees as many positions.
        keys.pop("model.full_layers", None)
    if "model.full_layers" in keys and plain and not (latents or gate) and rng.random() < 0.5:
        keys["model.full_values_are_keys"] = rng.choice((True, False))
        if keys["model.rope_scaling"] != "longrope":
            keys["model.full_head_dim"] = rng.choice((8, 12))
        keys["model.full_kv_heads"] = rng.choice((1, keys["model.heads"]))
        if keys["model.rope_scaling"] == "none":
            keys |= {"model.rope_scaling": "proportional", "model.rope_share": 0.5,
                     "model.window_rope_scaling": False}  # fmt: skip


def draw_experts(rng, keys, grid):
    experts, several = rng.choice((2, 4, 4, 6, 8)), keys["model.layers"] > 1
    keys |= {
        "model.experts": experts,
        "model.experts_per_token": rng.randint(1, min(3, experts)),
        "model.expert_ffn": rng.choice((16 * grid[0], 24 * grid[0], 19)),
        "model.expert_norm": rng.choice((True, False)),
        "model.expert_step": rng.choice((1, 1, 2)) if several else 1,
        "model.router": rng.choice(("softmax", "sigmoid")),
        "training.balance.weight": rng.choice((0, 0.01)),
        "training.balance.scope": rng.choice(("sequence", "batch", "hugging_face")),
        "training.balance.z": rng.choice((0, 0.001)),
        "parallelism.experts": rng.choice([e for e in (1, 2, 2, 4, 4)
                                           if grid[2] % e == 0 and experts % e == 0]),
    }  # fmt: skip
    if several and keys["model.expert_step"] == 1 and rng.random() < 0.3:
        keys["model.dense_layers"] = 0
    if rng.random() < 0.3:
        keys["model.router_scale"] = 2.5
    if experts % 2 == 0 and rng.random() < 0.3:
        keys |= {"model.expert_groups": 2, "model.expert_groups_per_token": 2}
        if keys["model.experts_per_token"] <= experts // 2:
            keys["model.expert_groups_per_token"] = 1
        keys["model.expert_group_best"] = rng.choice((1, 2))
    if rng.random() < 0.3:
        keys["model.shared_ffn"] = 24 * grid[0]
        keys["model.shared_gate"] = rng.choice((True, False))
    if rng.random() < 0.4:
        keys |= {"model.router_bias": True, "training.balance.bias": rng.choice((0, 0.01))}


def draw_rows(rng, keys, grid):
    """The data, the length of sequences, how they are cut, windows and documents."""
    z, data = grid[2], grid[3]
    context = rng.choice([c for c in (1, 2, 2, 4, 4) if z % c == 0])
    if context > 1:
        keys["parallelism.context"] = context
        keys["training.seq_len"] = length = 2 * BLOCK * context * rng.choice((1, 1, 1, 2))
        keys["parallelism.context_layout"] = rng.choice(("auto", "zigzag", "balanced", "window"))
        if "model.delta_layers" in keys and keys["parallelism.context_layout"] == "window":
            keys["parallelism.context_layout"] = "balanced"  # delta nets see all positions
    else:
        keys["training.seq_len"] = length = rng.choice((2, 7, 24, 33, 64, 65, 130))
    if keys["model.family"] == "llama" and rng.random() < 0.8:
        piece = length // context
        borders = [b for b in (2, BLOCK, piece - BLOCK, piece, length // 2, length) if b > 1]
        draw_window(rng, keys, near(rng, *borders))
    if keys["model.family"] == "llama":
        draw_differing_layers(rng, keys, grid)
    documents = rng.choice(("joined", "joined", "separate", "packed", "apertus", "lines"))
    if documents == "lines":
        keys["data.jsonl"] = "lines.jsonl"
        keys["data.excess_length_strategy"] = rng.choice(("split", "truncate"))
    elif documents != "joined":
        keys |= {"data.documents": documents, "data.eod": 10}
    if rng.random() < 0.2:
        keys["data.shuffle"] = False
    if rng.random() < 0.2:
        keys["data.forget"] = "forget_lines.jsonl" if documents == "lines" else "forget.jsonl"
    chunks = rng.choice((1, 1, 2, 3))
    micro, places = chunks * rng.choice((1, 2)), z // context * data
    if micro * places * length > MOST_TOKENS:
        micro = chunks
    # On another grid, each of several micro-batches of all ranks has other sequences.
    several = keys.get("training.balance.scope", "sequence") == "sequence"
    fits = micro * places * length <= MOST_TOKENS
    times = rng.choice((1, 2, 3)) if several and fits else 1
    batch, fewer = micro * places * times, 0
    if chunks == 1 and rng.random() < 0.4:  # chunks must divide what each place has of the batch
        most = micro * places - 1 if times > 1 else places - 1
        fewer = rng.randint(0, max(0, min(most, batch - max(2, FEWEST_TOKENS // length))))
    keys["training.micro_batch"] = micro
    keys["training.global_batch"] = batch - fewer
    keys["parallelism.chunks"] = chunks
    if times > 1 and rng.random() < 0.6:  # also in axonn check, which chooses micro-batches
        first = micro * places
        early = rng.randint(1, batch - fewer - 1) if fewer else first
        if times == 2 or rng.random() < 0.5:
            keys["training.batch_stages"] = f"{early} {early}"
        else:
            keys["training.batch_ramp"] = f"{first - fewer} {first} {2 * first}"


def draw_losses(rng, keys):
    if rng.random() < 0.3:
        keys["training.z_loss"] = 1e-3
    if rng.random() < 0.3:
        keys["training.goldfish.k"] = rng.choice((2, 4))
        keys["training.goldfish.h"] = rng.choice((1, 13))
        keys["training.goldfish.mask"] = rng.choice(("hash", "static", "seeded", "apertus"))


def draw_optimizer(rng, keys):
    kind = rng.choice(
        ("adamw", "adamw", "sgd", "ademamix", "muon", "lion", "schedule_free_adamw", "adafactor")
    )
    schedule_free = kind == "schedule_free_adamw"
    keys["optimizer.kind"] = kind
    keys["optimizer.weight_decay"] = rng.choice((0, 0.1))
    keys["training.max_norm"] = rng.choice((0, 0.1, 1))
    if keys["training.max_norm"]:
        keys["training.norm_type"] = rng.choice((2, 2, 1, 3, math.inf))
    elif rng.random() < 0.5:
        keys["training.clip_value"] = 0.01
    schedules = ("constant", "linear", "cosine", "wsd")
    keys["lr_scheduler.kind"] = "constant" if schedule_free else rng.choice(schedules)
    if rng.random() < 0.3:
        keys["lr_scheduler." + rng.choice(("warmup_steps", "warmup_samples"))] = 2
    if not schedule_free and rng.random() < 0.3:
        keys["optimizer.ema_decay"] = 0.9
    if kind not in ("schedule_free_adamw", "adafactor") and rng.random() < 0.3:
        keys["optimizer.moments"] = rng.choice(("bf16", "8bit"))
    if kind == "lion":  # a sum in another order may turn the sign of a mean near 0
        keys["optimizer.lr"] = 1e-5
    if kind == "sgd" and rng.random() < 0.7:
        keys |= {"optimizer.sgd_momentum": 0.9, "optimizer.sgd_nesterov": rng.choice((True, False))}
    if kind == "adafactor":
        keys |= {"optimizer.adafactor_form": rng.choice(("paper", "pytorch")),
                 "optimizer.adafactor_beta1": rng.choice((0, 0.9)),
                 "optimizer.relative_step": rng.choice((True, False)),
                 "optimizer.scale_parameter": rng.choice((True, False))}  # fmt: skip
    if kind == "ademamix":
        keys |= {"optimizer.alpha_warmup": rng.choice((0, 3)),
                 "optimizer.beta3_warmup": rng.choice((0, 3))}  # fmt: skip
    if kind == "muon":
        keys |= {"optimizer.nesterov": rng.choice((True, False)),
                 "optimizer.muon_scale": rng.choice(("rms", "shape")),
                 "optimizer.muon_coefficients": rng.choice(("keller", "schedule"))}  # fmt: skip
        return
    if rng.random() < 0.3:
        keys["lora.rank"] = rng.choice((1, 3))
        if rng.random() < 0.4:
            keys["lora.dropout"] = 0.2
        elif rng.random() < 0.4:
            keys["lora.dora"] = True
        if "model.kv_lora_rank" in keys:
            keys["lora.targets"] = rng.choice(("kv_b_proj,o_proj", "kv_a_proj_with_mqa"))
        elif keys["model.family"] == "llama" and rng.random() < 0.4:
            keys["lora.targets"] = rng.choice(("q_proj,v_proj", "k_proj", "o_proj,q_proj"))
        if rng.random() < 0.4:
            keys["lora.layers"] = rng.choice((0, keys["model.layers"] - 1))
        if "q_proj" in keys.get("lora.targets", "q_proj") and rng.random() < 0.4:
            name = "c_attn" if keys["model.family"] == "gpt" else "q_proj"
            keys["lora.rank_pattern"] = f"{name} 2"
            keys["lora.alpha_pattern"] = f"{name} 5"
        if rng.random() < 0.3:
            ends = {"gpt": ("wte", "ln_f", "lm_head"), "opt": ("embed_tokens", "lm_head")}
            keys["lora.modules"] = rng.choice(ends.get(keys["model.family"], ("norm", "lm_head")))
        if "lora.targets" in keys and not {"lora.dropout", "lora.dora"} & keys.keys():
            keys["lora.targets"] += rng.choice(("", ",lm_head"))
    elif kind in ("adamw", "ademamix") and rng.random() < 0.25 and not (
        {"model.kv_lora_rank", "model.delta_layers", "model.layer_input"} & keys.keys()
    ):
        keys["model.mup_base"] = rng.choice((8, 48))
        keys.pop("model.attention_scale", None)  # factors that muP has of its own
        keys.pop("model.norm_plus_one", None)
        keys["model.mup_base_head_dim"] = rng.choice((0, 8))


def draw_parallelism(rng, keys, dtype):
    mode = rng.choice(("none", "none", "light", "full", "values"))
    if mode != "none":
        keys["activation_checkpoint.mode"] = mode
    if mode == "values":
        names = ("norms", "activations", "heads", "attention", "qkv", "up", "residual")
        keys["activation_checkpoint.values"] = ",".join(rng.sample(names, rng.choice((1, 2, 4))))
    elif mode != "full" and rng.random() < 0.3:
        keys["activation_checkpoint.blocks"] = 1
    elif mode == "full" and "model.experts" in keys and rng.random() < 0.5:
        keys["activation_checkpoint.keep_dispatch"] = True
    for switch in ("input_gradients", "weight_gradients", "weights", "data", "context"):
        if rng.random() < 0.2:
            keys[f"parallelism.overlap_{switch}"] = False
    keys["parallelism.keep_weights"] = rng.choice(("none", "micro_batch", "step"))
    keys["parallelism.sequence_parallel"] = rng.choice((True, True, False))
    if dtype != "f32":
        keys["parallelism.reduce_dtype"] = rng.choice(("f32", dtype))


def draw_loss_scale(rng, keys):
    # With 2^40 all steps overflow. Near the largest scale that does not, a grid whose partial sums
    # are larger than those of one rank may overflow alone.
    if rng.random() < 0.3:
        keys["training.loss_scale.fixed"] = rng.choice((128, 1024))
        return
    keys |= {
        "training.loss_scale.initial": float(2 ** rng.choice((8, 10, 40))),
        "training.loss_scale.window": rng.choice((1, 2, 1000)),
        "training.loss_scale.hysteresis": rng.choice((1, 1, 2)),
    }


def draw(rng):
    grid, dtype = draw_grid(rng), rng.choice(("f32", "f32", "f32", "bf16", "f16"))
    # In f32 it would count that rounding turns the slope of OPT's ReLU near 0.
    families = ("gpt", "llama", "llama", "llama", *(("opt", "opt") if dtype != "f32" else ()))
    keys = {"model.family": rng.choice(families)}
    draw_model(rng, keys, grid, dtype)
    draw_rows(rng, keys, grid)
    seed = rng.choice((1, 2))
    # Sums of products are compared in half of them, which must not raise an alarm.
    keys |= {"training.dtype": dtype, "training.seed": seed, "training.verify_products": seed == 2}
    if dtype == "f16":
        draw_loss_scale(rng, keys)
    draw_losses(rng, keys)
    draw_optimizer(rng, keys)
    draw_parallelism(rng, keys, dtype)
    other = None
    if rng.random() < 0.2:
        x, y, z, data = grid
        both = keys.get("parallelism.context", 1) > 1 or keys.get("parallelism.experts", 1) > 1
        others = ([1, 1, z, data], [1, 1, z, 1]) if both else ([1, 1, 1, z * data], [x, y, data, z])
        other = rng.choice(([1, 1, 1, 1], *others))
        if rng.random() < 0.4:
            keys["data.validation"] = 0.05
        if rng.random() < 0.2:
            keys["training.verify_every"] = 2
    if keys.get("optimizer.kind") != "muon" and rng.random() < 0.2:
        keys["offload.dir"] = "of the build"  # Trial.command()
    return Training(keys, grid, other, rng.random() < 1 / 15)


COUNTED = (
    "model.family model.layers model.tied model.bias model.qkv_bias model.qk_norm "
    "model.out_bias model.mlp_bias model.partial_rotary_factor model.rope_pairs "
    "model.norm_plus_one model.embedding_scale model.attention_scale model.residual_scale "
    "model.logit_scale model.query_growth model.shared_ffn "
    "model.expert_groups model.expert_group_best model.norm "
    "model.sinks model.score_cap model.logit_cap model.expert_bias model.router_logit_bias "
    "model.swiglu_limit model.kv_lora_rank model.q_lora_rank "
    "model.attention_gate model.delta_layers model.delta_taps model.shared_gate "
    "model.window_chunks model.nope_query_growth model.expert_block_norms "
    "model.expert_input_scores model.value_norm model.layer_factor model.layer_input "
    "model.shared_kv_layers model.double_shared_ffn model.full_values_are_keys "
    "model.full_head_dim model.full_kv_heads "
    "model.rope_scaling model.block_norm model.nope_layers model.full_layers "
    "model.window_rope_theta model.window_rope_scaling model.activation model.experts_per_token "
    "model.expert_norm model.expert_step model.dense_layers model.router model.router_scale "
    "model.router_bias model.mup_base data.documents data.excess_length_strategy data.shuffle "
    "data.forget "
    "data.validation training.dtype training.loss_scale.fixed training.loss_scale.initial "
    "training.loss_scale.window training.loss_scale.hysteresis training.max_norm training.norm_type training.clip_value "
    "training.z_loss training.goldfish.k training.goldfish.mask "
    "training.balance.scope training.balance.weight training.balance.bias training.balance.z "
    "optimizer.kind optimizer.weight_decay optimizer.ema_decay optimizer.moments "
    "optimizer.beta3_warmup "
    "optimizer.sgd_momentum optimizer.sgd_nesterov optimizer.nesterov optimizer.muon_scale "
    "optimizer.muon_coefficients optimizer.adafactor_form optimizer.adafactor_beta1 "
    "optimizer.relative_step optimizer.scale_parameter lr_scheduler.kind "
    "lora.rank lora.dropout lora.dora lora.modules lora.layers lora.rank_pattern "
    "activation_checkpoint.mode activation_checkpoint.blocks "
    "parallelism.context parallelism.context_layout parallelism.experts parallelism.chunks "
    "parallelism.overlap_input_gradients parallelism.overlap_weight_gradients "
    "parallelism.overlap_weights parallelism.overlap_data parallelism.overlap_context "
    "parallelism.keep_weights "
    "parallelism.sequence_parallel parallelism.reduce_dtype"
).split()


# Lists of layers and sizes that follow the grid, of which only counts whether there is one.
LISTS = ("model.nope_layers", "model.full_layers", "model.shared_ffn", "model.kv_lora_rank",
         "model.q_lora_rank", "model.delta_layers", "model.layer_input", "model.full_kv_heads",
         "lora.layers")  # fmt: skip


def window_of(keys):
    """Where the window ends: the name of the border that is near."""
    window, length = keys.get("model.window", 0), keys["training.seq_len"]
    piece = length // keys.get("parallelism.context", 1)
    borders = {"piece - block": piece - BLOCK, "piece": piece, "half": length // 2, "all": length,
               "block": BLOCK, "2": 2}  # fmt: skip
    near_to = (f"{name}{window - at:+d}" for name, at in borders.items() if abs(window - at) <= 1)
    return next(near_to, "-") if window else "none"


def size_of(keys, key):
    return "-" if key not in keys else "none" if keys[key] == 0 else "some"


def features(training):
    """The values of which pairs are counted."""
    keys, x = training.keys, training.grid[0]
    targets = keys.get("lora.targets", "-")
    return {
        "grid": "".join("1" if n == 1 else "+" for n in training.grid),
        "adapted products": targets.removesuffix(",lm_head"),
        "adapted end": targets.endswith(",lm_head"),
        "resumed": training.other is not None,
        "mpi": training.mpi,
        "window": window_of(keys),
        "heads": "uneven" if keys["model.heads"] % x else "even",
        "key heads": "shared" if keys.get("model.kv_heads", keys["model.heads"]) % x else "whole",
        "width": "uneven" if keys["model.ffn"] % x else "even",
        "vocabulary": "padded" if keys["model.vocab"] % x else "whole",
        "batches": "ramp" if "training.batch_ramp" in keys
        else "stages" if "training.batch_stages" in keys else "equal",
        "share": "uneven" if keys["training.global_batch"] % (
            keys["training.micro_batch"] * training.places(training.grid)) else "even",
        "warm-up": next((k for k in keys if k.startswith("lr_scheduler.warmup")), "-"),
        **{key: size_of(keys, key) if key in LISTS else keys.get(key, "-") for key in COUNTED},
    }  # fmt: skip


class Pairs:
    """The pairs of values that trainings have together."""

    def __init__(self):
        self.numbers = {}  # of a value -> its number, a bit below
        self.together = []  # of each value, the values that occurred with it

    def add(self, training):
        """Whether the training brings a new pair."""
        here = [self.numbers.setdefault(value, len(self.numbers))
                for value in features(training).items()]  # fmt: skip
        self.together += [0] * (len(self.numbers) - len(self.together))
        all_here, new = sum(1 << number for number in here), False
        for number in here:
            new = new or all_here & ~self.together[number] != 0
            self.together[number] |= all_here
        return new

    def found(self):
        """The pairs, as texts."""
        names = [f"{key} = {value}" for key, value in self.numbers]
        return {f"{min(one, other)} with {max(one, other)}"
                for i, one in enumerate(names) for j, other in enumerate(names)
                if i < j and self.together[i] >> j & 1}  # fmt: skip


def draws(seed):
    """All trainings that bring a new pair of values, and a few of the others, without an end."""
    rng, pairs, others = random.Random(seed), Pairs(), 0
    while True:
        training = draw(rng)
        new = pairs.add(training)
        others += not new
        if new or others % THINNED == 0:
            yield training


def missing_pairs(count, seed, many):
    """The pairs that `many` plain draws by another seed have, but not the first `count` of
    draws(seed); and the number of pairs that these have."""
    reached, plain, rng = Pairs(), Pairs(), random.Random(seed + 1)
    for training in itertools.islice(draws(seed), count):
        reached.add(training)
    for _ in range(many):
        plain.add(draw(rng))
    return sorted(plain.found() - reached.found()), len(reached.found())
