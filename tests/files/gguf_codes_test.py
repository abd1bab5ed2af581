"""Codes of GGUF files that are kept as they are, with values that quantizing would change."""
import json
import os

import numpy as np

import gguf
from program import TINY, RunTest, axonn, main

LLAMA = TINY.replace("[model]", '[model]\nfamily = "llama"\nkv_heads = 2\nhead_dim = 16\nffn = 96'
                     ).replace("hidden = 32", "hidden = 64")
BYTES = {"q8_0": 34, "q4_0": 18}  # of a block of 32 values; its factor has the first two


class GgufCodes(RunTest):
    def written(self, kind):
        """A model whose blocks have no code of the largest size; returns the file's name."""
        run = os.path.join(self.train("run-" + kind, config=LLAMA), "checkpoints")
        path = self.path(kind + ".gguf")
        axonn("convert", "--model", run, "--to", "gguf", "--dtype", kind, "--out", path)
        for codes in self.blocks(path, kind):
            if kind == "q8_0":
                codes[:] = np.clip(codes.view(np.int8), -90, 90).view(np.uint8)
            else:
                halves = [np.clip(codes & 15, 3, 11), np.clip(codes >> 4, 3, 11)]
                codes[:] = halves[0] | halves[1] << 4
        return path

    def blocks(self, path, kind):
        """The codes (blocks, bytes) of each matrix, which the caller changes in the file."""
        tensors = gguf.Reader(path)
        data = np.memmap(path, np.uint8, "r+")
        for name, (begin, count) in tensors.bytes_of.items():
            if len(tensors.tensors[name][1]) > 1:
                yield data[begin:begin + count].reshape(-1, BYTES[kind])[:, 2:]
        data.flush()

    def losses(self, model, *more):
        text = self.write("text.txt", "The quick brown fox jumps over the lazy dog. " * 4)
        axonn("eval", "--model", model, "--data", text, "--seq-len", "8", "--dtype", "f32",
              "--json", self.path("scores.json"), *more)
        with open(self.path("scores.json")) as file:
            return json.load(file)["loss"]

    def test_values_are_those_of_the_file(self):
        for kind in BYTES:
            model = self.written(kind)
            codes = ("--quantize", kind, "--quantize-embeddings")
            want = self.losses(model)
            self.assertEqual(self.losses(model, *codes), want, kind)
            other = "q4_0" if kind == "q8_0" else "nf4"
            self.assertNotEqual(self.losses(model, "--quantize", other), want)
            for grid in ("1,1,4,1", "2,1,2,1", "1,2,1,2", "4,1,1,1"):
                self.assertAlmostEqual(self.losses(model, "--grid", grid, *codes), want,
                                       delta=2e-6, msg=f"{kind} {grid}")

    def test_a_factor_that_is_not_finite_is_refused(self):
        for kind, size in BYTES.items():
            model = self.written(kind)
            begin, _ = gguf.Reader(model).bytes_of["blk.1.ffn_up.weight"]
            data = np.memmap(model, np.uint8, "r+")
            data[begin + 5 * size:begin + 5 * size + 2] = 0, 0x7C
            data.flush()
            error = axonn("eval", "--model", model, "--data", self.write("text.txt", "text " * 9),
                          "--quantize", kind, code=2)
            self.assertIn("mlp.up_proj.weight has a block whose factor is not finite", error)


if __name__ == "__main__":
    main()
