"""Hugging Face folders with random options, and other spellings of the same model.

The types are those of axonn/network/model/families. A spelling changes config.json, or the names and the
order of tensors, in a way that means the same: a reader must get the same model, to the bit. A
strange folder has an option that is not supported: a reader must refuse it by name.
"""

import json
import re
import shutil

from training_draws import draw_layers, draw_longrope

WINDOW = ("mistral", "qwen2", "qwen3")  # types of which layer_types tells the layers with it
SOME = ("ministral", "smollm3", "olmo3", "qwen2", "qwen3")  # types of which some may have it
PLAIN = {"model.qkv_bias": False, "model.out_bias": False, "model.mlp_bias": False,
         "model.partial_rotary_factor": 1, "model.qk_norm": "none",
         "model.block_norm": "input", "model.norm": "rms", "model.norm_plus_one": False,
         "model.embedding_scale": 1, "model.attention_scale": 0, "model.residual_scale": 1,
         "model.logit_scale": 1, "model.query_growth": 0}  # fmt: skip
BIASES = ("llama", "smollm3", "olmo2", "olmo3", "olmoe", "qwen3", "qwen3_moe", "apertus",
          "qwen3_5_text")  # fmt: skip
OLMO = PLAIN | {"model.qk_norm": "width", "model.block_norm": "output"}
ROUTED = {"model.router": "softmax", "model.expert_step": 1}
# Of each type the options that all its models have; a type with experts has ROUTED's.
TYPES = {
    "llama": PLAIN,
    "mistral": PLAIN,
    "ministral": PLAIN,
    "smollm3": PLAIN,
    "olmo2": OLMO,
    "olmo3": OLMO,
    "mixtral": PLAIN | ROUTED | {"model.expert_norm": True},
    "olmoe": PLAIN | ROUTED | {"model.qk_norm": "width"},
    "qwen2": PLAIN | {"model.qkv_bias": True},
    "qwen3": PLAIN | {"model.qk_norm": "head"},
    "qwen3_moe": PLAIN | ROUTED | {"model.qk_norm": "head"},
    "apertus": PLAIN | {"model.qk_norm": "head", "model.activation": "xielu"},
    "phi3": PLAIN | {"model.type": "phi3"},
    "seed_oss": PLAIN | {"model.type": "seed_oss"},
    "qwen3_5_text": PLAIN | {"model.qk_norm": "head", "model.norm_plus_one": True,
                             "model.attention_gate": True},
}  # fmt: skip
# What a missing key means, where that depends on the type.
EPS = {"mixtral": 1e-5, "olmoe": 1e-5, "olmo2": 1e-5, "olmo3": 1e-5, "apertus": 1e-5,
       "phi3": 1e-5}  # fmt: skip


