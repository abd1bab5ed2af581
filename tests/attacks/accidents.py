"""Runs in daily use: slow work, failing storage, changed data, pipes, stopped ranks."""

import json
import os
import signal
import time
from pathlib import Path

from harness import (Run, byte_level, call, each, finish, kill_session, need, rank_processes,
                     signal_process, tracing, unlike, until)  # fmt: skip


def accidents(attacked):
    yield from each(attacked, TRIES)


def text_run(attacked, name, size=20_000, data="", **options):
    """A run on a text of its own."""
    text = attacked.folder / "text.txt"
    text.write_bytes(b"so it goes on and on. " * (size // 22))
    return Run(attacked, name, data=f'text = "{text}"\n{data}', **options), text


def slow_run(attacked, megabytes, ranks=1):
    """A run that tokenizes for some seconds."""
    tokenizer = byte_level(attacked.folder / "tokenizer.json")
    return text_run(attacked, "run", megabytes * 1_000_000, f'tokenizer = "{tokenizer}"',
                    ranks=ranks, steps=2, keys={"model.vocab": 320})  # fmt: skip


def slow_tokenizing(attacked):
    """Tokenizing takes rank 0 longer than the timeout of the others."""
    run, _ = slow_run(attacked, 120, ranks=2)
    return unlike(run.run(**{"parallelism.timeout_seconds": 1}), 0)


def killed_tokenizing(attacked):
    """A run is killed while it tokenizes, and the text changes: the next one removes its files."""
    run, text = slow_run(attacked, 20)
    begin = time.monotonic()
    fault = unlike(run.run(), 0)
    seconds = time.monotonic() - begin
    for _ in range(attacked.several(2, 30)):
        if fault:
            break
        run.clear()
        killed = run.start()
        until(lambda: any(run.out.rglob("*.tmp-*")), killed)
        time.sleep(attacked.rng.uniform(0, 0.3) * seconds)
        kill_session(killed)
        if (run.out / "checkpoints").exists():  # it was faster than this kill
            continue
        text.write_bytes(text.read_bytes() + b"And so it ends.")
        fault = unlike(run.run(), 0)
        left = [path.name for path in run.out.rglob("*.tmp-*")]
        if left and not fault:
            fault = f"the next run keeps {left}"
    return fault


def truncated_text(attacked):
    """The text is cut short while it is tokenized."""
    run, text = slow_run(attacked, 60)
    process = run.start()
    until((run.out / "cache").exists, process)
    time.sleep(0.3)
    os.truncate(text, 1000)
    result = finish(process, run.folder)
    return None if result.code == 0 else unlike(result, (1, 2), "error: ", "text.txt")


def truncated_tokens(attacked):
    tokens = attacked.folder / "tokens.bin"
    header = [20240520, 1, 5_000_000, *[0] * 253]
    tokens.write_bytes(b"".join(n.to_bytes(4, "little") for n in header) + b"a\0" * 5_000_000)
    run = Run(attacked, "run", steps=100000, every=0, data=f'tokens = "{tokens}"\nshuffle = true')
    process = run.start()
    until(run.losses, process)
    os.truncate(tokens, 100_000)
    return unlike(finish(process, run.folder), (1, 2), "error: ", "tokens.bin")


def other_data(attacked):
    """A run is resumed with another seed, length or text: refused, and nothing is lost."""
    other = attacked.folder / "other.txt"
    other.write_text("another text altogether " * 1000)
    for key, value in {"training.seed": 7, "training.seq_len": 4, "data.text": other}.items():
        run, _ = text_run(attacked, key, steps=4, keys={"model.positions": 8})
        fault = unlike(run.run(), 0)
        result = run.run(**{"training.steps": 8, key: value})
        fault = fault or unlike(result, 2, "checkpoint.changed_data") or run.fault(run.losses())
        if fault:
            return f"{key}: {fault}"
    return None


def other_batch(attacked):
    """A run is resumed with another batch: it goes on with the next unseen sample."""
    run = Run(attacked, "run", steps=4)
    more = {"training.steps": 8, "training.global_batch": 8}
    fault = unlike(run.run(), 0) or unlike(run.run(**more), 0)
    state = json.loads((run.out / "checkpoints/step-8/state.json").read_text())
    if state["data"]["stages"][0]["samples_done"] != 4 * 4 + 4 * 8:
        return f"the samples done are miscounted: {state}"
    return fault


def nan_while_saving(attacked):
    """A loss is NaN while the checkpoint of the step before it is being written: it is finished."""
    slow = tracing("-e", "trace=fsync", "-e", "inject=fsync:delay_enter=1500000:when=1")
    run = Run(attacked, "run", steps=9, every=1)
    fault = unlike(run.run(slow, **{"optimizer.lr": 1e30}), 1, "error: ")
    saved = [path.name for path in (run.out / "checkpoints").glob("step-*")]
    if len(run.losses()) and f"step-{len(run.losses())}" not in saved:
        return f"after step {len(run.losses())} only {saved} are left"
    return fault


def failing_saves(attacked):
    """The first save fails: the run goes on, and the next one succeeds."""
    failing = tracing("-e", "trace=rename", "-e", "inject=rename:error=ENOSPC:when=2")
    run = Run(attacked, "run", steps=30, every=10)
    result = run.run(failing)
    if not (run.out / "checkpoints/step-30").exists():
        return f"the last step is not saved: {result.text()}"
    return unlike(result, 0, "warning: ", "No space left on device")


def limited_files(attacked):
    """Files may not grow beyond a limit, which a checkpoint does: SIGXFSZ does not kill the run."""
    run = Run(attacked, "run", steps=20)
    limited = ["bash", "-c", 'ulimit -f 40; exec "$@"', "bash"]  # KiB; a checkpoint has 100
    fault = unlike(run.run(limited), 1, "error: ", "File too large")
    steps = len(run.losses())
    if not fault and steps != 20:
        fault = f"{steps} of 20 steps were made, wanted all: the last checkpoint alone ends a run"
    return fault or run.fault(run.losses())


def reader_gone(attacked):
    """The reader of the output goes away after the first line, as head does: training goes on."""
    run = Run(attacked, "run", steps=200, every=0)
    headed = ["bash", "-c", 'set -o pipefail; "$@" | head -n 1', "bash"]
    fault = unlike(run.run(headed), 0)
    return fault or (None if len(run.losses()) == 200 else "steps are missing")


def stopped_rank(attacked):
    """A rank under mpirun is stopped: the watchdog names it, and none that waits for it."""
    need(str(attacked.mpirun))
    run = Run(attacked, "run", steps=10**7, every=0, ranks=4, mpi=True,
              keys={"parallelism.timeout_seconds": 4, "parallelism.z": 2,
                    "parallelism.data": 2})  # fmt: skip
    process = run.start()
    until(run.losses, process)
    ranks = rank_processes(process, attacked.program)
    stopped = attacked.rng.randrange(4)
    signal_process(ranks[stopped], signal.SIGSTOP)
    result = finish(process, run.folder, 60)
    kill_session(process)
    errors = [line for line in result.err.splitlines() if line.startswith("error: ")]
    if result.code != 1 or len(errors) != 1 or f"rank {stopped} gave no answer" not in errors[0]:
        return f"rank {stopped} is stopped, and the message is {errors}: {result.text()}"
    return None


def replayed_nan(attacked):
    """A step whose loss is NaN can be repeated, and the repetition names its origin."""
    run = Run(attacked, "run", steps=9, keys={"optimizer.lr": 1e30})
    fault = unlike(run.run(), 1, "error: ", "axonn replay")
    if fault:
        return fault
    saved = next(run.out.glob("nonfinite-step-*"))
    return unlike(call(attacked, "replay", saved), 1, "rank 0")


def non_utf8_folder(attacked):
    """output.dir is not UTF-8: it is refused, or a model that was saved there can be read."""
    run = Run(attacked, "run", steps=4)
    folder = os.fsdecode(os.fsencode(run.folder) + b"/out\xff\xfe")
    result = run.run(**{"output.dir": folder})
    if result.code == 2:
        return unlike(result, 2, "UTF-8")
    return unlike(result, 0) or unlike(
        call(attacked, "generate", "--tokens", 4, "--model", folder + "/checkpoints"), 0
    )


TRIES = (slow_tokenizing, killed_tokenizing, truncated_text, truncated_tokens, other_data,
         other_batch, nan_while_saving, failing_saves, limited_files, reader_gone, stopped_rank,
         replayed_nan, non_utf8_folder)  # fmt: skip
