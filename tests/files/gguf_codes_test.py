"""Codes of GGUF files that are kept as they are, with values that quantizing would change."""
import json
import os

import numpy as np

import gguf
from program import TINY, RunTest, axonn, main

LLAMA = TINY.replace("[model]", '[model]\nfamily = "llama"\nkv_heads = 2\nhead_dim = 16\nffn = 96'
                     ).replace("hidden = 32", "hidden = 64")
WIDE = LLAMA.replace("hidden = 64", "hidden = 512").replace("head_dim = 16", "head_dim = 128"
                                                            ).replace("ffn = 96", "ffn = 512")


class Kind:
    """Blocks of a kind: their bytes, where the factors lie, and the bytes with codes. Of a kind that
    is only read instead of these its number in the format, and the flag that keeps it."""

    def __init__(self, config, size, factors, codes=None, number=None):
        self.config, self.size, self.factors, self.codes = config, size, factors, codes
        self.number = number

    def flag(self, name):
        return "file" if self.number else name


KINDS = {"q8_0": Kind(LLAMA, 34, [0], slice(2, 34)), "q4_0": Kind(LLAMA, 18, [0], slice(2, 18)),
         "q5_0": Kind(LLAMA, 22, [0], slice(6, 22)), "q4_1": Kind(LLAMA, 20, [0, 2], slice(4, 20)),
         "q5_1": Kind(LLAMA, 24, [0, 2], slice(8, 24)), "iq4_nl": Kind(LLAMA, 18, [0], number=20),
         "mxfp4": Kind(LLAMA, 17, [0], slice(1, 17)),
         "q2_k": Kind(WIDE, 84, [80, 82], number=10),
         "q3_k": Kind(WIDE, 110, [108], slice(32, 96)),
         "q4_k": Kind(WIDE, 144, [0, 2], slice(16, 144)),
         "q5_k": Kind(WIDE, 176, [0, 2], slice(48, 176)),
         "q6_k": Kind(WIDE, 210, [208], slice(0, 128)),
         "iq4_xs": Kind(WIDE, 136, [0], number=23)}
GRIDS = ["1,1,4,1", "2,1,2,1", "1,2,1,2"]