def as_type(rng, keys, name, length):
    """Changes the options of a drawn Llama to those of a type."""
    fixed, layers = TYPES[name], keys["model.layers"]
    of_experts = ("model.dense_layers", "model.shared_ffn", "model.shared_gate")
    for key in [k for k in keys if "expert" in k or "router" in k or k in of_experts
                or k == "model.attention_gate" or ("delta" in k and name != "qwen3_5_text")]:  # fmt: skip
        del keys[key]
    keys.pop("model.activation", None)
    keys.pop("model.nope_layers", None)
    keys |= fixed
    if "model.router" in fixed:
        keys["model.experts"] = experts = rng.choice((2, 4, 5))
        keys["model.experts_per_token"] = rng.randint(1, min(3, experts))
        keys["model.expert_ffn"] = keys["model.ffn"]
        keys.setdefault("model.expert_norm", rng.choice((True, False)))
    if name == "qwen3_moe" and layers > 1:
        keys["model.expert_step"] = rng.choice((1, 2))
        if keys["model.expert_step"] == 1 and rng.random() < 0.5:
            keys["model.dense_layers"] = rng.randrange(layers)
    if name == "smollm3":
        keys["model.nope_layers"] = draw_layers(rng, keys)
    if name == "ministral":
        keys["model.layers"] = max(2, layers)
    if name in BIASES:
        keys["model.qkv_bias"] = keys["model.out_bias"] = rng.choice((True, False))
    if name in ("llama", "smollm3"):
        keys["model.mlp_bias"] = rng.choice((True, False))
    if name == "seed_oss":
        keys |= {f"model.{bias}": rng.choice((True, False))
                 for bias in ("qkv_bias", "out_bias", "mlp_bias")}  # fmt: skip
    if name in ("olmoe", "apertus", "phi3"):  # their heads are as wide as the model
        keys.pop("model.head_dim", None)
        keys["model.hidden"] = 24 * keys["model.heads"]
    elif name in ("mistral", "ministral", "olmo3") or (
        name not in ("llama", "olmo2", "seed_oss", "qwen3_5_text") and rng.random() < 0.4
    ):
        keys["model.window"] = rng.choice((1, 7, length - 1, length))
        several = keys["model.layers"] > 1 and name in SOME
        if name == "ministral" or (several and rng.random() < 0.6):
            keys["model.full_layers"] = draw_layers(rng, keys, keys["model.layers"] - 1)
    if name == "olmo3":
        keys["model.window_rope_theta"] = rng.choice((0, 700.0))
        keys["model.window_rope_scaling"] = rng.choice((True, False))
    if name == "qwen3_5_text":
        keys["model.partial_rotary_factor"] = rng.choice((1, 0.5))
    if name == "phi3":
        keys["model.rope_scaling"] = rng.choice(("none", "longrope"))
        keys["model.partial_rotary_factor"] = rng.choice((1, 0.5))
    elif name in ("olmo3", "qwen3_5_text") and keys["model.rope_scaling"] == "longrope":
        keys["model.rope_scaling"] = "none"
    for key in [k for k in keys if k.startswith("model.rope_") and k != "model.rope_scaling"]:
        del keys[key]
    if keys["model.rope_scaling"] == "longrope":
        draw_longrope(rng, keys)


def as_gpt2(rng, keys):
    """Or as OPT, which may have products without biases."""
    keys.pop("model.head_dim", None)
    keys["model.hidden"] = hidden = 24 * keys["model.heads"]
    keys |= {"model.kv_heads": keys["model.heads"],
             "model.ffn": rng.choice((keys["model.ffn"], 4 * hidden))}  # fmt: skip
    if keys["model.family"] == "gpt":
        keys["model.bias"] = True


def draw_numbers(rng, keys, length):
    opt = keys["model.family"] == "opt"
    keys["model.norm_eps"] = 1e-5 if opt else rng.choice((1e-5, 1e-6, 3e-7))
    keys["model.init_std"] = rng.choice((0.02, 0.3))
    keys["model.positions"] = rng.choice((length, 3 * length))
    if keys["model.family"] != "llama":
        return
    keys["model.rope_theta"] = rng.choice((10000.0, 500000.0, 12345.678))
    if keys.get("model.rope_scaling") == "llama3":
        low = rng.choice((0.5, 1.0, 1.7))
        keys |= {"model.rope_factor": rng.choice((2.0, 8.0, 32.0)),
                 "model.rope_low_freq_factor": low,
                 "model.rope_high_freq_factor": low + rng.choice((0.25, 3.0)),
                 "model.rope_original_positions": rng.choice((7, length, 8192))}  # fmt: skip
    if keys.get("model.rope_scaling") == "yarn":
        keys |= {"model.rope_factor": rng.choice((2.0, 8.0)),
                 "model.rope_original_positions": rng.choice((7, length, 8192)),
                 "model.rope_beta_fast": rng.choice((3.0, 32.0)),
                 "model.rope_attention_factor": rng.choice((0, 1.0, 1.3)),
                 "model.rope_truncate": True if "model.window_rope_scaling" in keys
                 else rng.choice((True, False))}  # fmt: skip


def without(config, keys, rng):
    """Leaves out some keys that are there with these values, the ones that a missing key means."""
    for key, value in keys.items():
        if key in config and config[key] == value and rng.random() < 0.5:
            del config[key]


