#!/usr/bin/env python3
"""Random tiny models by every road: a checkpoint, a Hugging Face folder, GGUF, PEFT, and back.

A model with random options, often one of the types of Hugging Face's models, is trained for a step
on a random grid. Each form that it is converted to must score a text with the same loss, to the bit
on one rank and but for rounding on a grid, and must convert back to the same bytes; or the program
refuses the form by name. The same holds for the folder with other spellings of its files
(spelled_folders.py); with an option that is not supported, it must be refused.

  random_folders.py AXONN [--draws N] [--seed N]
  random_folders.py AXONN --seed N --draw N [--folder F]     one draw; its files stay in F

As an attack of run.py the seed is AXONN_ATTACK_SEED or, if that is not set, the date.
"""

import json
import random
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from family_folders import FAMILIES, as_family
from harness import seed_of_the_day
from random_trainings import number_of, words_of, write_text
from spelled_folders import TYPES, as_gpt2, as_type, draw_numbers, make_strange, respell
from training_draws import draw_grid, draw_model

sys.path.insert(0, str(Path(__file__).parents[1] / "files"))
try:
    import gguf
except ImportError:  # numpy is missing
    gguf = None

LENGTH = 32


class Refused(Exception):
    """The program refuses the form."""


class Lost(Exception):
    """What was lost on the way, and by which command."""


class Roads:
    def __init__(self, program, folder):
        self.program, self.folder = program, Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.config = self.folder / "base.toml"
        write_text(self.folder / "text.txt", random.Random(11))
        (self.folder / "scored.txt").write_text("the grid of ranks sums x and y\n" * 12)
        self.config.write_text(
            f'[data]\ntext = "{self.folder}/text.txt"\n[training]\nsteps = 1\nthreads = 1\n'
            f"seq_len = {LENGTH}\nglobal_batch = 24\n[optimizer]\nlr = 1e-2\n"
            f'[parallelism]\ndevice = "cpu"\ntransport = "threads"\n[output]\noverwrite = true\n'
        )

    def run(self, *words):
        command = [self.program, *map(str, words)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300)
        if done.returncode == 2 and "error: " in done.stderr:
            raise Refused(done.stderr.strip().splitlines()[-1])
        if done.returncode != 0:
            raise Lost(f"{shlex.join(command)}\nexit code {done.returncode}\n{done.stderr[-1500:]}")

    def train(self, name, grid, keys):
        out = self.folder / name
        shutil.rmtree(out, ignore_errors=True)
        at = ",".join(map(str, grid))
        self.run("train", self.config, "--output.dir", out, "--parallelism.grid", at, *words_of(keys))
        return out / "checkpoints"

    def convert(self, name, model, *words):
        out = self.folder / name
        if out.is_dir():
            shutil.rmtree(out)
        self.run("convert", "--model", model, "--out", out, "--overwrite", *words)
        return out

    def loss(self, model, grid=(1, 1, 1, 1), *words):
        result = self.folder / "scores.json"
        at = ",".join(map(str, grid))
        self.run("eval", "--model", model, "--data", self.folder / "scored.txt", "--seq-len", LENGTH,
                 "--grid", at, "--device", "cpu", "--json", result, *words)  # fmt: skip
        return json.loads(result.read_text())["loss"]

    def same_loss(self, want, model, what, *words):
        got = self.loss(model, (1, 1, 1, 1), *words)
        if got != want:
            raise Lost(f"{what}: the loss is {got}, of the checkpoint {want}")

    def same_files(self, one, other):
        names = sorted(p.name for p in one.iterdir())
        if names != sorted(p.name for p in other.iterdir()):
            raise Lost(f"{one.name} and {other.name} have other files")
        for name in names:
            if (one / name).read_bytes() != (other / name).read_bytes():
                raise Lost(f"{name} differs between {one.name} and {other.name}")


