#!/usr/bin/env python3
"""Shows that two builds of the program compute the same bits, as a change of structure must.

    scripts/same-bits.py BEFORE AFTER [--other-keys]

BEFORE and AFTER are axonn programs. Each trains twelve kinds of models on three grids, saves in the
middle, resumes and saves again. Losses, gradient norms, all other results of the steps, peaks of
memory, and the bytes of checkpoints must be equal. Exits with 1 if anything differs. --other-keys:
the programs have other keys of configuration, so config.toml, and index.json with its checksum, are
not compared.
"""

import hashlib
import json
import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor

GRIDS = ["1,1,1,1", "2,1,2,1", "2,2,2,1"]

GPT = """model.family = "gpt"
model.layers = 2
model.hidden = 96
model.heads = 24
model.vocab = 256"""

LLAMA = """model.family = "llama"
model.layers = 3
model.hidden = 64
model.heads = 8
model.kv_heads = 2
model.ffn = 192
model.vocab = 256"""

EXPERTS = """model.family = "llama"
model.layers = 2
model.hidden = 64
model.heads = 4
model.kv_heads = 2
model.vocab = 256
model.experts = 4
model.experts_per_token = 2
model.expert_ffn = 64"""

KINDS = {
    "gpt": GPT,
    "gpt-bf16-recomputed": GPT + """
training.dtype = "bf16"
training.micro_batch = 4
activation_checkpoint.mode = "full\"""",
    "gpt-muon-chunks": GPT + """
optimizer.kind = "muon"
optimizer.weight_decay = 0.1
parallelism.chunks = 2""",
    "gpt-averages-ramp": GPT + """
optimizer.ema_decay = 0.9
training.batch_ramp = "8 8 16\"""",
    "llama-goldfish": LLAMA + """
model.bias = true
training.max_norm = 0.1
training.goldfish = {{k = 4, h = 5}}
lr_scheduler.kind = "wsd"
lr_scheduler.decay_steps = 2""",
    "llama-z-loss-ademamix": LLAMA + """
model.activation = "xielu"
model.qk_norm = "head"
model.tied = true
optimizer.kind = "ademamix"
training.z_loss = 1e-3
training.skip_deviations = 6""",
    "llama-documents-context": LLAMA + """
data.text = "{data}/documents.jsonl"
data.tokenizer = "bytes"
data.documents = "packed"
model.window = 12
training.dtype = "bf16"
training.seq_len = 256
{context}""",
    "llama-saved-values": LLAMA + """
activation_checkpoint.mode = "values"
activation_checkpoint.values = ["norms", "activations"]""",
    "experts": EXPERTS + """
training.balance = {{weight = 0.01, z = 0.001}}
{experts}""",
    "experts-sigmoid": EXPERTS + """
model.router = "sigmoid"
model.router_bias = true
training.balance = {{bias = 0.01, weight = 0.001}}
activation_checkpoint.mode = "light\"""",
    "lora": """model.path = "{data}/base"
lora.rank = 4
lora.dropout = 0.1""",
    "stages": LLAMA + """
[[stage]]
name = "early"
synthetic = "100KB"
[[stage]]
name = "late"
from_step = 4
synthetic = "40KB"
""",
}

COMMON = """data.validation = 0.1
training.steps = 6
training.global_batch = 16
training.eval_every = 3
optimizer.lr = 3e-3
lr_scheduler.warmup_steps = 2
checkpoint.every = 3
checkpoint.keep = 0
"""

# Of a metrics line, what depends on the clock.
TIMES = {"time", "step_ms", "tokens_per_s", "model_tflops", "mfu", "exposed_comm_ms",
         "exposed_comm_ms_by"}


def run(folder, program, *arguments):
    done = subprocess.run([program, *arguments], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, check=False)
    if done.returncode:
        sys.exit(f"{program} {' '.join(arguments)} failed:\n{done.stdout}")


def sections(text):
    """Dotted keys first; then, whatever a table begins."""
    dotted, table, rest = text.partition("[[")
    return dotted, table + rest


def results(program, data, kind, grid, left_out):
    """What a run of a kind on a grid leaves, as a list of comparable texts."""
    _, _, z, _ = grid.split(",")
    dotted, tables = sections(KINDS[kind].format(
        data=data,
        context="parallelism.context = 2" if z == "2" else "",
        experts="parallelism.experts = 2" if z == "2" else ""))
    if "data.text" not in dotted and not tables:
        dotted += '\ndata.synthetic = "100KB"'
    if "seq_len" not in dotted:
        dotted += "\ntraining.seq_len = 32"
    if "optimizer.kind" not in dotted:
        dotted += '\noptimizer.kind = "adamw"'
    with tempfile.TemporaryDirectory() as folder:
        with open(f"{folder}/config.toml", "w", encoding="utf-8") as file:
            file.write(f"{dotted}\n{COMMON}{tables}\n")
        # Relative names, since the configuration is part of the checkpoints.
        arguments = ["train", "config.toml", "--parallelism.grid", grid, "--output.dir"]
        run(folder, program, *arguments, "run")
        run(folder, program, *arguments, "resumed", "--checkpoint.resume", "run/checkpoints/step-3")
        found = []
        for name in ("run", "resumed"):
            with open(f"{folder}/{name}/metrics.jsonl", encoding="utf-8") as file:
                for line in file:
                    record = {k: v for k, v in json.loads(line).items() if k not in TIMES}
                    found.append(f"{name}: {json.dumps(record)}")
            for path, _, files in sorted(os.walk(f"{folder}/{name}/checkpoints")):
                for each in sorted(set(files) - left_out):
                    with open(f"{path}/{each}", "rb") as file:
                        digest = hashlib.sha256(file.read()).hexdigest()
                    found.append(f"{os.path.relpath(path, folder)}/{each}: {digest}")
        return found


def make_data(program, data):
    with open(f"{data}/documents.jsonl", "w", encoding="utf-8") as file:
        for number in range(2000):
            words = " ".join(str(number * number % (word + 7)) for word in range(number % 17 + 2))
            file.write(json.dumps({"text": words}) + "\n")
    with open(f"{data}/base.toml", "w", encoding="utf-8") as file:
        file.write(f'{LLAMA}\ndata.synthetic = "100KB"\ndata.tokenizer = "bytes"\n'
                   f'{COMMON}training.seq_len = 32\noptimizer.kind = "adamw"\n')
    run(data, program, "train", "base.toml", "--output.dir", "base-run")
    run(data, program, "convert", "--model", "base-run", "--out", "base")


def main():
    left_out = {"config.toml", "index.json"} if "--other-keys" in sys.argv else set()
    paths = [argument for argument in sys.argv[1:] if argument != "--other-keys"]
    if len(paths) != 2:
        sys.exit(__doc__)
    programs = [os.path.abspath(path) for path in paths]
    with tempfile.TemporaryDirectory() as data, ThreadPoolExecutor(2) as pool:
        make_data(programs[0], data)
        differing = 0
        for kind in KINDS:
            for grid in GRIDS:
                before, after = pool.map(lambda p: results(p, data, kind, grid, left_out), programs)
                unequal = [pair for pair in zip(before, after) if pair[0] != pair[1]]
                same = not unequal and len(before) == len(after)
                differing += not same
                print(f"{kind:24} {grid}  {len(before):3} results  "
                      f"{'equal' if same else 'DIFFERENT'}", flush=True)
                for pair in unequal[:3]:
                    print(f"  before {pair[0]}\n  after  {pair[1]}")
    print(f"{differing} of {len(KINDS) * len(GRIDS)} runs differ")
    sys.exit(1 if differing else 0)


if __name__ == "__main__":
    main()