def respell_rope(config, rng):
    """rope_scaling, its older and newer keys, or rope_parameters, which has rope_theta, too."""
    scaling = config.get("rope_scaling")
    positions = "original_max_position_embeddings"
    if config["model_type"] == "olmo3":
        if scaling and rng.random() < 0.5:
            del config["rope_scaling"]
        return
    if config["model_type"] == "phi3":
        if scaling:
            scaling["type"] = rng.choice(("longrope", "su", "yarn"))
        return
    if scaling and positions in scaling and rng.random() < 0.3:
        config[positions] = scaling.pop(positions)
    form = rng.choice(("as it is", "type", "parameters", "both"))
    if form == "type" and scaling:
        scaling["type"] = scaling.pop("rope_type")
    elif form == "type":
        config["rope_scaling"] = rng.choice(({"type": "default"}, {"rope_type": "default"}))
    elif form == "parameters":
        whole = scaling or {"rope_type": "default"}
        config["rope_parameters"] = {"rope_theta": config.pop("rope_theta"), **whole}
        config.pop("rope_scaling", None)
        if rng.random() < 0.3:
            config["rope_scaling"] = None
    elif form == "both":
        whole = scaling or {"rope_type": "default"}
        config["rope_scaling"] = {"rope_theta": config["rope_theta"], **whole}


def respell_window(config, name, rng):
    """Which layers have the window: layer_types, or Qwen's max_window_layers."""
    window, layers = config.get("sliding_window"), config["num_hidden_layers"]
    if name in WINDOW and "layer_types" not in config and rng.random() < 0.5:
        kind = "sliding_attention" if window else "full_attention"
        config["layer_types"] = [kind] * layers
        config.pop("max_window_layers", None)
    elif name in ("qwen2", "qwen3", "qwen3_moe") and not window and rng.random() < 0.5:
        config |= {"sliding_window": 16, "use_sliding_window": False}
    if name == "mixtral" and not window and rng.random() < 0.5:
        del config["sliding_window"]


def respell_gpt2(config, rng):
    without(config, {"layer_norm_epsilon": 1e-5, "tie_word_embeddings": True,
                     "activation_function": "gelu_new"}, rng)  # fmt: skip
    if config["n_inner"] == 4 * config["n_embd"]:
        config["n_inner"] = None
    for one, other in (("n_layer", "num_hidden_layers"), ("n_embd", "hidden_size"),
                       ("n_positions", "max_position_embeddings")):  # fmt: skip
        if rng.random() < 0.3:
            config[other] = config.pop(one)


def respell_opt(config, rng):
    without(config, {"tie_word_embeddings": True, "activation_function": "relu",
                     "enable_bias": True, "do_layer_norm_before": True,
                     "_remove_final_layer_norm": False, "layer_norm_elementwise_affine": True,
                     "word_embed_proj_dim": config["hidden_size"], "layerdrop": 0.0,
                     "dropout": 0.0}, rng)  # fmt: skip


def respell_config(config, rng):
    """The same model in other words."""
    name, types_eps = config["model_type"], EPS.get(config["model_type"], 1e-6)
    if name == "gpt2":
        respell_gpt2(config, rng)
    elif name == "opt":
        respell_opt(config, rng)
    elif name in TYPES:
        respell_rope(config, rng)
        respell_window(config, name, rng)
        if config["head_dim"] * config["num_attention_heads"] == config["hidden_size"]:
            config["head_dim"] = rng.choice((config["head_dim"], None))
        if config["num_key_value_heads"] == config["num_attention_heads"] and rng.random() < 0.5:
            config["num_key_value_heads"] = None
        without(config, {"rms_norm_eps": types_eps, "tie_word_embeddings": name == "smollm3",
                         "hidden_act": "xielu" if name == "apertus" else "silu"}, rng)  # fmt: skip
        without(config, {"attention_bias": name == "seed_oss", "attention_out_bias": False,
                         "mlp_bias": False, "attention_dropout": 0.0,
                         "clip_qkv": None, "router_jitter_noise": 0.0, "decoder_sparse_step": 1,
                         "mlp_only_layers": []}, rng)  # fmt: skip
        if name in ("olmoe", "qwen3_moe"):
            without(config, {"norm_topk_prob": False}, rng)
        experts = {"num_experts", "num_local_experts"}
        for there in experts & config.keys():
            config[rng.choice(sorted(experts))] = config.pop(there)
    if rng.random() < 0.5:
        config["dtype"] = config.pop("torch_dtype")
    without(config, {"use_cache": True, "bos_token_id": None, "pad_token_id": None}, rng)
    config |= rng.choice(({}, {"transformers_version": "5.0.0", "_name_or_path": "somewhere"}))
    items = list(config.items())
    rng.shuffle(items)
    return dict(items)


