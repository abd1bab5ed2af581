#!/usr/bin/env python3
"""Random trainings on random grids, against one rank.

Draws a model with its options, a batch, an optimizer, losses, masks, recomputation, and a grid with
its overlap, context and experts (training_draws.py); `axonn check` compares losses and norms of
three steps, and the gradient norm of every parameter. Some draws are trained, and resumed on
another grid in the middle. Of some the ranks of the grid are processes under mpirun. A failure is
shrunk to the fewest keys, and told as one command.

  random_trainings.py AXONN [--draws N] [--seed N] [--first]    prints every failure, or the first
  random_trainings.py AXONN --seed N --draw N [--folder F]      one draw; its files stay in F
  random_trainings.py --pairs N [--seed N]   pairs of values that N draws do not reach

An interrupt ends a run with its counts. As an attack of run.py the seed is AXONN_ATTACK_SEED or, if
that is not set, the date.
"""

import contextlib
import itertools
import json
import random
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from harness import launcher, seed_of_the_day
from training_draws import draws, missing_pairs

STEPS = 3
# A resumed run adds in another order from its first step on: relative to the values of the other.
RESUMED = {"f32": 2e-5, "bf16": 3e-2, "f16": 4e-3}
NORMS = {"f32": 1e-3, "bf16": 0.3, "f16": 0.05}
# What a failure says if losses or norms differ, which rounding alone may do for some first weights.
GROWN, OTHER_SEEDS = ("the grids do NOT agree", "exit code 0\nstep "), (11, 12, 13)
CERTAIN = ("first parameter: ", "replicas differ")
# The norm of a delta net's output enlarges rounding where a query and its key are nearly
# orthogonal, already in the gradients of the first step.
CERTAIN_OF_DELTA = CERTAIN[1:]
# One rank adds gradients in f32, so that 16 bits of range may not suffice on another grid alone.
OVERFLOW = "the gradients of the first step overflow on one grid alone"
COMPARED = ("loss", "val_loss", "val_loss_ema", "output_z_loss", "balance_loss", "router_z_loss",
            "goldfish_kept", "lr", "tokens", "grad_norm")  # fmt: skip


def write_text(path, rng):
    """Lines of 0 to 150 bytes; each is a document if its end is the token 10."""
    words = ["the", "grid", "of", "ranks", "sums", "a", "gradient", "over", "x", "and", "y"]
    lines = [" ".join(rng.choices(words, k=rng.choice((0, 1, 3, 9, 30)))) for _ in range(900)]
    path.write_text("\n".join(lines) + "\n")
    return lines


def write_examples(path, lines):
    """Pairs of lines as a prompt, of which nothing is learned, and its completion."""
    examples = ({"prompt": prompt, "completion": answer}
                for prompt, answer in zip(lines[::2], lines[1::2]) if answer)  # fmt: skip
    path.write_text("".join(json.dumps(example) + "\n" for example in examples))


def write_forgotten(folder, lines):
    """A few long lines, and a few of the examples, for data.forget."""
    long = [line for line in lines if len(line) > 60][:4]
    (folder / "forget.jsonl").write_text("".join(json.dumps({"text": line}) + "\n" for line in long))
    examples = (folder / "lines.jsonl").read_text().splitlines(True)
    (folder / "forget_lines.jsonl").write_text("".join(examples[2:12:3]))


def words_of(keys):
    words = []
    for key, value in keys.items():
        words += [f"--{key}", str(value).lower() if isinstance(value, bool) else str(value)]
    return words


def comma(grid):
    return ",".join(map(str, grid))


