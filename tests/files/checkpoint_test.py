"""python/axonn/checkpoint.py against what the program itself writes."""
import glob
import hashlib
import os
import struct
import sys

import numpy as np

from program import TINY, RunTest, axonn, main

FOLDER = os.path.join(os.path.dirname(__file__), "..", "..", "python")
sys.path.insert(0, FOLDER)
from axonn import checkpoint as reader  # noqa: E402


class Checkpoint(RunTest):
    def check_equals_converted(self, run):
        """The checkpoint against a Hugging Face folder that the program converts it to."""
        folder = self.path("folder")
        axonn("convert", "--model", os.path.join(run, "checkpoints"), "--out", folder, "--dtype",
              "f32", "--overwrite")
        want = reader.safetensors(os.path.join(folder, "model.safetensors"))
        checkpoint = reader.Checkpoint(run)
        self.assertEqual(set(checkpoint), set(want))
        for name in checkpoint:
            values = checkpoint[name]
            self.assertEqual(values.dtype, np.float32)
            transposed = values.shape != want[name].shape or name.endswith(
                ("c_attn.weight", "c_proj.weight", "c_fc.weight"))  # stored (in, out) there
            np.testing.assert_array_equal(values, want[name].T if transposed else want[name], name)
        return checkpoint

    def test_parameters_of_any_grid_equal_those_that_the_program_converts(self):
        for grid in ("1,1,1,1", "2,1,1,1", "1,2,2,1", "2,1,2,2"):
            run = self.train("run-" + grid, "--parallelism.grid", grid)
            self.check_equals_converted(run)
        llama = TINY.replace("[model]", '[model]\nfamily = "llama"\nkv_heads = 2\nqk_norm = "head"')
        self.check_equals_converted(
            self.train("llama", "--parallelism.grid", "2,2,1,1", config=llama))

    def test_the_optimizers_state_is_that_of_one_rank_on_every_grid(self):
        one = reader.Checkpoint(self.train("one"))
        self.assertEqual(one.kinds, ["master", "exp_avg", "exp_avg_sq"])
        self.assertEqual((one.step, one.state["steps_done"]), (6, 6))
        for grid in ("2,2,1,1", "1,2,1,2", "2,1,2,2"):
            other = reader.Checkpoint(self.train("run-" + grid, "--parallelism.grid", grid))
            for name in one:
                for kind in one.kinds:
                    want, got = one.get(name, kind), other.get(name, kind)
                    # Grids differ by rounding, which six steps of AdamW magnify; other elements
                    # would differ by as much as the values themselves.
                    self.assertLess(np.linalg.norm(got - want), 1e-2 * np.linalg.norm(want),
                                    (grid, name, kind))

    def test_the_optimizers_state_in_few_bits_is_near_to_that_in_f32(self):
        one = reader.Checkpoint(self.train("f32"))
        for moments, allowed in (("bf16", 2e-2), ("8bit", 5e-2)):
            for grid in ("1,1,1,1", "2,1,2,1"):
                other = reader.Checkpoint(self.train(f"{moments}-{grid}", "--parallelism.grid", grid,
                                                     "--optimizer.moments", moments))
                self.assertEqual(other.index["version"], 2)
                self.assertEqual(other.kinds, one.kinds)
                for name in one:
                    for kind in one.kinds[1:]:
                        want, got = one.get(name, kind), other.get(name, kind)
                        self.assertLess(np.linalg.norm(got - want), allowed * np.linalg.norm(want),
                                        (moments, grid, name, kind))

    def test_factors_of_rows_and_columns_have_one_dim_and_are_those_of_one_rank(self):
        adafactor = ("--optimizer.kind", "adafactor")
        one = reader.Checkpoint(self.train("one", *adafactor))
        self.assertEqual(one.kinds, ["master", "exp_avg_sq_row", "exp_avg_sq_col"])
        other = reader.Checkpoint(self.train("two", "--parallelism.grid", "2,1,2,1", *adafactor))
        for name, shape in one.shapes.items():
            self.assertEqual(one.get(name, "exp_avg_sq_row").shape, shape[:1])
            for kind in one.kinds[1 : 1 + len(shape)]:
                want = one.get(name, kind)
                self.assertLess(np.linalg.norm(other.get(name, kind) - want),
                                1e-2 * np.linalg.norm(want), (name, kind))
            if len(shape) == 2:
                self.assertEqual(one.get(name, "exp_avg_sq_col").shape, shape[1:])
            else:
                with self.assertRaisesRegex(KeyError, "is a vector, which has no"):
                    one.get(name, "exp_avg_sq_col")

    def test_hashes_of_the_state_are_those_of_the_definition_on_every_grid(self):
        runs = [self.train("run-" + grid, "--parallelism.grid", grid)
                for grid in ("1,1,1,1", "2,1,2,1")]
        runs.append(self.train("factors", "--parallelism.grid", "2,1,2,1",
                               "--optimizer.kind", "adafactor"))
        for run in runs:
            checkpoint = reader.Checkpoint(run)
            lines = []
            for kind in sorted(checkpoint.kinds):
                state = hashlib.sha256()
                for name in sorted(checkpoint):
                    shape = checkpoint.shapes[name]
                    if kind == "exp_avg_sq_col" and len(shape) == 1:
                        continue  # vectors have no columns
                    rows, cols = (*shape, 1)[:2]
                    if kind == "exp_avg_sq_row":
                        cols = 1
                    if kind == "exp_avg_sq_col":
                        rows = 1
                    values = np.asarray(checkpoint.get(name, kind), "<f4")
                    state.update(name.encode() + b"\0" + struct.pack("<qq", rows, cols))
                    state.update(values.tobytes())
                lines.append(f"{kind} {state.hexdigest()}\n")
            whole = hashlib.sha256("".join(lines).encode()).hexdigest()
            words = [line.split() for line in axonn("hash", run).splitlines()[1:]]
            self.assertEqual(words, [line.split() for line in lines] + [["state", whole]])
        self.assertEqual(axonn("hash", runs[0], runs[0]).count("equal to the bit"), 3)
        axonn("hash", runs[0], runs[1], code=1)

    def test_a_parameter_of_one_rank_is_mapped_and_not_copied(self):
        checkpoint = reader.Checkpoint(self.train("run"))
        base = checkpoint["wte.weight"]
        while base.base is not None and not isinstance(base, np.memmap):
            base = base.base
        self.assertIsInstance(base, np.memmap)

    def test_damage_is_an_error_that_names_the_file(self):
        run = self.train("run", "--parallelism.grid", "1,1,2,1")
        (file, _) = sorted(glob.glob(os.path.join(run, "checkpoints/step-6/*.safetensors")))
        with open(file, "r+b") as data:
            data.seek(-10, os.SEEK_END)
            byte = data.read(1)
            data.seek(-10, os.SEEK_END)
            data.write(bytes([byte[0] ^ 1]))
        checkpoint = reader.Checkpoint(run)
        with self.assertRaisesRegex(reader.CheckpointError, "rank-00000.safetensors is damaged"):
            checkpoint.verify()
        with self.assertRaisesRegex(reader.CheckpointError, "is damaged"):
            for name in checkpoint:
                checkpoint[name]
        reader.Checkpoint(run, verify=False)["wte.weight"]
        os.truncate(file, os.path.getsize(file) - 1)
        with self.assertRaisesRegex(reader.CheckpointError, "but the index says"):
            reader.Checkpoint(run)
        index = os.path.join(run, "checkpoints/step-6/index.json")
        with open(index, "rb") as data:
            text = data.read()
        self.write(index, text.replace(b'"step": 6', b'"step": 7'))
        with self.assertRaisesRegex(reader.CheckpointError, "index.json is altered"):
            reader.Checkpoint(run)
        with self.assertRaisesRegex(reader.CheckpointError, "there is no checkpoint"):
            reader.Checkpoint(self.folder + "/none")

    def test_what_is_not_there_is_named(self):
        checkpoint = reader.Checkpoint(self.train("run"))
        self.assertGreater(checkpoint.verify(), 1000)
        with self.assertRaisesRegex(KeyError, "no parameter x.weight"):
            checkpoint["x.weight"]
        with self.assertRaisesRegex(KeyError, "no m, but master, exp_avg"):
            checkpoint.get("wte.weight", "m")
        np.savez(self.path("all.npz"), **checkpoint)
        with np.load(self.path("all.npz")) as saved:
            self.assertEqual(set(saved), set(checkpoint))

    def test_without_xxhash_it_says_how_to_go_on(self):
        run = self.train("run")
        digest, reader.xxh3_64_intdigest = reader.xxh3_64_intdigest, None
        try:
            with self.assertRaisesRegex(reader.CheckpointError, "needs the package xxhash"):
                reader.Checkpoint(run)
            self.assertEqual(reader.Checkpoint(run, verify=False).step, 6)
        finally:
            reader.xxh3_64_intdigest = digest


class OtherFiles(RunTest):
    def test_metrics_and_plans(self):
        run = self.train("run")
        self.assertEqual([line["step"] for line in reader.metrics(run)], [1, 2, 3, 4, 5, 6])
        with open(os.path.join(run, "metrics.jsonl"), "ab") as file:  # a crash within a line
            file.write(b'{"step": 7, "x": "\xc3')
        self.assertEqual(len(reader.metrics(run)), 6)
        self.assertEqual(reader.samples(run), [])
        self.assertEqual(reader.end(run)[0], "finished")
        self.assertEqual(reader.end(self.path("none")), (None, ""))
        axonn("plan", "--model", "gpt2-124m", "--machine", "alps", "--devices", "4",
              "--batch-tokens", "8192", "--seq-len", "1024", "--json", self.path("plans.json"))
        self.assertIn("grid", reader.plans(self.path("plans.json"))[0])


if __name__ == "__main__":
    main()
