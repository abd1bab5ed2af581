"""Random trainings on random grids, against one rank.

Draws a model with its options, a batch, an optimizer, losses, masks, recomputation, and a grid with
its overlap, context and experts; `axonn check` compares losses and norms of three steps, and the
gradient norm of every parameter. Some draws are trained, and resumed on another grid in the middle.
A failure is shrunk to the fewest keys, and told as one command.

  random_trainings.py AXONN [--draws N] [--seed N] [--first]    prints every failure, or the first
  random_trainings.py --pairs N [--seed N]            pairs of values that N draws do not reach
"""

import itertools
import json
import random
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

BLOCK = 64  # positions of a sequence that ranks of a context have together
STEPS = 3
# A resumed run adds in another order from its first step on: relative to the losses of the other.
RESUMED = {"f32": 2e-5, "bf16": 3e-2}


def write_text(path, rng):
    """Lines of 0 to 150 bytes; each is a document if its end is the token 10."""
    words = ["the", "grid", "of", "ranks", "sums", "a", "gradient", "over", "x", "and", "y"]
    lines = (" ".join(rng.choices(words, k=rng.choice((0, 1, 3, 9, 30)))) for _ in range(900))
    path.write_text("\n".join(lines) + "\n")


def near(rng, *borders):
    """A number at one of the borders, or beside it. Not 1: a window of one key has gradients of 0,
    of which only rounding is left to compare."""
    return max(2, rng.choice(borders) + rng.choice((-1, 0, 1)))


def draw_grid(rng):
    while True:
        grid = [rng.choice((1, 1, 2, 2, 3, 4)) for _ in range(4)]
        if 2 <= grid[0] * grid[1] * grid[2] * grid[3] <= 8:
            return grid


def draw_model(rng, keys, grid, dtype):
    x, y = grid[0], grid[1]
    llama = keys["model.family"] == "llama"
    heads = x * rng.choice((1, 2, 3))
    width = rng.choice((8, 16, 24)) if dtype == "f32" else rng.choice((16, 32))
    keys |= {"model.layers": rng.choice((1, 2, 3)), "model.heads": heads}
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
    keys["model.ffn"] = rng.choice((32, 40, 56, 96)) * x
    keys["model.vocab"] = rng.choice((256, 257, 263, 290))
    keys["model.tied"] = rng.choice((True, False))
    if not llama:
        keys["model.bias"] = rng.choice((True, False))
        return
    keys["model.qkv_bias"] = rng.choice((True, False))
    keys["model.qk_norm"] = rng.choice(("none", "head", "width"))
    keys["model.rope_scaling"] = rng.choice(("none", "none", "llama3"))
    if rng.random() < 0.5:
        experts = rng.choice((2, 4, 4, 6, 8))
        keys |= {
            "model.experts": experts,
            "model.experts_per_token": rng.randint(1, min(3, experts)),
            "model.expert_ffn": rng.choice((16, 24)) * x,
            "model.expert_norm": rng.choice((True, False)),
            "model.expert_step": rng.choice((1, 1, 2)) if keys["model.layers"] > 1 else 1,
            "model.router": rng.choice(("softmax", "sigmoid")),
            "training.balance.weight": rng.choice((0, 0.01)),
            "training.balance.scope": rng.choice(("sequence", "batch", "hugging_face")),
            "training.balance.z": rng.choice((0, 0.001)),
            "parallelism.experts": rng.choice([e for e in (1, 2, 4) if grid[2] % e == 0
                                               and experts % e == 0]),
        }
    elif rng.random() < 0.4:
        keys["model.activation"] = "xielu"