class GgufCodes(RunTest):
    def written(self, kind):
        """A model whose blocks have no code of the largest size; returns the file's name."""
        run = os.path.join(self.train("run-" + kind, config=KINDS[kind].config), "checkpoints")
        path = self.path(kind + ".gguf")
        if KINDS[kind].number:
            return self.with_any_blocks(run, kind, path)
        axonn("convert", "--model", run, "--to", "gguf", "--dtype", kind, "--out", path)
        for codes in self.blocks(path, kind):
            if kind == "q8_0":
                codes[:] = np.clip(codes.view(np.int8), -90, 90).view(np.uint8)
            elif kind == "q3_k":  # of the lower two bits 0 becomes 1
                codes[:] |= ~(codes | codes >> 1) & 0x55
            else:
                halves = [np.clip(codes & 15, 3, 11), np.clip(codes >> 4, 3, 11)]
                codes[:] = halves[0] | halves[1] << 4
        return path

    def with_any_blocks(self, run, name, path):
        """A model of any codes and scales, with factors of which values are about 0.05."""
        kind, random = KINDS[name], np.random.default_rng(5)
        plain = self.path(name + "-f32.gguf")
        axonn("convert", "--model", run, "--to", "gguf", "--dtype", "f32", "--out", plain)
        size = {"iq4_nl": 7e-4, "q2_k": 4e-3, "iq4_xs": 4e-5}[name]

        def blocks_of(values):
            count = values // (32 if name == "iq4_nl" else 256)
            blocks = random.integers(0, 256, (count, kind.size), np.uint8)
            for place in kind.factors:
                factors = (size * random.uniform(0.5, 1, count)).astype("<f2")
                blocks[:, place:place + 2] = factors.view(np.uint8).reshape(count, 2)
            return blocks.tobytes()

        gguf.with_matrices(path, plain, kind.number, blocks_of)
        return path

    def blocks(self, path, kind):
        """The codes (blocks, bytes) of each matrix, which the caller changes in the file."""
        tensors = gguf.Reader(path)
        data = np.memmap(path, np.uint8, "r+")
        for name, (begin, count) in tensors.bytes_of.items():
            if len(tensors.tensors[name][1]) > 1:
                yield data[begin:begin + count].reshape(-1, KINDS[kind].size)[
                    :, KINDS[kind].codes]
        data.flush()

    def losses(self, model, *more):
        text = self.write("text.txt", "The quick brown fox jumps over the lazy dog. " * 4)
        axonn("eval", "--model", model, "--data", text, "--seq-len", "8", "--dtype", "f32",
              "--json", self.path("scores.json"), *more)
        with open(self.path("scores.json")) as file:
            return json.load(file)["loss"]

    def test_values_are_those_of_the_file(self):
        for kind in KINDS:
            model = self.written(kind)
            codes = ("--quantize", KINDS[kind].flag(kind), "--quantize-embeddings")
            want = self.losses(model)
            self.assertEqual(self.losses(model, *codes), want, kind)
            other = "nf4" if kind == "q4_0" else "q4_0"
            self.assertNotEqual(self.losses(model, "--quantize", other), want)
            if KINDS[kind].number:
                self.refuses_to_make(kind, model)
            for grid in GRIDS + (["4,1,1,1"] if KINDS[kind].config is LLAMA else []):
                self.assertAlmostEqual(self.losses(model, "--grid", grid, *codes), want,
                                       delta=2e-6, msg=f"{kind} {grid}")
        error = axonn("eval", "--model", model, "--data", self.path("text.txt"), "--grid",
                      "4,1,1,1", "--quantize", "q6_k", code=2)
        self.assertIn("would have parts of blocks of 256 columns of", error)

    def refuses_to_make(self, kind, model):
        text = ("--model", model, "--data", self.path("text.txt"), "--quantize", kind)
        self.assertIn(f"[model] quantize = {kind}: blocks of this kind are read from GGUF files, "
                      "and not made; take file", axonn("eval", *text, code=2))
        convert = ("convert", "--model", model, "--to", "gguf", "--out", self.path("x"))
        self.assertIn(kind, axonn(*convert, "--dtype", kind, code=2))

    def joined(self):
        """A file with matrices of several kinds, as in Q4_K_M, one of which is read as values."""
        run = os.path.join(self.train("run", config=WIDE), "checkpoints")
        files = {}
        for kind in (*KINDS, "f16", "f32"):
            files[kind] = self.path(kind + ".gguf")
            if kind in KINDS and KINDS[kind].number:
                self.with_any_blocks(run, kind, files[kind])
                continue
            axonn("convert", "--model", run, "--to", "gguf", "--dtype", kind, "--out", files[kind])
        others = {"token_embd.weight": "q6_k", "output.weight": "q4_0",
                  "blk.0.attn_v.weight": "q6_k", "blk.0.ffn_down.weight": "q6_k",
                  "blk.1.attn_k.weight": "q8_0", "blk.1.ffn_up.weight": "f16",
                  "blk.1.attn_q.weight": "f32", "blk.0.attn_q.weight": "q5_0",
                  "blk.0.ffn_gate.weight": "q5_k", "blk.1.ffn_gate.weight": "q3_k",
                  "blk.0.attn_output.weight": "q4_1", "blk.1.attn_output.weight": "q5_1",
                  "blk.0.attn_k.weight": "iq4_nl", "blk.0.ffn_up.weight": "q2_k",
                  "blk.1.ffn_down.weight": "iq4_xs", "blk.1.attn_v.weight": "mxfp4"}
        path = self.path("joined.gguf")
        gguf.join(path, files, lambda name: others.get(name, "q4_k"))
        return path, run

    def test_each_matrix_is_kept_as_the_file_has_it(self):
        model, run = self.joined()
        want = self.losses(model)
        self.assertEqual(self.losses(model, "--quantize", "file"), want)
        for grid in GRIDS:
            self.assertAlmostEqual(self.losses(model, "--grid", grid, "--quantize", "file"), want,
                                   delta=2e-6, msg=grid)
        text = ("generate", "--model", model, "--prompt", "The quick", "--tokens", "20",
                "--temperature", "0", "--dtype", "f32")
        self.assertEqual(axonn(*text, "--quantize", "file"), axonn(*text))
        error = axonn("eval", "--model", run, "--data", self.path("text.txt"), "--quantize", "file",
                      code=2)
        self.assertIn("is no GGUF file with blocks of one of " + ", ".join(KINDS), error)

    def test_integers_are_multiplied_if_asked_for(self):
        model, _ = self.joined()
        text = ("generate", "--model", model, "--prompt", "The", "--tokens", "8", "--temperature",
                "0", "--dtype", "f32", "--integer-products")
        error = axonn(*text, code=2)
        self.assertIn("--integer-products: weights are values; keep them as codes of GGUF", error)
        error = axonn(*text, "--quantize", "file", "--drafts", "2", code=2)
        self.assertIn("leave it or --drafts out", error)
        self.assertEqual(axonn(*text, "--quantize", "file"), axonn(*text, "--quantize", "file"))

    def test_adapters_are_trained_beside_the_kinds_of_a_file(self):
        model, _ = self.joined()
        config = TINY[TINY.index("[data]"):] + f"""
[model]
path = "{model}"
[lora]
rank = 3
"""
        final = {}
        for name, more in {"values": (), "file": ("--model.quantize", "file"),
                           "cut": ("--model.quantize", "file", "--parallelism.grid", "2,1,2,1")
                           }.items():
            run = self.train("lora-" + name, "--training.dtype", "f32", *more, config=config)
            with open(os.path.join(run, "metrics.jsonl")) as file:
                final[name] = json.loads(file.readlines()[-1])["loss"]
        for name in ("file", "cut"):
            self.assertAlmostEqual(final[name], final["values"], delta=2e-5, msg=name)
        adapters, merged = self.path("lora-file", "checkpoints"), self.path("merged")
        axonn("convert", "--model", adapters, "--merge", "--dtype", "f32", "--out", merged)
        self.assertAlmostEqual(self.losses(merged), self.losses(adapters), delta=1e-5)

    def test_a_factor_that_is_not_finite_is_refused(self):
        for name, kind in KINDS.items():
            model = self.written(name)
            begin, _ = gguf.Reader(model).bytes_of["blk.1.ffn_up.weight"]
            for factor in kind.factors:
                data = np.memmap(model, np.uint8, "r+")
                at = begin + kind.size + factor
                before = bytes(data[at:at + 2])
                data[at:at + 2] = (255, before[1]) if name == "mxfp4" else (0, 0x7C)
                data.flush()
                error = axonn("eval", "--model", model, "--data",
                              self.write("text.txt", "text " * 9), "--quantize",
                              kind.flag(name), code=2)
                self.assertIn("mlp.up_proj.weight has a block whose factor is not finite", error)
                data[at:at + 2] = np.frombuffer(before, np.uint8)


if __name__ == "__main__":
    main()