class Trial:
    """Runs trainings in a folder."""

    def __init__(self, program, folder):
        self.program, self.folder = str(Path(program).resolve()), Path(folder)
        self.launcher = launcher(self.program)
        build = Path(self.program).parent.parent  # temporary folders may be in memory
        kind = subprocess.run(["stat", "-f", "-c", "%T", build], capture_output=True, text=True)
        self.disk = None if kind.stdout.strip() == "tmpfs" else build
        self.folder.mkdir(parents=True, exist_ok=True)
        lines = write_text(self.folder / "text.txt", random.Random(7))
        write_examples(self.folder / "lines.jsonl", lines)
        write_forgotten(self.folder, lines)
        (self.folder / "base.toml").write_text(
            '[data]\ntext = "text.txt"\nvalidation = 0\n'
            "[training]\nsteps = 6\neval_batches = 1\nthreads = 1\n[optimizer]\nlr = 1e-3\n"
            '[parallelism]\ndevice = "cpu"\ntransport = "threads"\n'
            '[output]\ndir = "out"\noverwrite = true\n'
        )

    def command(self, training, name, grid, *words):
        """One of the program's commands with the keys; `grid` tells the number of processes."""
        start, keys = [], dict(training.keys)
        if keys.pop("offload.dir", None) and self.disk:
            keys["offload.dir"] = str(self.disk / "offloaded")
        if training.mpi and self.launcher.exists() and grid == training.grid:
            ranks = grid[0] * grid[1] * grid[2] * grid[3]
            start = [str(self.launcher), "-np", str(ranks)]
            keys["parallelism.transport"] = "mpi"
        return [*start, self.program, name, "base.toml", *words, *words_of(keys)]

    def check(self, training):
        words = ["--steps", str(STEPS), "--grids", f"1,1,1,1 {comma(training.grid)}"]
        return self.command(training, "check", training.grid, *words)

    def train(self, training, name, grid, *words):
        out = ["--output.dir", name, "--parallelism.grid", comma(grid)]
        steps = ["--training.steps", "4", "--checkpoint.every", "2", "--checkpoint.keep", "0"]
        scope = training.keys.get("training.balance.scope", "sequence")
        if scope != "sequence" and "training.micro_batch" in training.keys:
            # The losses of a micro-batch of all ranks: on each grid the whole batch.
            share = -(-training.keys["training.global_batch"] // training.places(grid))
            keys = {**training.keys, "training.micro_batch": share}
            training = replace(training, keys=keys)
        return self.command(training, "train", grid, *steps, *out, *words)

    def run(self, words):
        done = subprocess.run(words, capture_output=True, text=True, timeout=300, cwd=self.folder)
        return done.returncode, done.stdout + done.stderr

    def resumed(self, training):
        """None, or why a run that goes on with other ranks has other losses; the exit code."""
        dtype = training.keys["training.dtype"]
        runs, values = [], []
        for name, grid in (("a", training.grid), ("b", training.other)):
            shutil.rmtree(self.folder / name, ignore_errors=True)
            more = ["--checkpoint.resume", "a/checkpoints/step-2"] if runs else []
            runs.append(self.train(training, name, grid, *more))
            code, text = self.run(runs[-1])
            if code != 0:
                refused = code == 2 and "error: " in text
                return None if refused else told(runs, code, text), code
            lines = (self.folder / name / "metrics.jsonl").read_text().splitlines()
            values.append({line["step"]: line for line in map(json.loads, lines)})
        for step, what in itertools.product((3, 4), COMPARED):
            limit = (NORMS if what == "grad_norm" else RESUMED)[dtype]
            one, two = (of.get(step, {}).get(what) for of in values)
            if one is None and two is None:
                continue
            if one is None or two is None or abs(one - two) > limit * abs(one):
                where = f"{one} on {training.grid}, {two} on {training.other}"
                return told(runs, 0, f"step {step}, {what}: {where}"), 0
        return None, 0

    def difference(self, training):
        """None, or the failure; and the exit code, 2 if the program refuses the training."""
        if training.other:
            return self.resumed(training)
        words = self.check(training)
        code, text = self.run(words)
        if code == 0 or (code == 2 and "error: " in text):
            return None, code
        return told([words], code, text), code

    def fault(self, training):
        """As difference(). Where only losses or norms of later steps differ, other first weights
        must do so too: some optimizers enlarge rounding where a gradient should be 0."""
        failure, code = self.difference(training)
        if failure and OVERFLOW in failure and training.keys.get("parallelism.reduce_dtype") == "f16":
            wide = {**training.keys, "parallelism.reduce_dtype": "f32"}
            return self.fault(replace(training, keys=wide))
        certain = CERTAIN_OF_DELTA if "model.delta_layers" in training.keys else CERTAIN
        if failure and any(map(failure.count, GROWN)) and not any(map(failure.count, certain)):
            # Blocks of codes are other ones on another grid, so means differ by their rounding.
            if training.keys.get("optimizer.moments") == "8bit":
                exact = {**training.keys, "optimizer.moments": "f32"}
                return self.fault(replace(training, keys=exact))
            for seed in OTHER_SEEDS:
                again, _ = self.difference(
                    replace(training, keys={**training.keys, "training.seed": seed}))  # fmt: skip
                if not again:
                    return None, 0
        return failure, code

    def shrunk(self, training):
        """The same failure with as few keys and ranks as possible, and the number of its keys."""
        needed = {"model.layers", "model.hidden", "model.heads", "training.seq_len",
                  "training.global_batch", "training.dtype", "optimizer.kind"}  # fmt: skip
        failure = self.fault(training)[0]

        def attempt(**changes):
            nonlocal training, failure
            smaller = replace(training, **changes)
            still = self.fault(smaller)[0] if smaller != training else None
            if still:
                training, failure = smaller, still

        def fewer_ranks():
            for axis in range(4):
                attempt(grid=[1 if i == axis else n for i, n in enumerate(training.grid)])

        attempt(mpi=False)
        fewer_ranks()
        several = len(training.keys)
        while several := several // 2:
            spare = [key for key in training.keys if key not in needed]
            for first in range(0, len(spare), several):
                left_out = spare[first : first + several]
                attempt(keys={k: v for k, v in training.keys.items() if k not in left_out})
        fewer_ranks()
        return f"{failure}\n({len(training.keys)} keys on {comma(training.grid)})"


def told(commands, code, text):
    return "\n".join(map(shlex.join, commands)) + f"\nexit code {code}\n{text[-1500:]}"


def tell(trial, seed, number):
    """Says how to repeat a draw that failed, which is then shrunk for minutes."""
    print(f"draw {number} of seed {seed} fails; to repeat it: tests/attacks/random_trainings.py "
          f"{trial.program} --seed {seed} --draw {number} --folder FOLDER", flush=True)  # fmt: skip


def random_trainings(attacked):
    """For run.py: 60 draws or a minute, in the long form a quarter of an hour. The first try is
    that draws reach all pairs of values."""
    seed, seconds, most = seed_of_the_day(), attacked.several(60, 900), attacked.several(60, None)
    print(f"random_trainings: AXONN_ATTACK_SEED={seed}", flush=True)
    trial, end = Trial(attacked.program, attacked.folder), time.monotonic() + seconds
    missing, _ = missing_pairs(4000, 1, 20000)
    yield f"4,000 draws do not reach {len(missing)} pairs: {missing[:9]}" if missing else None
    for number, training in enumerate(itertools.islice(draws(seed), most)):
        if time.monotonic() > end:
            break
        failure, code = trial.fault(training)
        if failure:
            tell(trial, seed, number)
            yield trial.shrunk(training)
        elif code == 0:
            yield None


def number_of(words, flag, otherwise):
    """The integer after the flag on the command line."""
    return int(words[words.index(flag) + 1]) if flag in words else otherwise


def main():
    words = sys.argv[1:]
    seed = number_of(words, "--seed", 1)
    if "--pairs" in words:
        missing, reached = missing_pairs(number_of(words, "--pairs", 2000), seed, 40000)
        print(*missing, sep="\n")
        print(f"{reached} pairs are reached, {len(missing)} that others have are not")
        return
    refused, failed, refusals = 0, 0, {}
    first = number_of(words, "--draw", 0)
    end = first + 1 if "--draw" in words else number_of(words, "--draws", 200)
    with tempfile.TemporaryDirectory() as folder, contextlib.suppress(KeyboardInterrupt):
        kept = words[words.index("--folder") + 1] if "--folder" in words else folder
        trial = Trial(words[0], kept)
        for i, training in enumerate(itertools.islice(draws(seed), first, end), first):
            failure, code = trial.fault(training)
            refused += code == 2
            if code == 2 and "--refusals" in words and not training.other:
                text = trial.run(trial.check(training))[1].strip().splitlines()[-1]
                refusals[text[:90]] = refusals.get(text[:90], 0) + 1
            if failure:
                failed += 1
                tell(trial, seed, i)
                print(trial.shrunk(training) + "\n", flush=True)
                if "--first" in words:
                    break
    for text, count in sorted(refusals.items(), key=lambda one: -one[1]):
        print(count, text)
    print(f"seed {seed}: {i + 1 - first} drawn, {failed} failed, {refused} were refused")
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