def travel(roads, rng, keys, grid, lora):
    """Takes a model along all roads; throws Lost."""
    model = roads.train("run", grid, keys)
    want = roads.loss(model)
    near = roads.loss(model, grid)
    if abs(near - want) > 2e-6 * want:
        raise Lost(f"scored on {grid} the loss is {near}, on one rank {want}")
    if lora:
        adapted = roads.train("lora", grid, {"model.path": model, "lora.rank": rng.choice((1, 3)),
                                             "optimizer.lr": 0.5})  # fmt: skip
        loss = roads.loss(adapted)
        peft = roads.convert("peft", adapted)
        roads.same_loss(loss, model, "the adapters from their PEFT folder", "--adapter", peft)
    folder = roads.convert("hf", model, "--to", "hf", "--dtype", "f32")
    roads.same_loss(want, folder, "the Hugging Face folder")
    near = roads.loss(folder, grid)
    if abs(near - want) > 2e-6 * want:
        raise Lost(f"the folder scored on {grid} has the loss {near}, on one rank {want}")
    back = roads.convert("back", folder, "--to", "checkpoint")
    roads.same_loss(want, back, "the checkpoint made from the folder")
    roads.same_files(folder, roads.convert("again", back, "--to", "hf", "--dtype", "f32"))
    spelled = respell(folder, roads.folder / "spelled", rng)
    try:
        roads.same_loss(want, spelled, "the same folder with other spellings")
        back = roads.convert("back", spelled, "--to", "checkpoint")
    except Refused as why:
        raise Lost(f"the same folder with other spellings is refused: {why}") from None
    near = roads.loss(spelled, grid)
    if abs(near - want) > 2e-6 * want:
        raise Lost(f"the other spellings scored on {grid} have the loss {near}, not {want}")
    roads.same_files(folder, roads.convert("again", back, "--to", "hf", "--dtype", "f32"))
    refusal = make_strange(spelled, rng)
    try:
        roads.loss(spelled, grid)
        raise Lost(f"a folder with another {refusal} is not refused")
    except Refused as why:
        if refusal not in str(why):
            raise Lost(f"the refusal does not name another {refusal}: {why}") from None
    if not gguf:
        return
    one, other = (gguf.Reader(roads.convert(f"{i}.gguf", path, "--to", "gguf", "--dtype", "f32"))
                  for i, path in enumerate((model, folder)))  # fmt: skip
    # A folder has no file for a tokenizer of bytes.
    sizes = [{k: v for k, v in of.keys.items() if not k.startswith(("general.name", "tokenizer."))}
             for of in (one, other)]  # fmt: skip
    if sizes[0] != sizes[1]:
        raise Lost(f"the keys of GGUF are {sizes[0]} of the checkpoint and {sizes[1]} of the folder")
    for name, (kind, sizes, values) in one.tensors.items():
        if other.tensors[name][:2] != (kind, sizes) or (other.tensors[name][2] != values).any():
            raise Lost(f"{name} in GGUF differs between checkpoint and folder")
    architecture = one.keys["general.architecture"]
    if one.keys[architecture + ".context_length"] < LENGTH:
        return  # llama.cpp has no window there, and the file states so many positions
    try:
        near = roads.loss(roads.folder / "0.gguf")
    except Refused as why:
        raise Lost(f"its GGUF file is not read: {why}") from None
    if abs(near - want) > 2e-6 * want:
        raise Lost(f"the GGUF file has the loss {near}, the checkpoint {want}")


def attempt(roads, rng):
    """None, or what was lost; and the reason for which the program refused a form, or ""."""
    grid = draw_grid(rng)
    keys = {"model.family": rng.choice(("gpt", "opt", "llama", "llama", "llama", "llama", "llama"))}
    draw_model(rng, keys, grid, "f32")
    keys = {k: v for k, v in keys.items() if k.startswith("model.")}
    if keys["model.family"] == "llama":
        if rng.random() < 0.6:
            as_family(rng, keys, rng.choice(list(FAMILIES)), LENGTH, grid)
        elif rng.random() < 0.85:
            as_type(rng, keys, rng.choice(list(TYPES)), LENGTH)
        elif rng.random() < 0.3:
            keys["model.window"] = rng.choice((1, 7, LENGTH - 1, LENGTH))
    elif rng.random() < 0.8:
        as_gpt2(rng, keys)
    draw_numbers(rng, keys, LENGTH)
    try:
        travel(roads, rng, keys, grid, rng.random() < 0.3)
    except Refused as why:
        return None, str(why)
    except Lost as why:
        return f"{why}\nof the model {shlex.join(words_of(keys))} trained on {grid}", ""
    return None, ""


def numbered(seed, number):
    """The random numbers of a draw, so that it can be repeated alone."""
    return random.Random(f"{seed} {number}")


def repeat(roads, seed, number):
    return (f"draw {number} of seed {seed}; to repeat it: tests/attacks/random_folders.py "
            f"{roads.program} --seed {seed} --draw {number} --folder FOLDER\n")  # fmt: skip


def random_folders(attacked):
    """For run.py: 40 draws or a minute, in the long form five minutes."""
    seed, end = seed_of_the_day(), time.monotonic() + attacked.several(60, 300)
    print(f"random_folders: AXONN_ATTACK_SEED={seed}", flush=True)
    roads = Roads(attacked.program, attacked.folder)
    for number in range(attacked.several(40, 10**9)):
        if time.monotonic() > end:
            break
        lost = attempt(roads, numbered(seed, number))[0]
        yield lost and repeat(roads, seed, number) + lost


def main():
    words = sys.argv[1:]
    seed, failed, refusals = number_of(words, "--seed", 1), 0, {}
    first = number_of(words, "--draw", 0)
    end = first + 1 if "--draw" in words else number_of(words, "--draws", 100)
    with tempfile.TemporaryDirectory() as folder:
        kept = words[words.index("--folder") + 1] if "--folder" in words else folder
        roads = Roads(words[0], kept)
        for i in range(first, end):
            lost, refused = attempt(roads, numbered(seed, i))
            if lost:
                failed += 1
                print(repeat(roads, seed, i) + f"{lost}\n", flush=True)
            if refused:
                refusals[refused[:110]] = refusals.get(refused[:110], 0) + 1
    for text, count in sorted(refusals.items(), key=lambda one: -one[1]):
        print(count, text)
    print(f"seed {seed}: {end - first} drawn, {failed} failed")
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
