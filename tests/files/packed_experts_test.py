"""Experts in MXFP4, as gpt-oss was published: read as values, and kept as they are."""
import json
import os
import struct
import sys

import numpy as np

from program import TINY, RunTest, axonn, main

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "..", "python"))
from axonn.checkpoint import safetensors  # noqa: E402

GPT_OSS = TINY.replace("[model]", """[model]
family = "llama"
type = "gpt_oss"
kv_heads = 2
head_dim = 16
ffn = 64
qkv_bias = true
out_bias = true
sinks = true
window = 4
full_layers = [1]
activation = "clamped-swiglu"
router_logit_bias = true
expert_bias = true
experts = 4
experts_per_token = 2
expert_ffn = 96
tied = false""").replace("hidden = 32", "hidden = 64")
SIZES = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6])
GRIDS = ["1,1,4,1", "2,1,2,1", "1,2,1,2"]


def pack(matrix):
    """Blocks (.., 16) and scales of 32 values each along the last axis, of the nearest codes."""
    blocks = matrix.astype(np.float64).reshape(*matrix.shape[:-1], -1, 32)
    most = np.abs(blocks).max(-1)
    scales = np.where(most > 0, np.floor(np.log2(np.maximum(most, 1e-30))) - 2 + 127, 0)
    sizes = np.abs(blocks) / np.exp2(scales - 127)[..., None]
    codes = np.abs(sizes[..., None] - SIZES).argmin(-1) + 8 * (blocks < 0)
    return (codes[..., ::2] | codes[..., 1::2] << 4).astype(np.uint8), scales.astype(np.uint8)


def write_safetensors(path, tensors):
    header, data = {}, b""
    for name, values in tensors.items():
        kind = {"float32": "F32", "uint8": "U8"}[values.dtype.name]
        header[name] = {"dtype": kind, "shape": list(values.shape),
                        "data_offsets": [len(data), len(data) + values.nbytes]}
        data += np.ascontiguousarray(values).tobytes()
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)


class PackedExperts(RunTest):
    def published(self):
        """A folder whose experts are in MXFP4, beside biases and other weights in f32."""
        run = os.path.join(self.train("run", config=GPT_OSS), "checkpoints")
        folder = self.path("folder")
        axonn("convert", "--model", run, "--out", folder, "--dtype", "f32")
        path = os.path.join(folder, "model.safetensors")
        tensors = {}
        for name, values in safetensors(path).items():
            if name.endswith(("experts.gate_up_proj", "experts.down_proj")):
                packed = pack(np.swapaxes(values, 1, 2))
                tensors[name + "_blocks"], tensors[name + "_scales"] = packed
            else:
                tensors[name] = np.array(values)
        write_safetensors(path, tensors)
        config = os.path.join(folder, "config.json")
        with open(config) as file:
            text = json.load(file)
        with open(config, "w") as file:
            json.dump(text | {"quantization_config": {"quant_method": "mxfp4"}}, file)
        return folder

    def loss(self, model, *more):
        text = self.write("text.txt", "The quick brown fox jumps over the lazy dog. " * 4)
        axonn("eval", "--model", model, "--data", text, "--seq-len", "8", "--dtype", "f32",
              "--json", self.path("scores.json"), *more)
        with open(self.path("scores.json")) as file:
            return json.load(file)["loss"]

    def generated(self, model, *more):
        return axonn("generate", "--model", model, "--prompt", "The quick", "--tokens", "20",
                     "--temperature", "0", "--dtype", "f32", *more)

    def test_codes_have_the_values_of_the_folder(self):
        model, kept = self.published(), ("--quantize", "file")
        want = self.loss(model)
        self.assertEqual(self.loss(model, *kept), want)
        self.assertEqual(self.generated(model, *kept), self.generated(model))
        for grid in GRIDS:
            self.assertAlmostEqual(self.loss(model, "--grid", grid, *kept), want, delta=2e-6,
                                   msg=grid)
        self.assertNotEqual(self.loss(model, "--quantize", "q4_0"), want)

    def test_adapters_are_trained_beside_them(self):
        model = self.published()
        losses = []
        for name, kind in ("values", "none"), ("codes", "file"):
            out = self.path(name)
            axonn("train", "--model.path", model, "--lora.rank", 2, "--model.quantize", kind,
                  "--data.text", self.write("text.txt", "The quick brown fox jumps. " * 40),
                  "--training.steps", 4, "--training.seq_len", 8, "--training.global_batch", 8,
                  "--training.threads", 1, "--output.dir", out)
            with open(os.path.join(out, "metrics.jsonl")) as file:
                losses.append([json.loads(line)["loss"] for line in file if '"loss"' in line])
        self.assertEqual(len(losses[0]), 4)
        np.testing.assert_allclose(losses[1], losses[0], 2e-6)

    def test_a_gguf_file_has_them(self):
        model, path = self.published(), self.path("model.gguf")
        axonn("convert", "--model", model, "--to", "gguf", "--dtype", "mxfp4", "--out", path)
        want = self.loss(path)
        self.assertEqual(self.loss(path, "--quantize", "file"), want)
        self.assertEqual(self.loss(model, "--quantize", "mxfp4", "--quantize-embeddings"), want)

    def test_a_damaged_factor_is_refused(self):
        model = self.published()
        path = os.path.join(model, "model.safetensors")
        tensors = {name: np.array(values) for name, values in safetensors(path).items()}
        tensors["model.layers.1.mlp.experts.down_proj_scales"][2, 5, 1] = 255
        write_safetensors(path, tensors)
        error = axonn("eval", "--model", model, "--data", self.write("text.txt", "The end. " * 9),
                      "--seq-len", 8, "--quantize", "file", code=2)
        self.assertIn("model.layers.1.mlp.experts.2.down_proj.weight has a block whose factor is "
                      "not finite; the file is damaged", error)


if __name__ == "__main__":
    main()