def draw_rows(rng, keys, grid):
    """The length of sequences, how they are cut, windows and documents."""
    z, data = grid[2], grid[3]
    context = rng.choice([c for c in (1, 2, 4) if z % c == 0])
    if context > 1:
        keys["parallelism.context"] = context
        keys["training.seq_len"] = length = 2 * BLOCK * context * rng.choice((1, 2))
    else:
        keys["training.seq_len"] = length = rng.choice((2, 7, 24, 33, 64, 65, 130))
    if keys["model.family"] == "llama" and rng.random() < 0.8:
        piece = length // context
        borders = [b for b in (2, BLOCK, piece - BLOCK, piece, length // 2, length) if b > 1]
        keys["model.window"] = near(rng, *borders)
        if context > 1:
            keys["parallelism.context_layout"] = rng.choice(("auto", "zigzag", "balanced", "window"))
    documents = rng.choice(("joined", "joined", "separate", "packed"))
    if documents != "joined":
        keys |= {"data.documents": documents, "data.eod": 10}
    chunks = rng.choice((1, 1, 2, 3))
    micro, places = chunks * rng.choice((1, 2)), z // context * data
    keys["training.micro_batch"] = micro
    keys["training.global_batch"] = micro * places * rng.choice((1, 2, 3))
    keys["parallelism.chunks"] = chunks


def draw_training(rng, keys, dtype):
    keys["training.dtype"] = dtype
    keys["optimizer.kind"] = rng.choice(("adamw", "adamw", "sgd", "ademamix", "muon"))
    keys["optimizer.weight_decay"] = rng.choice((0, 0.1))
    keys["training.max_norm"] = rng.choice((0, 0.1, 1))
    keys["lr_scheduler.kind"] = rng.choice(("constant", "linear", "cosine", "wsd"))
    if rng.random() < 0.3:
        keys["training.z_loss"] = 1e-3
    if rng.random() < 0.3:
        keys["training.goldfish.k"] = rng.choice((2, 4))
        keys["training.goldfish.h"] = rng.choice((1, 13))
    if rng.random() < 0.25 and keys["optimizer.kind"] != "muon":
        keys["lora.rank"] = rng.choice((1, 3))
        if rng.random() < 0.3:
            keys["lora.dropout"] = 0.2
    mode = rng.choice(("none", "none", "light", "full"))
    if mode != "none":
        keys["activation_checkpoint.mode"] = mode
    for switch in ("input_gradients", "weight_gradients", "weights", "data", "context"):
        if rng.random() < 0.2:
            keys[f"parallelism.overlap_{switch}"] = False
    keys["parallelism.sequence_parallel"] = rng.choice((True, True, False))
    if dtype == "bf16":
        keys["parallelism.reduce_dtype"] = rng.choice(("f32", "bf16"))


def draw(rng):
    """A training: its keys, its grid, and, if it is to be resumed, the grid of its second half."""
    grid, dtype = draw_grid(rng), rng.choice(("f32", "f32", "f32", "bf16"))
    keys = {"model.family": rng.choice(("gpt", "llama", "llama", "llama"))}
    draw_model(rng, keys, grid, dtype)
    draw_rows(rng, keys, grid)
    draw_training(rng, keys, dtype)
    other = [1, 1, 1, 1] if rng.random() < 0.5 else [1, 1, 1, grid[2] * grid[3]]
    if keys.get("parallelism.context", 1) > 1 or keys.get("parallelism.experts", 1) > 1:
        other = [1, 1, 1, 1]
    return keys, grid, other if rng.random() < 0.15 else None


def words_of(keys):
    words = []
    for key, value in keys.items():
        words += [f"--{key}", str(value).lower() if isinstance(value, bool) else str(value)]
    return words


class Trial:
    """Runs trainings in a folder."""

    def __init__(self, program, folder):
        self.program, self.folder = program, Path(folder)
        self.config = self.folder / "base.toml"
        write_text(self.folder / "text.txt", random.Random(7))
        self.config.write_text(
            f'[data]\ntext = "{self.folder}/text.txt"\nvalidation = 0\n'
            "[training]\nsteps = 6\nthreads = 1\n[optimizer]\nlr = 1e-3\n"
            f'[parallelism]\ndevice = "cpu"\ntransport = "threads"\n'
            f'[output]\ndir = "{self.folder}/out"\noverwrite = true\n'
        )

    def check(self, keys, grid):
        words = [self.program, "check", str(self.config), "--steps", str(STEPS)]
        words += ["--grids", "1,1,1,1 " + ",".join(map(str, grid)), *words_of(keys)]
        return words

    def run(self, words):
        done = subprocess.run(words, capture_output=True, text=True, timeout=300)
        return done.returncode, done.stdout + done.stderr

    def resumed(self, keys, grid, other):
        """None, or why a run that goes on with other ranks has other losses."""
        limit = RESUMED[keys["training.dtype"]]
        train = [self.program, "train", str(self.config), "--training.steps", "4"]
        train += ["--checkpoint.every", "2", "--checkpoint.keep", "0", *words_of(keys)]
        losses = []
        for name, at in (("a", grid), ("b", other)):
            out = self.folder / name
            shutil.rmtree(out, ignore_errors=True)
            words = [*train, "--output.dir", str(out), "--parallelism.grid", ",".join(map(str, at))]
            if name == "b":
                words += ["--checkpoint.resume", str(self.folder / "a/checkpoints/step-2")]
            code, text = self.run(words)
            if code == 2:
                return None, code
            if code != 0:
                return f"{shlex.join(words)}\nexit code {code}\n{text[-1500:]}", code
            lines = map(json.loads, (out / "metrics.jsonl").read_text().splitlines())
            losses.append({line["step"]: line["loss"] for line in lines if "loss" in line})
        for step in (3, 4):
            one, two = losses[0].get(step), losses[1].get(step)
            if one is None and two is None:
                continue
            if one is None or two is None or abs(one - two) > limit * abs(one):
                return f"{shlex.join(words)}\nstep {step}: {one} on {grid}, {two} on {other}", 1
        return None, 0

    def fault(self, keys, grid, other=None):
        """None, or the failure; and the exit code, 2 if the program refuses the training."""
        if other:
            return self.resumed(keys, grid, other)
        code, text = self.run(self.check(keys, grid))
        if code == 0 or (code == 2 and "error: " in text):
            return None, code
        return f"{shlex.join(self.check(keys, grid))}\nexit code {code}\n{text[-1500:]}", code

    def shrunk(self, keys, grid, other):
        """The same failure with as few keys and ranks as possible."""
        needed = {"model.layers", "model.hidden", "model.heads", "training.seq_len",
                  "training.global_batch", "training.dtype", "optimizer.kind"}  # fmt: skip
        failure, _ = self.fault(keys, grid, other)
        for key in [k for k in keys if k not in needed]:
            fewer = {k: v for k, v in keys.items() if k != key}
            still, _ = self.fault(fewer, grid, other)
            if still:
                keys, failure = fewer, still
        for axis in range(4):
            smaller = [1 if i == axis else n for i, n in enumerate(grid)]
            still = self.fault(keys, smaller, other)[0] if smaller != grid else None
            if still:
                grid, failure = smaller, still
        return failure


def features(keys, grid, other):
    """The values of which pairs are counted."""
    length, context = keys["training.seq_len"], keys.get("parallelism.context", 1)
    window, piece = keys.get("model.window", 0), length // context
    border = next((f"{name}{window - at:+d}" for name, at in
                   (("piece - block", piece - BLOCK), ("piece", piece), ("half", length // 2),
                    ("all", length), ("block", BLOCK), ("2", 2)) if abs(window - at) <= 1), "-")  # fmt: skip
    return {
        "grid": "".join("1" if n == 1 else "+" for n in grid),
        "context": context,
        "window": border if window else "none",
        "resumed": other is not None,
        **{k: keys.get(k, "-") for k in (
            "model.family", "model.tied", "model.qk_norm", "model.qkv_bias", "model.activation",
            "model.router", "model.bias", "data.documents", "training.dtype", "optimizer.kind",
            "activation_checkpoint.mode", "parallelism.chunks", "parallelism.experts",
            "training.balance.scope", "training.goldfish.k", "training.z_loss", "lora.rank",
            "lr_scheduler.kind", "training.max_norm", "parallelism.sequence_parallel")},  # fmt: skip
    }


def missing_pairs(draws, seed):
    """The pairs of values that some draws of many have, but none of the first `draws`."""
    rng, first, later = random.Random(seed), set(), set()
    for i in range(20 * draws):
        values = features(*draw(rng)).items()
        (first if i < draws else later).update(itertools.combinations(values, 2))
    return sorted(map(str, later - first)), len(first)


def random_trainings(attacked):
    """For run.py: 60 draws that are always the same; the long form draws for a quarter of an hour
    by the seed of the day, which it prints."""
    trial = Trial(attacked.program, attacked.folder)
    rng, end = attacked.rng, time.monotonic() + 900
    if attacked.long:
        seed = int(time.strftime("%Y%m%d"))
        print(f"random_trainings: seed {seed}", flush=True)
        rng = random.Random(seed)
    draws = 0
    while time.monotonic() < end if attacked.long else draws < 60:
        draws += 1
        keys, grid, other = draw(rng)
        failure, code = trial.fault(keys, grid, other)
        if failure:
            yield trial.shrunk(keys, grid, other)
        elif code == 0:
            yield None


def number_of(words, flag, otherwise):
    """The integer after the flag on the command line."""
    return int(words[words.index(flag) + 1]) if flag in words else otherwise


def main():
    words = sys.argv[1:]
    seed = number_of(words, "--seed", 1)
    if "--pairs" in words:
        missing, reached = missing_pairs(number_of(words, "--pairs", 2000), seed)
        print(*missing, sep="\n")
        print(f"{reached} pairs are reached, {len(missing)} are not")
        return
    rng, refused, failed, refusals = random.Random(seed), 0, 0, {}
    with tempfile.TemporaryDirectory() as folder:
        trial = Trial(words[0], folder)
        for i in range(number_of(words, "--draws", 200)):
            keys, grid, other = draw(rng)
            failure, code = trial.fault(keys, grid, other)
            refused += code == 2
            if code == 2 and "--refusals" in words:
                text = trial.run(trial.check(keys, grid))[1].strip().splitlines()[-1]
                refusals[text[:90]] = refusals.get(text[:90], 0) + 1
            if failure:
                failed += 1
                print(f"draw {i}: {trial.shrunk(keys, grid, other)}\n", flush=True)
                if "--first" in words:
                    break
    for text, count in sorted(refusals.items(), key=lambda one: -one[1]):
        print(count, text)
    print(f"seed {seed}: {failed} failed, {refused} were refused")
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