def read_tensors(path):
    """name -> (dtype, shape, bytes), and the other entries of the header."""
    data = path.read_bytes()
    begin = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:begin])
    other = header.pop("__metadata__", None)
    return {name: (entry["dtype"], entry["shape"],
                   data[begin + entry["data_offsets"][0] : begin + entry["data_offsets"][1]])
            for name, entry in header.items()}, other  # fmt: skip


def write_tensors(path, tensors, other):
    header, at = {"__metadata__": other} if other else {}, 0
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(len(text).to_bytes(8, "little") + text
                     + b"".join(data for _, _, data in tensors.values()))  # fmt: skip


def joined_experts(tensors):
    """Joins the matrices of all experts of a layer: gate_up_proj (E, 2F, C), each expert's gate
    first, and down_proj (E, C, F), as transformers 5 does."""
    left, parts = {}, {}
    for name, tensor in tensors.items():
        name = name.replace(".block_sparse_moe.", ".mlp.")
        for old, new in (("w1", "gate_proj"), ("w3", "up_proj"), ("w2", "down_proj")):
            name = name.replace(f".{old}.weight", f".{new}.weight")
        if ".experts." not in name:
            left[name] = tensor
            continue
        layer, rest = name.split(".experts.")
        number, matrix, _ = rest.split(".")
        parts.setdefault(layer, {})[int(number), matrix] = tensor
    for layer, of in parts.items():
        experts = 1 + max(number for number, _ in of)
        for joined, names in (("gate_up_proj", ("gate_proj", "up_proj")),
                              ("down_proj", ("down_proj",))):  # fmt: skip
            all_of = [of[i, name] for i in range(experts) for name in names]
            dtype, (rows, cols), _ = all_of[0]
            data = b"".join(data for _, _, data in all_of)
            left[f"{layer}.experts.{joined}"] = (dtype, [experts, len(names) * rows, cols], data)
    return left


def make_strange(folder, rng):
    """Adds an option that is not supported; returns the name that the refusal must have."""
    path = folder / "config.json"
    config = json.loads(path.read_text())
    name, layers = config["model_type"], config.get("num_hidden_layers", 1)
    strange = [("quantization_config", {"bits": 4}), ("is_causal", False), ("model_type", "rwkv")]
    if name == "gpt2":
        strange.append(("scale_attn_by_inverse_layer_idx", True))
    elif name == "opt":
        strange += [("do_layer_norm_before", False), ("activation_function", "gelu")]
    elif name in TYPES:
        strange += [("hidden_act", "gelu"),
                    ("rope_scaling", {"rope_type": "dynamic", "factor": 2.0})]  # fmt: skip
    if name in TYPES and name not in ("phi3", "qwen3_5_text"):
        strange.append(("partial_rotary_factor", 0.5))
    has_window = config.get("sliding_window") and config.get("use_sliding_window", True)
    if name in (*WINDOW, *SOME) and has_window:
        strange.append(("layer_types", ["chunked_attention"] * layers))
    if name in ("olmoe", "mixtral"):
        strange.append(("clip_qkv", 8.0))
    key, value = rng.choice(strange)
    path.write_text(json.dumps({**config, key: value}))
    return "dynamic" if key == "rope_scaling" else key


def respell(folder, to, rng):
    """Copies a folder to another spelling of it."""
    shutil.rmtree(to, ignore_errors=True)
    shutil.copytree(folder, to)
    config = json.loads((to / "config.json").read_text())
    tensors, other = read_tensors(to / "model.safetensors")
    single = any(re.search(r"\.experts\.\d+\.", name) for name in tensors)
    if single and rng.random() < 0.5:
        tensors = joined_experts(tensors)
    tied = config.get("tie_word_embeddings")
    embedding = tensors.get("model.embed_tokens.weight") or tensors.get(
        "model.decoder.embed_tokens.weight")
    if tied and embedding and rng.random() < 0.5:
        tensors["lm_head.weight"] = embedding
    items = list(tensors.items())
    rng.shuffle(items)
    write_tensors(to / "model.safetensors", dict(items), other)
    (to / "config.json").write_text(json.dumps(respell_config(config, rng)))
    return to
