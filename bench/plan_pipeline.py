#!/usr/bin/env python3
"""What a pipeline would add to x, y, z and data, by prediction, for some machines and models.

usage: plan_pipeline.py AXONN

There is no pipeline in the program, so each of p stages is planned as what it computes: a p-th of
the model's step on a p-th of the devices, of which each may hold p times its memory. With m
micro-batches a pipeline that alternates forward and backward passes (1F1B) then takes
1 + (p - 1) / m times as long. Of each number of stages the best of the part's fastest 200 grids
counts, with that factor. Not counted, in its favour: sending activations between stages, the
micro-batches that a stage keeps at the same time, stages of unequal work. Prints a table in
Markdown.
"""
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

# machine, model, devices, tokens of a step, positions of a sequence
CASES = [
    ("dgx-h100", "llama-3.1-70b", 512, "8Mi", 8192),
    ("dgx-h100", "llama-3.1-405b", 2048, "16Mi", 8192),
    ("frontier", "gpt-80b", 8192, "16Mi", 2048),
    ("frontier", "gpt-320b", 32768, "16Mi", 2048),
    ("alps", "gpt-60b", 6144, "16Mi", 2048),
]
STAGES = (2, 4, 8, 16)
MICRO_BATCHES = (1, 2)


def plans(program, machine, model, devices, batch, positions, *more):
    """The best plans; none if none fits."""
    with tempfile.NamedTemporaryFile(suffix=".json") as out:
        done = subprocess.run(
            [program, "plan", "--model", model, "--machine", machine, "--devices", str(devices),
             "--batch-tokens", batch, "--seq-len", str(positions), "--json", out.name,
             *more], capture_output=True, text=True)  # fmt: skip
        if done.returncode == 2 or (done.returncode == 0 and not Path(out.name).stat().st_size):
            return []
        if done.returncode != 0:
            sys.exit(done.stderr)
        return json.loads(Path(out.name).read_text())["plans"]


def with_memory(machine_file, times, to):
    """Writes the machine with so many times its memory."""
    text = Path(machine_file).read_text()
    line = re.search(r"^memory_bytes = ([0-9.e]+)", text, flags=re.M)
    text = text.replace(line[0], f"memory_bytes = {float(line[1]) * times:.6g}", 1)
    to.write_text(text)
    return str(to)


def main():
    program, machines = sys.argv[1], Path(__file__).parent.parent / "machines"
    print("| machine | devices | model | without, s | its grid | with stages, s "
          "| stages and their grid, micro-batches | at most saved |")  # fmt: skip
    print("| --- " * 8 + "|")
    for machine, model, devices, batch, positions in CASES:
        own = plans(program, machine, model, devices, batch, positions, "--top", "1")[0]
        best = None
        for stages in STAGES:
            with tempfile.TemporaryDirectory() as folder:
                file = with_memory(machines / f"{machine}.toml", stages, Path(folder) / "m.toml")
                for micro in MICRO_BATCHES:
                    parts = plans(program, file, model, devices // stages, batch, positions,
                                  "--training.micro_batch", str(micro), "--top", "200")  # fmt: skip
                    for part in parts:
                        count = part["micro_batches"]
                        seconds = part["predicted_s"] / stages * (1 + (stages - 1) / count)
                        if best is None or seconds < best[0]:
                            best = (seconds, stages, count, part["grid"])
        seconds, stages, count, of_stage = best
        before = own["predicted_s"]
        saved = f"{100 * (1 - seconds / before):.0f} %" if seconds < before else "nothing"
        grid, of_stage = (",".join(str(one[axis]) for axis in ("x", "y", "z", "data"))
                          for one in (own["grid"], of_stage))  # fmt: skip
        print(f"| {machine} | {devices:,} | {model} | {before:.3g} | {grid} | {seconds:.3g} | "
              f"{stages} of {of_stage}, {count} | {saved} |", flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
