"""axonn convert --to gguf, compared by a reader of its own with Hugging Face's form."""
import json
import os
import sys

import numpy as np

import gguf
from program import TINY, RunTest, axonn, main

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "..", "python"))
from axonn.checkpoint import safetensors  # noqa: E402

HEADS, KV_HEADS, WIDTH = 4, 2, 16
LLAMA = TINY.replace("[model]", f'[model]\nfamily = "llama"\nkv_heads = {KV_HEADS}\n'
                     f"head_dim = {WIDTH}\nffn = 48\nrope_theta = 5000.0").replace(
                         "hidden = 32", "hidden = 64")
BLOCK = {"attn_norm": "input_layernorm", "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj",
         "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj",
         "ffn_norm": "post_attention_layernorm", "ffn_gate": "mlp.gate_proj",
         "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj",
         "attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm",
         "post_attention_norm": "post_attention_layernorm",
         "post_ffw_norm": "post_feedforward_layernorm"}


def hugging_face_name(name, others):
    """`others`: names in blocks that the type has in place of BLOCK's."""
    outer = {"token_embd.weight": "model.embed_tokens.weight",
             "output_norm.weight": "model.norm.weight", "output.weight": "lm_head.weight",
             "output_norm.bias": "model.norm.bias"}
    if name in outer:
        return outer[name]
    _, layer, part, kind = name.split(".")
    if part == "exp_probs_b":
        kind = "e_score_correction_bias"
    return f"model.layers.{layer}.{ {**BLOCK, **others}[part]}.{kind}"


def rotated(q, positions, theta, neighbours):
    """Rotary positions of q (T, H, D), in pairs D/2 apart or of neighbours."""
    half = q.shape[-1] // 2
    angles = positions[:, None] * theta ** (-np.arange(half) / half)
    cos, sin = np.cos(angles)[:, None], np.sin(angles)[:, None]
    a, b = (q[..., ::2], q[..., 1::2]) if neighbours else (q[..., :half], q[..., half:])
    return np.concatenate([a * cos - b * sin, a * sin + b * cos], -1)


class Gguf(RunTest):
    def convert(self, run, *more, name="model.gguf"):
        axonn("convert", "--model", run, "--to", "gguf", "--out", self.path(name), *more)
        return gguf.Reader(self.path(name))

    def trained(self, name="run", *more, model=""):
        """Trains a small Llama; returns the folder of its checkpoints."""
        config = LLAMA.replace("[data]", model + "\n[data]")
        return os.path.join(self.train(name, *more, config=config), "checkpoints")

    def as_folder(self, checkpoint, dtype="f32"):
        folder = self.path("folder-" + dtype)
        axonn("convert", "--model", checkpoint, "--out", folder, "--dtype", dtype, "--overwrite")
        return folder, safetensors(os.path.join(folder, "model.safetensors"))

    def check(self, found, want, interleaved, error=0.0, others=()):
        here = {name: hugging_face_name(name, dict(others)) for name in found.tensors}
        self.assertEqual(set(here.values()), set(want))
        for name, (kind, sizes, values) in found.tensors.items():
            expected = np.asarray(want[here[name]], np.float32)
            self.assertEqual(sizes, list(expected.shape[::-1]), name)
            if expected.ndim == 1:
                self.assertEqual(kind, 0, name)
            if interleaved and name.split(".")[2:3] in (["attn_q"], ["attn_k"]):
                # (heads, halves, D/2) -> (heads, D/2, halves)
                expected = expected.reshape(-1, 2, WIDTH // 2, expected.shape[1]).swapaxes(
                    1, 2).reshape(expected.shape)
            bound = error * np.abs(expected).max() if expected.ndim > 1 else 0
            self.assertLessEqual(np.abs(values - expected).max(), bound, name)

    def test_a_llama_of_any_grid_has_its_weights_sizes_and_rotary_order(self):
        checkpoint = self.trained("run", "--parallelism.grid", "2,1,2,1")
        folder, want = self.as_folder(checkpoint)
        found = self.convert(checkpoint, "--dtype", "f32")
        self.assertEqual(found.version, 3)
        self.check(found, want, interleaved=True)
        self.assertNotIn("output.weight", found.tensors)  # tied
        keys = found.keys
        for key, value in {
            "general.architecture": "llama", "general.name": "model", "general.file_type": 0,
            "llama.block_count": 2,
            "llama.context_length": 8, "llama.embedding_length": 64,
            "llama.feed_forward_length": 48, "llama.vocab_size": 256,
            "llama.attention.head_count": HEADS, "llama.attention.head_count_kv": KV_HEADS,
            "llama.attention.key_length": WIDTH, "llama.attention.value_length": WIDTH,
            "llama.rope.dimension_count": WIDTH, "llama.rope.freq_base": 5000.0,
        }.items():
            self.assertEqual(keys[key], value, key)
        self.assertAlmostEqual(keys["llama.attention.layer_norm_rms_epsilon"], 1e-5, places=12)
        self.assertNotIn("llama.attention.sliding_window", keys)
        # From the folder the same; and attention scores with neighbours as pairs are those with
        # halves as pairs.
        with open(self.path("model.gguf"), "rb") as file:
            first = file.read()
        self.convert(folder, "--dtype", "f32", name="model2.gguf")
        again = gguf.Reader(self.path("model2.gguf"))
        for name, (_, _, values) in found.tensors.items():
            np.testing.assert_array_equal(again.tensors[name][2], values)
        self.assertEqual(first[:4], b"GGUF")
        x, t = np.random.default_rng(1).normal(size=(5, 64)), np.arange(5.0)
        scores = []
        for q, k, neighbours in (
            (want["model.layers.1.self_attn.q_proj.weight"],
             want["model.layers.1.self_attn.k_proj.weight"], False),
            (found.tensors["blk.1.attn_q.weight"][2],
             found.tensors["blk.1.attn_k.weight"][2], True),
        ):
            q, k = ((x @ w.T).reshape(5, -1, WIDTH) for w in (q, k))
            q, k = (rotated(each, t, 5000.0, neighbours) for each in (q, k))
            scores.append(np.einsum("thd,shd->hts", q[:, :KV_HEADS], k))
        np.testing.assert_allclose(*scores, atol=1e-6 * np.abs(scores[0]).max())

    def test_types(self):
        checkpoint = self.trained()
        for dtype, kind in (("f16", 1), ("bf16", 30)):
            _, want = self.as_folder(checkpoint, dtype)
            found = self.convert(checkpoint, "--dtype", dtype, name=dtype)
            vectors = {name: each for name, each in self.as_folder(checkpoint)[1].items()
                       if each.ndim == 1}
            self.check(found, {**want, **vectors}, interleaved=True)
            self.assertEqual({each[0] for each in found.tensors.values()}, {0, kind})
        _, want = self.as_folder(checkpoint)
        found = self.convert(checkpoint, "--dtype", "q8_0", name="q8")
        # Half a step of 1/127 of the block's largest value, and the rounding of the f16 scale.
        self.check(found, want, interleaved=True, error=0.5 / 127 + 2.0**-11)
        self.assertEqual(found.keys["general.file_type"], 7)
        self.assertEqual(found.keys["general.quantization_version"], 2)
        kinds = {name.split(".", 2)[-1]: each[0] for name, each in found.tensors.items()}
        self.assertEqual(kinds["attn_q.weight"], 8)
        self.assertEqual(kinds["ffn_down.weight"], 1)  # 48 columns are no blocks of 32
        self.assertEqual(kinds["attn_norm.weight"], 0)

    def test_qwen_mistral_and_scaled_rope(self):
        qwen2 = self.trained("run-qwen2", model="qkv_bias = true\ntied = false")
        found = self.convert(qwen2, "--dtype", "f32", name="qwen2")
        self.assertEqual(found.keys["general.architecture"], "qwen2")
        self.assertEqual(found.keys["qwen2.block_count"], 2)
        self.assertIn("blk.0.attn_q.bias", found.tensors)
        self.assertIn("output.weight", found.tensors)
        self.check(found, self.as_folder(qwen2)[1], interleaved=False)

        qwen3 = self.trained("run-qwen3", model='qk_norm = "head"')
        found = self.convert(qwen3, "--dtype", "f32", name="qwen3")
        self.assertEqual(found.keys["general.architecture"], "qwen3")
        self.assertIn("blk.1.attn_k_norm.weight", found.tensors)
        self.check(found, self.as_folder(qwen3)[1], interleaved=False)

        apertus = self.trained("run-apertus", model='activation = "xielu"\nqk_norm = "head"')
        found = self.convert(apertus, "--dtype", "f32", name="apertus")
        self.assertEqual(found.keys["general.architecture"], "apertus")
        want = {}  # norms by the names of the other types; xIELU's numbers are keys
        for name, values in self.as_folder(apertus)[1].items():
            _, _, number = name.partition(".mlp.act_fn.")
            if number:
                layer = int(name.split(".")[2])
                self.assertEqual(np.float32(found.keys["xielu." + number][layer]), values.item())
            else:
                want[name.replace("attention_layernorm", "input_layernorm").replace(
                    "feedforward_layernorm", "post_attention_layernorm")] = values
        self.assertEqual({len(found.keys["xielu." + key])
                          for key in ("alpha_p", "alpha_n", "beta", "eps")}, {2})
        self.assertNotIn("blk.0.ffn_gate.weight", found.tensors)
        self.check(found, want, interleaved=False)

        mistral = self.trained("run-mistral", model="window = 4")
        found = self.convert(mistral, "--dtype", "f32", name="mistral")
        self.assertEqual(found.keys["general.architecture"], "llama")
        self.assertEqual(found.keys["llama.attention.sliding_window"], 4)
        self.assertEqual(found.keys["llama.context_length"], 4)
        self.check(found, self.as_folder(mistral)[1], interleaved=True)

        scaled = self.trained("run-scaled", model='rope_scaling = "llama3"\nrope_factor = 4.0\n'
                              "rope_original_positions = 64")
        found = self.convert(scaled, "--dtype", "f32", name="scaled")
        kind, sizes, factors = found.tensors.pop("rope_freqs.weight")
        self.assertEqual((kind, sizes), (0, [WIDTH // 2]))
        want = []  # of Llama 3.1's published formula
        for i in range(WIDTH // 2):
            wave = 2 * np.pi * 5000.0 ** (2 * i / WIDTH)
            smooth = np.clip((64 / wave - 1) / (4 - 1), 0, 1)
            want.append(1 / ((1 - smooth) / 4 + smooth))
        np.testing.assert_allclose(factors, want, rtol=1e-6)
        self.assertTrue(1 in want and max(want) == 4)
        self.check(found, self.as_folder(scaled)[1], interleaved=True)

    def test_olmo_smollm_and_ministral(self):
        norms = 'block_norm = "output"\nqk_norm = "width"\ntied = false\n'
        olmo = self.trained("run-olmo", model=norms)
        found = self.convert(olmo, "--dtype", "f32", name="olmo")
        self.assertEqual(found.keys["general.architecture"], "olmo2")
        self.check(found, self.as_folder(olmo)[1], interleaved=False)

        smollm = self.trained("run-smollm", "--model.layers", "4", model="nope_layers = [3]")
        found = self.convert(smollm, "--dtype", "f32", name="smollm")
        self.assertEqual(found.keys["general.architecture"], "smollm3")
        self.check(found, self.as_folder(smollm)[1], interleaved=True)

        ministral = self.trained("run-ministral", model="window = 4\nfull_layers = [0]")
        found = self.convert(ministral, "--dtype", "f32", name="ministral")
        self.assertEqual(found.keys["llama.context_length"], 4)
        self.check(found, self.as_folder(ministral)[1], interleaved=True)

        for name, model, what in (
                ("yarn", 'rope_scaling = "yarn"', "rope_scaling = yarn"),
                ("tied", norms.replace("false", "true"), "tied = true"),
                ("nope", "nope_layers = [1]", "nope_layers other than every fourth layer")):
            self.assertIn(what, axonn(
                "convert", "--model", self.trained("run-" + name, model=model), "--to", "gguf",
                "--out", self.path("x"), code=2))

    def check_type(self, architecture, model, *more, keys=(), plus_one=False, **checks):
        """A model with these options is of the architecture, with these further keys."""
        run = self.trained("run-" + architecture, *more, model=model)
        found = self.convert(run, "--dtype", "f32", name=architecture)
        self.assertEqual(found.keys["general.architecture"], architecture)
        for key, value in dict(keys).items():
            self.assertAlmostEqual(found.keys[f"{architecture}.{key}"], value, places=6, msg=key)
        want = self.as_folder(run)[1]
        if plus_one:
            want = {name: each + np.float32(1) if name.endswith("norm.weight") else each
                    for name, each in want.items()}
        self.check(found, want, **{"interleaved": False, **checks})
        return found

    def refusal(self, name, model, *more):
        run = self.trained("run-" + name, *more, model=model)
        return axonn("convert", "--model", run, "--to", "gguf", "--out", self.path("x"), code=2)

    def test_gemma(self):
        both = 'block_norm = "both"\nnorm_plus_one = true\nactivation = "geglu"\nembedding_scale = 8\n'
        others = {"ffn_norm": "pre_feedforward_layernorm"}
        second = both + 'type = "gemma2"\nscore_cap = 50\nlogit_cap = 30\nwindow = 4\n'
        self.check_type("gemma2", second + "full_layers = [1]", plus_one=True, others=others,
                        keys={"context_length": 8, "attention.sliding_window": 4,
                              "attn_logit_softcapping": 50, "final_logit_softcapping": 30})
        third = both + 'qk_norm = "head"\nwindow = 4\nfull_layers = [5]\nwindow_rope_theta = 10000\n'
        linear = 'rope_scaling = "linear"\nrope_factor = 8\nwindow_rope_scaling = false\n'
        found = self.check_type(
            "gemma3", third + linear, "--model.layers", "6", plus_one=True, others=others,
            keys={"context_length": 8, "attention.sliding_window": 4, "rope.freq_base": 5000,
                  "rope.scaling.factor": 8})
        self.assertEqual(found.keys["gemma3.rope.scaling.type"], "linear")
        for name, model, layers, what in (
                ("layers", second + "full_layers = [0]", 2, "full_layers other than the last of every 2"),
                ("scale", second + "full_layers = [1]\nattention_scale = 0.5", 2,
                 "attention_scale of a model of 2 layers"),
                ("untied", second + "full_layers = [1]\ntied = false", 2, "tied = false"),
                ("theta", third.replace("10000", "100"), 6, "window_rope_theta = 100"),
                ("scaled", third + linear.replace("false", "true"), 6,
                 "window_rope_scaling = true")):
            self.assertIn(what, self.refusal(name, model, "--model.layers", layers))

    def test_granite_cohere_and_exaone(self):
        scales = "embedding_scale = 6\nresidual_scale = 0.5\nlogit_scale = 0.25\nattention_scale = 0.2"
        self.check_type("granite", scales, interleaved=True,
                        keys={"embedding_scale": 6, "residual_scale": 0.5, "logit_scale": 4,
                              "attention.scale": 0.2})
        parallel = ('block_norm = "parallel"\nnorm = "layer-without-bias"\nwindow = 4\n'
                    'rope_pairs = "neighbours"\nlogit_scale = 0.25\n')
        self.check_type("cohere2", parallel + "full_layers = [3]\nnope_layers = [3]",
                        "--model.layers", "4",
                        keys={"logit_scale": 0.25, "attention.layer_norm_epsilon": 1e-5,
                              "context_length": 8, "attention.sliding_window": 4})
        self.assertIn("full_layers other than each fourth", self.refusal(
            "cohere", parallel + "full_layers = [1]\nnope_layers = [1]"))
        norms = 'block_norm = "output"\nqk_norm = "head"\n'
        self.check_type("exaone4", norms)
        self.assertIn("a window in 2 layers", self.refusal(
            "exaone", norms + "window = 4\nfull_layers = [1]\nnope_layers = [1]"))

    def test_starcoder_nemotron_ernie_and_hunyuan(self):
        biases = "qkv_bias = true\nout_bias = true\nmlp_bias = true\n"
        mlp = {"ffn_up": "mlp.c_fc", "ffn_down": "mlp.c_proj"}
        starcoder = 'norm = "layer"\nactivation = "gelu"\n'
        self.check_type("starcoder2", starcoder + biases, others=mlp,
                        keys={"attention.layer_norm_epsilon": 1e-5})
        self.assertIn("qkv_bias = false", self.refusal("starcoder", starcoder))
        nemotron = 'norm = "layer"\nactivation = "relu2"\nnorm_plus_one = true\n'
        self.check_type("nemotron", nemotron + biases + "partial_rotary_factor = 0.5",
                        plus_one=True, keys={"rope.dimension_count": WIDTH // 2})
        self.check_type("ernie4_5", 'rope_pairs = "neighbours"')
        heads = {"attn_q_norm": "self_attn.query_layernorm",
                 "attn_k_norm": "self_attn.key_layernorm"}
        self.check_type("hunyuan-dense", 'qk_norm = "rotated-head"', others=heads)

    def test_glm(self):
        glm = ('block_norm = "both"\nrope_pairs = "neighbours"\npartial_rotary_factor = 0.5\n'
               "qkv_bias = true\n")
        names = {"ffn_up": "mlp.gate_up_proj", "ffn_norm": "post_attention_layernorm",
                 "post_attention_norm": "post_self_attn_layernorm",
                 "post_ffw_norm": "post_mlp_layernorm"}
        found = self.check_type("glm4", glm, others=names,
                                keys={"rope.dimension_count": WIDTH // 2})
        self.assertEqual(found.tensors["blk.1.ffn_up.weight"][1], [64, 2 * 48])
        self.assertNotIn("blk.1.ffn_gate.weight", found.tensors)
        self.assertIn("rope_scaling = linear", self.refusal(
            "glm", glm + 'rope_scaling = "linear"\nrope_factor = 2.0'))

    def test_ministral_3(self):
        model = ('query_growth = 0.4\nrope_scaling = "yarn"\nrope_factor = 4.0\n'
                 "rope_original_positions = 16\nrope_beta_fast = 8.0\nrope_attention_factor = 1.0\n")
        found = self.check_type(
            "mistral3", model, interleaved=True,
            keys={"attention.temperature_scale": 0.4, "rope.scaling.factor": 4,
                  "rope.scaling.original_context_length": 16, "rope.scaling.yarn_beta_fast": 8,
                  "rope.scaling.yarn_beta_slow": 1,
                  # of YaRN's usual factor of cosines and sines
                  "rope.scaling.attn_factor": 1 / (0.1 * np.log(4) + 1)})
        self.assertEqual(found.keys["mistral3.rope.scaling.type"], "yarn")

    def test_llama_4(self):
        model = ('type = "llama4_text"\nrope_pairs = "neighbours"\nqk_norm = "rotated-plain"\n'
                 "window = 8192\nwindow_chunks = true\nfull_layers = [3]\nnope_layers = [3]\n"
                 'nope_query_growth = 0.1\nrouter = "sigmoid"\nexpert_norm = false\n'
                 "expert_input_scores = true\nexperts = 4\nexperts_per_token = 1\n"
                 "expert_ffn = 24\nshared_ffn = 24\nexpert_step = 2\ntied = false\n")
        run = self.trained("run-llama4", "--model.layers", "4", model=model)
        found = self.convert(run, "--dtype", "f32", name="llama4")
        want, keys = self.as_folder(run)[1], found.keys
        self.assertEqual(keys["llama4.interleave_moe_layer_step"], 2)
        self.assertEqual(keys["llama4.expert_feed_forward_length"], 24)
        both = want["model.layers.1.feed_forward.experts.gate_up_proj"]  # (experts, in, gate + up)
        for at, part in enumerate(("gate", "up")):
            np.testing.assert_array_equal(found.tensors[f"blk.1.ffn_{part}_exps.weight"][2],
                                          both[..., 24 * at:24 * at + 24].swapaxes(1, 2))
        np.testing.assert_array_equal(
            found.tensors["blk.3.ffn_down_shexp.weight"][2],
            want["model.layers.3.feed_forward.shared_expert.down_proj.weight"])
        np.testing.assert_array_equal(found.tensors["blk.1.attn_q.weight"][2],
                                      want["model.layers.1.self_attn.q_proj.weight"])
        self.assertIn("window = 4", self.refusal(
            "chunks", model.replace("8192", "4"), "--model.layers", "4"))

    DEEPSEEK = ("kv_lora_rank = 16\nq_lora_rank = 24\nqk_nope_head_dim = 8\nqk_rope_head_dim = 4\n"
                'v_head_dim = 6\nrope_pairs = "neighbours"\nnorm_eps = 1e-6\nexperts = 4\n'
                "experts_per_token = 2\nexpert_ffn = 24\nshared_ffn = 48\ndense_layers = [0]\n"
                "tied = false\n")

    def check_latents(self, found, want):
        """The tensors of latents, but for norms."""
        attention = "model.layers.1.self_attn."
        both = want[attention + "kv_b_proj.weight"].reshape(HEADS, 8 + 6, 16)
        kinds = {"attn_k_b": both[:, :8].swapaxes(1, 2), "attn_v_b": both[:, 8:],
                 **{f"attn_{part}": want[f"{attention}{part}_proj.weight"] for part in ("q_a", "q_b")},
                 "attn_kv_a_mqa": want[attention + "kv_a_proj_with_mqa.weight"],
                 "attn_kv_a_norm": want[attention + "kv_a_layernorm.weight"]}
        for name, values in kinds.items():
            _, sizes, stored = found.tensors[f"blk.1.{name}.weight"]
            self.assertEqual(sizes, list(values.shape[::-1]), name)
            # Exponentials of two libraries may differ in the last bit.
            np.testing.assert_allclose(stored, values, 2e-7 if name == "ssm_a" else 0, 0, err_msg=name)

    def test_deepseek(self):
        sized = ("--model.kv_heads", "4", "--model.head_dim", "0")
        third = 'type = "deepseek_v3"\nrouter = "sigmoid"\nrouter_bias = true\n' + self.DEEPSEEK
        groups = third + "expert_groups = 2\nexpert_groups_per_token = 1\nrouter_scale = 2.5\n"
        yarn = ('rope_scaling = "yarn"\nrope_factor = 4.0\nrope_original_positions = 32\n'
                "rope_attention_factor = 1.0\n")
        growth = (0.1 * 0.5 * np.log(4) + 1)**2  # of scores, by mscale_all_dim = 0.5
        scaled = yarn + f"attention_scale = {growth / np.sqrt(12):.17g}\n"
        run = self.trained("run-deepseek", *sized, model=groups + scaled)
        found = self.convert(run, "--dtype", "f32", name="deepseek")
        keys = {key.removeprefix("deepseek2."): value for key, value in found.keys.items()}
        for key, value in {
                "attention.head_count": HEADS, "attention.head_count_kv": 1,
                "attention.q_lora_rank": 24, "attention.kv_lora_rank": 16,
                "attention.key_length": 20, "attention.value_length": 16,
                "attention.key_length_mla": 12, "attention.value_length_mla": 6,
                "rope.dimension_count": 4, "leading_dense_block_count": 1,
                "expert_gating_func": 2, "expert_shared_count": 2, "expert_group_count": 2,
                "expert_group_used_count": 1, "expert_weights_norm": True}.items():
            self.assertEqual(keys[key], value, key)
        self.assertAlmostEqual(keys["expert_weights_scale"], 2.5)
        self.assertAlmostEqual(keys["rope.scaling.yarn_log_multiplier"], 0.05, places=6)
        self.assertNotIn("rope.scaling.attn_factor", keys)
        want = self.as_folder(run)[1]
        self.check_latents(found, want)
        self.assertNotIn("blk.1.attn_kv_b.weight", found.tensors)
        second = 'type = "deepseek_v2"\nexpert_norm = false\nexpert_group_best = 1\n' + self.DEEPSEEK
        for name, model, what in (
                ("eps", groups.replace("1e-6", "1e-5"), "norm_eps = 1e-05 other than 1e-06"),
                ("ramp", groups + yarn, "without attention_scale"),
                ("lite", groups.replace("q_lora_rank = 24", "q_lora_rank = 0"),
                 "q_lora_rank = 0 of 2 layers"),
                ("halves", groups.replace("neighbours", "halves"), "rope_pairs = halves"),
                ("best", second + "expert_groups = 2\n", "expert_group_best = 1")):
            self.assertIn(what, self.refusal(name, model, *sized))

    def test_gpt_oss(self):
        model = ('type = "gpt_oss"\nqkv_bias = true\nout_bias = true\nsinks = true\nwindow = 4\n'
                 'full_layers = [1]\nactivation = "clamped-swiglu"\nrouter_logit_bias = true\n'
                 "expert_bias = true\nexperts = 4\nexperts_per_token = 2\nexpert_ffn = 24\n"
                 "tied = false\n")
        run = self.trained("run-oss", model=model)
        found = self.convert(run, "--dtype", "f32", name="oss")
        self.assertEqual(found.keys["general.architecture"], "gpt-oss")
        for key, value in {"attention.sliding_window": 4, "context_length": 8, "expert_count": 4,
                           "expert_used_count": 2, "expert_feed_forward_length": 24}.items():
            self.assertEqual(found.keys["gpt-oss." + key], value, key)
        want = self.as_folder(run)[1]
        block, layer = "blk.1.", "model.layers.1."
        both = want[layer + "mlp.experts.gate_up_proj"]  # (experts, in, gate and up in turn)
        bias = want[layer + "mlp.experts.gate_up_proj_bias"]
        for name, values in {
                "attn_sinks.weight": want[layer + "self_attn.sinks"],
                "attn_q.bias": want[layer + "self_attn.q_proj.bias"],
                "attn_output.bias": want[layer + "self_attn.o_proj.bias"],
                "post_attention_norm.weight": want[layer + "post_attention_layernorm.weight"],
                "ffn_gate_inp.weight": want[layer + "mlp.router.weight"],
                "ffn_gate_inp.bias": want[layer + "mlp.router.bias"],
                "ffn_gate_exps.weight": both[..., ::2].swapaxes(1, 2),
                "ffn_up_exps.weight": both[..., 1::2].swapaxes(1, 2),
                "ffn_down_exps.weight": want[layer + "mlp.experts.down_proj"].swapaxes(1, 2),
                "ffn_gate_exps.bias": bias[..., ::2], "ffn_up_exps.bias": bias[..., 1::2],
                "ffn_down_exps.bias": want[layer + "mlp.experts.down_proj_bias"]}.items():
            _, sizes, stored = found.tensors[block + name]
            self.assertEqual(sizes, list(values.shape[::-1]), name)
            # Exponentials of two libraries may differ in the last bit.
            np.testing.assert_allclose(stored, values, 2e-7 if name == "ssm_a" else 0, 0, err_msg=name)
        found = self.convert(run, "--dtype", "f16", name="oss16")
        self.assertEqual([found.tensors[block + name][0] for name in
                          ("ffn_up_exps.weight", "ffn_up_exps.bias", "attn_sinks.weight")], [1, 0, 0])
        for name, more, what in (("limit", "swiglu_limit = 1", "swiglu_limit = 1"),
                                 ("alpha", "swiglu_alpha = 1", "swiglu_alpha = 1")):
            self.assertIn(what, self.refusal(name, model + more))
        self.assertIn("full_layers other than each second", self.refusal(
            "layers", model.replace("[1]", "[0]")))

    def check_tensors(self, found, block, want):
        for name, values in want.items():
            _, sizes, stored = found.tensors[block + name]
            self.assertEqual(sizes, list(values.shape[::-1]), name)
            # Exponentials of two libraries may differ in the last bit.
            np.testing.assert_allclose(stored, values, 2e-7 if name == "ssm_a" else 0, 0, err_msg=name)

    DELTA = ('qk_norm = "head"\nnorm_plus_one = true\nattention_gate = true\n'
             "partial_rotary_factor = 0.5\ndelta_layers = [0]\ndelta_key_heads = 2\n"
             "delta_value_heads = 6\ndelta_key_dim = 8\ndelta_value_dim = 8\ndelta_taps = 3\n"
             "tied = false\n")
    SHARED = ("experts = 4\nexperts_per_token = 2\nexpert_ffn = 24\nshared_ffn = 40\n"
              "shared_gate = true\n")
    DELTA_KEYS = {"ssm.conv_kernel": 3, "ssm.state_size": 8, "ssm.group_count": 2,
                  "ssm.time_step_rank": 6, "ssm.inner_size": 48, "full_attention_interval": 2,
                  "rope.dimension_count": WIDTH // 2}

    def test_qwen_3_next(self):
        model = 'type = "qwen3_next"\n' + self.DELTA + self.SHARED
        run = self.trained("run-next", model=model)
        found, want = self.convert(run, "--dtype", "f32", name="next"), self.as_folder(run)[1]
        self.assertEqual(found.keys["general.architecture"], "qwen3next")
        for key, value in {**self.DELTA_KEYS, "expert_shared_feed_forward_length": 40}.items():
            self.assertEqual(found.keys["qwen3next." + key], value, key)
        layer = "model.layers.0.linear_attn."
        # The folder has them key head by key head: 8 queries, 8 keys, 24 values, 24 gates.
        joined = want[layer + "in_proj_qkvz.weight"].reshape(2, 64, 64)
        parts = [joined[:, a:b].reshape(-1, 64) for a, b in ((0, 8), (8, 16), (16, 40), (40, 64))]
        self.check_tensors(found, "blk.0.", {
            "attn_qkv.weight": np.concatenate(parts[:3]), "attn_gate.weight": parts[3],
            "ssm_ba.weight": want[layer + "in_proj_ba.weight"],
            "ssm_a": -np.exp(want[layer + "A_log"]), "ssm_dt.bias": want[layer + "dt_bias"],
            "ssm_conv1d.weight": want[layer + "conv1d.weight"][:, 0],
            "ssm_norm.weight": want[layer + "norm.weight"],
            "ssm_out.weight": want[layer + "out_proj.weight"],
            "ffn_gate_inp_shexp.weight": want["model.layers.0.mlp.shared_expert_gate.weight"]})
        layer = "model.layers.1."
        self.check_tensors(found, "blk.1.", {
            "attn_q.weight": want[layer + "self_attn.q_proj.weight"],
            "attn_q_norm.weight": want[layer + "self_attn.q_norm.weight"] + np.float32(1),
            "post_attention_norm.weight":
                want[layer + "post_attention_layernorm.weight"] + np.float32(1),
            "ffn_up_shexp.weight": want[layer + "mlp.shared_expert.up_proj.weight"]})
        for name, changed, what in (
                ("width", model.replace("delta_value_dim = 8", "delta_value_dim = 9"),
                 "delta_value_dim = 9 other than delta_key_dim = 8"),
                ("order", model.replace("delta_layers = [0]", "delta_layers = [1]"),
                 "delta_layers other than all but every n-th"),
                ("dense", 'type = "qwen3_next"\n' + self.DELTA, "experts = 0")):
            self.assertIn(what, self.refusal(name, changed))

    def test_qwen_3_5(self):
        """Value heads come in another order: 0, 3, 1, 4, 2, 5 of two groups of three."""
        def order(values, first=0, width=8):
            units = values[first:].reshape(2, 3, width, *values.shape[1:]).swapaxes(0, 1)
            return np.concatenate([values[:first], units.reshape(values[first:].shape)])

        for architecture, model in (
                ("qwen35", self.DELTA),
                ("qwen35moe", 'type = "qwen3_5_moe_text"\n' + self.DELTA + self.SHARED)):
            run = self.trained("run-" + architecture, model=model)
            found, want = self.convert(run, "--dtype", "f32", name=architecture), self.as_folder(run)[1]
            self.assertEqual(found.keys["general.architecture"], architecture)
            for key, value in {**self.DELTA_KEYS,
                               "rope.dimension_sections": [2, 1, 1, 0]}.items():
                self.assertEqual(found.keys[f"{architecture}.{key}"], value, key)
            layer = "model.layers.0.linear_attn."
            self.check_tensors(found, "blk.0.", {
                "attn_qkv.weight": order(want[layer + "in_proj_qkv.weight"], 32),
                "attn_gate.weight": order(want[layer + "in_proj_z.weight"]),
                "ssm_beta.weight": order(want[layer + "in_proj_b.weight"], width=1),
                "ssm_alpha.weight": order(want[layer + "in_proj_a.weight"], width=1),
                "ssm_a": -np.exp(order(want[layer + "A_log"], width=1)),
                "ssm_dt.bias": order(want[layer + "dt_bias"], width=1),
                "ssm_conv1d.weight": order(want[layer + "conv1d.weight"][:, 0], 32),
                "ssm_norm.weight": want[layer + "norm.weight"],
                "ssm_out.weight": order(want[layer + "out_proj.weight"].T).T})

    def test_gemma_4(self):
        model = ('type = "gemma4_text"\nblock_norm = "both"\nactivation = "geglu"\n'
                 'qk_norm = "head"\nembedding_scale = 8\nattention_scale = 1\nvalue_norm = true\n'
                 "layer_factor = true\nlogit_cap = 30\nwindow = 4\nfull_layers = [1, 3]\n"
                 'window_rope_theta = 100.0\nrope_scaling = "proportional"\nrope_share = 0.5\n'
                 "window_rope_scaling = false\n")
        plain = (model + "full_head_dim = 24\nlayer_input = 6\nshared_kv_layers = 2\n"
                 "double_shared_ffn = true\n")
        routed = (model + "full_head_dim = 24\nfull_kv_heads = 1\nfull_values_are_keys = true\n"
                  "expert_block_norms = true\nexperts = 4\nexperts_per_token = 2\nexpert_ffn = 24\n"
                  "shared_ffn = 40\n")
        four = ("--model.layers", "4")
        run = self.trained("run-gemma4", *four, model=plain)
        found, want = self.convert(run, "--dtype", "f32", name="gemma4"), self.as_folder(run)[1]
        for key, value in {
                "attention.key_length": 24, "attention.value_length": 24,
                "attention.key_length_swa": 16, "attention.value_length_swa": 16,
                "attention.head_count_kv": [2, 2, 2, 2], "attention.sliding_window": 4,
                "attention.sliding_window_pattern": [True, False, True, False],
                "attention.shared_kv_layers": 2, "embedding_length_per_layer_input": 6,
                "feed_forward_length": [48, 48, 96, 96], "rope.dimension_count": 24,
                "rope.dimension_count_swa": 16, "rope.freq_base": 5000, "rope.freq_base_swa": 100,
                "final_logit_softcapping": 30}.items():
            self.assertEqual(found.keys["gemma4." + key], value, key)
        np.testing.assert_array_equal(found.tensors["rope_freqs.weight"][2],
                                      np.float32([1] * 6 + [1e30] * 6))
        layer = "model.layers.0."
        self.check_tensors(found, "blk.0.", {
            "layer_output_scale.weight": want[layer + "layer_scalar"],
            "inp_gate.weight": want[layer + "per_layer_input_gate.weight"],
            "proj.weight": want[layer + "per_layer_projection.weight"],
            "post_norm.weight": want[layer + "post_per_layer_input_norm.weight"],
            "ffn_norm.weight": want[layer + "pre_feedforward_layernorm.weight"]})
        self.check_tensors(found, "", {
            "per_layer_token_embd.weight": want["model.embed_tokens_per_layer.weight"],
            "per_layer_model_proj.weight": want["model.per_layer_model_projection.weight"],
            "per_layer_proj_norm.weight": want["model.per_layer_projection_norm.weight"]})
        self.assertNotIn("blk.2.attn_k.weight", found.tensors)
        run = self.trained("run-gemma4moe", *four, model=routed)
        found, want = self.convert(run, "--dtype", "f32", name="moe"), self.as_folder(run)[1]
        self.assertEqual(found.keys["gemma4.attention.head_count_kv"], [2, 1, 2, 1])
        self.assertEqual(found.keys["gemma4.feed_forward_length"], [40] * 4)
        self.assertNotIn("blk.1.attn_v.weight", found.tensors)
        layer = "model.layers.1."
        both = want[layer + "experts.gate_up_proj"]
        self.check_tensors(found, "blk.1.", {
            "ffn_gate_inp.weight": want[layer + "router.proj.weight"],
            "ffn_gate_inp.scale": want[layer + "router.scale"],
            "ffn_gate_exps.weight": both[:, :24], "ffn_up_exps.weight": both[:, 24:],
            "ffn_down_exps.weight": want[layer + "experts.down_proj"],
            "ffn_gate.weight": want[layer + "mlp.gate_proj.weight"],
            "post_ffw_norm_1.weight": want[layer + "post_feedforward_layernorm_1.weight"],
            "pre_ffw_norm_2.weight": want[layer + "pre_feedforward_layernorm_2.weight"],
            "post_ffw_norm_2.weight": want[layer + "post_feedforward_layernorm_2.weight"]})
        np.testing.assert_array_equal(found.tensors["blk.1.ffn_down_exps.scale"][2].reshape(-1),
                                      want[layer + "router.per_expert_scale"])
        for name, changed, what in (
                ("keys", plain.replace("[1, 3]", "[0, 3]"), "keys of layer 2 in layer 1"),
                ("linear", model.replace("proportional", "linear"), "rope_scaling = linear")):
            self.assertIn(what, self.refusal(name, changed, *four))

    def check_experts(self, architecture, model, *more, keys=(), others=()):
        run = self.trained("run-" + architecture, *more, model=model)
        found = self.convert(run, "--dtype", "f32", name=architecture)
        self.assertEqual(found.keys["general.architecture"], architecture)
        for key, value in dict(keys).items():
            self.assertAlmostEqual(found.keys[f"{architecture}.{key}"], value, places=6, msg=key)
        self.assertEqual(found.tensors["blk.1.ffn_gate_inp.weight"][0], 0)
        want = dict(self.as_folder(run)[1])
        for name in [*want]:  # the experts, each by itself
            parts = name.split(".")
            if "experts" not in parts[:-3]:
                continue
            _, _, layer, _, _, expert, matrix, _ = parts
            kind = {"gate_proj": "gate", "up_proj": "up", "down_proj": "down"}[matrix]
            stacked = found.tensors[f"blk.{layer}.ffn_{kind}_exps.weight"]
            self.assertEqual(stacked[1], [*want[name].shape[::-1], 4])
            np.testing.assert_array_equal(stacked[2][int(expert)], want.pop(name))
        for name in [*found.tensors]:
            if name.endswith("_exps.weight"):
                del found.tensors[name]
        self.check(found, want, interleaved=False, others=others)

    def test_experts(self):
        experts = "experts = 4\nexperts_per_token = 2\nexpert_ffn = 24\ntied = false\n"
        router = {"ffn_gate_inp": "mlp.gate"}
        sizes = {"expert_count": 4, "expert_used_count": 2, "expert_feed_forward_length": 24}
        self.check_experts("qwen3moe", experts + 'qk_norm = "head"', keys=sizes, others=router)
        shared = {f"ffn_{part}_shexp": f"mlp.shared_expert.{part}_proj"
                  for part in ("gate", "up", "down")}
        self.check_experts(
            "qwen2moe", experts + "qkv_bias = true\nshared_ffn = 32\nshared_gate = true\n"
            "expert_norm = false", keys={**sizes, "expert_shared_feed_forward_length": 32},
            others={**router, **shared, "ffn_gate_inp_shexp": "mlp.shared_expert_gate"})
        glm = (experts + 'type = "glm4_moe"\nrouter = "sigmoid"\nrouter_bias = true\n'
               "shared_ffn = 48\ndense_layers = [0]\npartial_rotary_factor = 0.5\n"
               "router_scale = 1.5\n")
        shared = {part: name.replace("expert.", "experts.") for part, name in shared.items()}
        self.check_experts(
            "glm4moe", glm, others={**router, **shared, "exp_probs_b": "mlp.gate",
                                    "post_attention_norm": "post_attention_layernorm"},
            keys={**sizes, "expert_gating_func": 2, "expert_shared_count": 2,
                  "leading_dense_block_count": 1, "expert_weights_scale": 1.5,
                  "rope.dimension_count": WIDTH // 2, "feed_forward_length": 48})
        self.assertIn("expert_groups = 2", self.refusal("groups", glm + "expert_groups = 2"))
        self.assertIn("expert_norm = false", self.refusal(
            "sums", experts + 'qk_norm = "head"\nexpert_norm = false'))

    def test_adapters_are_merged_on_the_way(self):
        base = self.trained("base", "--parallelism.grid", "1,2,1,1")
        lora = os.path.join(self.train("lora", "--model.path", base, "--lora.rank", "2",
                                       "--lora.targets", "q_proj,k_proj,down_proj", config=LLAMA),
                            "checkpoints")
        folder = self.path("merged")
        axonn("convert", "--model", lora, "--merge", "--out", folder, "--dtype", "f32")
        want = safetensors(os.path.join(folder, "model.safetensors"))
        self.check(self.convert(lora, "--merge", "--dtype", "f32"), want, interleaved=True)
        self.assertIn("holds adapters; merge them", axonn(
            "convert", "--model", lora, "--to", "gguf", "--out", self.path("x"), code=2))

    def tokenizer(self, pattern, added=(), folder="tokenizer"):
        """A byte-level tokenizer.json; tokens 256 'he', 257 'hel', then the added ones."""
        printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
        others = [byte for byte in range(256) if byte not in printable]
        shown = {byte: chr(byte) for byte in printable} | {
            byte: chr(0x100 + i) for i, byte in enumerate(others)}
        tokens = [shown[byte] for byte in range(256)] + ["he", "hel"]
        bytes_only = {"type": "ByteLevel", "add_prefix_space": False, "use_regex": False}
        self.write(folder + "/tokenizer.json", json.dumps({
            "added_tokens": [{"id": 258 + i, "content": content, "special": special,
                              "normalized": False, "single_word": False, "lstrip": False,
                              "rstrip": False} for i, (content, special) in enumerate(added)],
            "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
                *({"type": "Split", "pattern": {"Regex": each}, "behavior": "Isolated",
                   "invert": False} for each in ([pattern] if isinstance(pattern, str) else pattern)),
                bytes_only]},
            "decoder": {"type": "ByteLevel"},
            "model": {"type": "BPE", "vocab": {token: i for i, token in enumerate(tokens)},
                      "merges": ["h e", "he l"], "ignore_merges": True}}))
        return self.path(folder), tokens

    LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
              r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")

    def test_a_byte_level_tokenizer_with_its_merges_special_tokens_and_template(self):
        folder, tokens = self.tokenizer(
            self.LLAMA3, [("<s>", True), ("</s>", True), ("<t>", False)])
        self.write("tokenizer/tokenizer_config.json", json.dumps({
            "bos_token": "<s>", "eos_token": "</s>", "add_bos_token": True,
            "chat_template": "{{ messages }}"}))
        run = self.trained("run", "--data.tokenizer", folder, "--model.vocab", "264")
        keys = self.convert(run).keys
        self.assertEqual(keys["tokenizer.ggml.model"], "gpt2")
        self.assertEqual(keys["tokenizer.ggml.pre"], "llama-bpe")
        self.assertEqual(keys["tokenizer.ggml.tokens"],
                         tokens + ["<s>", "</s>", "<t>", "[PAD261]", "[PAD262]", "[PAD263]"])
        self.assertEqual(keys["tokenizer.ggml.token_type"], [1] * 258 + [3, 3, 4, 5, 5, 5])
        self.assertEqual(keys["tokenizer.ggml.merges"], ["h e", "he l"])
        self.assertEqual(keys["tokenizer.ggml.bos_token_id"], 258)
        self.assertEqual(keys["tokenizer.ggml.eos_token_id"], 259)
        self.assertIs(keys["tokenizer.ggml.add_bos_token"], True)
        self.assertEqual(keys["tokenizer.chat_template"], "{{ messages }}")
        upper, lower = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
        before = r"[^\r\n\p{L}\p{N}]?"
        tekken = (f"{before}{upper}*{lower}+|{before}{upper}+{lower}*"
                  r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
        gpt2 = (r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+")
        short = "(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
        gpt4o = (f"{before}{upper}*{lower}+{short}|{before}{upper}+{lower}*{short}"
                 r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
        deepseek = [r"\p{N}{1,3}", "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
                    r'''[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+'''
                    r"|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*"
                    r"|\s*[\r\n]+|\s+(?!\S)|\s+"]
        for pattern, name in ((self.LLAMA3.replace("{1,3}", ""), "qwen2"), (tekken, "tekken"),
                              (gpt2, "gpt-2"), (gpt4o, "gpt-4o"), (deepseek, "deepseek-v3")):
            other, _ = self.tokenizer(pattern, folder="other")
            keys = self.convert(run, "--tokenizer", other, "--overwrite").keys
            self.assertEqual(keys["tokenizer.ggml.pre"], name)
        unknown, _ = self.tokenizer(r"\p{L}+|\s+", folder="unknown")
        error = axonn("convert", "--model", run, "--to", "gguf", "--out", self.path("x"),
                      "--tokenizer", unknown, code=2)
        self.assertIn("cuts text into words as no tokenizer of GGUF", error)
        self.assertFalse(os.path.exists(self.path("x")))

    def test_bytes_are_a_vocabulary_without_merges(self):
        keys = self.convert(self.trained()).keys
        self.assertEqual(len(keys["tokenizer.ggml.tokens"]), 256)
        self.assertEqual(keys["tokenizer.ggml.tokens"][32], "\u0120")
        self.assertEqual(keys["tokenizer.ggml.merges"], [])
        self.assertEqual(keys["tokenizer.ggml.eos_token_id"], 255)  # no byte of UTF-8
        self.assertEqual(keys["tokenizer.ggml.bos_token_id"], 255)

    def test_a_sentencepiece_model_with_its_scores_and_types(self):
        def varint(value):
            value &= (1 << 64) - 1
            out = b""
            while value >= 0x80:
                out, value = out + bytes([value & 0x7F | 0x80]), value >> 7
            return out + bytes([value])

        def field(number, value):
            if isinstance(value, int):
                return varint(number << 3) + varint(value)
            if isinstance(value, float):
                return varint(number << 3 | 5) + np.float32(value).tobytes()
            return varint(number << 3 | 2) + varint(len(value)) + value

        pieces = [("<unk>", 0.0, 2), ("<s>", 0.0, 3), ("</s>", 0.0, 3)]
        pieces += [(f"<0x{byte:02X}>", 0.0, 6) for byte in range(256)]
        pieces += [("\u2581a", -0.0, 1), ("ab", -1.0, 1), ("a", -2.0, 1), ("b", -3.0, 1),
                   ("\u2581", -4.0, 1)]
        model = b"".join(
            field(1, field(1, text.encode()) + field(2, score) + field(3, kind))
            for text, score, kind in pieces)
        model += field(2, field(3, 2) + field(35, 1) + field(43, -1))  # BPE, byte fallback
        model += field(3, field(1, b"identity") + field(3, 1) + field(4, 0))
        self.write("spm/tokenizer.model", model)
        run = self.trained("run", "--data.tokenizer", self.path("spm"), "--model.vocab", "270")
        keys = self.convert(run).keys
        self.assertEqual(keys["tokenizer.ggml.model"], "llama")
        self.assertEqual(keys["tokenizer.ggml.tokens"][:264], [piece[0] for piece in pieces])
        _, scores, kinds = map(list, zip(*pieces))
        self.assertEqual(keys["tokenizer.ggml.scores"], scores + [-1000.0] * 6)
        self.assertEqual(keys["tokenizer.ggml.token_type"], kinds + [5] * 6)
        self.assertEqual((keys["tokenizer.ggml.bos_token_id"], keys["tokenizer.ggml.eos_token_id"],
                          keys["tokenizer.ggml.unknown_token_id"]), (1, 2, 0))
        self.assertIs(keys["tokenizer.ggml.add_space_prefix"], True)

    def test_refusals_leave_no_file_and_replace_none_that_is_no_model(self):
        run = self.trained()
        refused = lambda why, *arguments: self.assertIn(
            why, axonn("convert", "--model", run, *arguments, code=2))
        out = self.write("notes.txt", "mine")
        refused("exists already", "--to", "gguf", "--out", out)
        refused("holds no model", "--to", "gguf", "--out", out, "--overwrite")
        refused("Q8_0 is for --to gguf", "--out", self.path("x"), "--dtype", "q8_0")
        self.convert(run)
        refused("exists already", "--to", "gguf", "--out", self.path("model.gguf"))
        self.convert(run, "--overwrite")
        opt = os.path.join(self.train("opt", config=TINY.replace(
            "[model]", '[model]\nfamily = "opt"')), "checkpoints")
        error = axonn("convert", "--model", opt, "--to", "gguf", "--out", self.path("y"), code=2)
        self.assertIn("models of the type opt can be neither read nor written", error)

    def test_gpt2(self):
        checkpoint = os.path.join(self.train("gpt"), "checkpoints")
        found, want = self.convert(checkpoint, "--dtype", "f32"), self.as_folder(checkpoint)[1]
        keys = {key: value for key, value in found.keys.items() if key.startswith("gpt2.")}
        self.assertEqual(set(keys), {"gpt2." + key for key in (
            "block_count", "context_length", "embedding_length", "feed_forward_length",
            "vocab_size", "attention.head_count", "attention.layer_norm_epsilon")})
        names = {"token_embd.weight": "wte.weight", "position_embd.weight": "wpe.weight",
                 "output_norm.weight": "ln_f.weight", "output_norm.bias": "ln_f.bias",
                 "blk.1.attn_qkv.weight": "h.1.attn.c_attn.weight",
                 "blk.1.attn_qkv.bias": "h.1.attn.c_attn.bias",
                 "blk.1.attn_output.weight": "h.1.attn.c_proj.weight",
                 "blk.1.ffn_up.weight": "h.1.mlp.c_fc.weight",
                 "blk.1.ffn_down.weight": "h.1.mlp.c_proj.weight",
                 "blk.1.attn_norm.weight": "h.1.ln_1.weight",
                 "blk.1.ffn_norm.bias": "h.1.ln_2.bias"}
        for name, there in names.items():
            values = next(each for key, each in want.items() if key.endswith(there))
            if values.ndim > 1 and ".h." in "." + there:
                values = values.T  # GPT-2's folders have them input by output
            np.testing.assert_array_equal(found.tensors[name][2], values, name)
        self.assertEqual([name for name in os.listdir(self.folder) if name[0] in "xy"], [])


if __name__ == "__main__":
    main()
