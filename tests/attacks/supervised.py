"""SIGKILL at random moments of the ranks of a job that axonn supervise starts again."""

import json
import os
import re
import shutil
import statistics
import time
from dataclasses import dataclass, replace

from harness import (PATIENCE, Run, finish, kill_session, ranks_of, reference, signal_process,
                     start)  # fmt: skip


def workers(process, program) -> list[int]:
    """The ranks, without the supervisor and launchers: programs that train, as soon as they have
    a log. Before that a rank joins the launcher, and Open MPI 4's may hang if it is killed then."""
    found = []
    for pid in ranks_of(process, program):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as words:
                trains = words.read().split(b"\0")[1] == b"train"
            files = [os.readlink(file.path) for file in os.scandir(f"/proc/{pid}/fd")]
        except (OSError, IndexError):
            continue
        if trains and any("/logs/rank-" in file for file in files):
            found.append(pid)
    return found


class LocalRun(Run):
    """A run with a local checkpoint after each step, and no other before its end, on two nodes."""

    def __post_init__(self):
        self.local = self.attacked.folder / self.name / "local"
        self.keys = {"checkpoint.every_minutes": 0, "checkpoint.local_every": 1,
                     "checkpoint.local_folder": self.local,
                     "checkpoint.local_node_ranks": self.ranks // 2,
                     "parallelism.x": 2, "parallelism.z": self.ranks // 2}  # fmt: skip
        super().__post_init__()

    def clear(self):
        super().clear()
        shutil.rmtree(self.local, ignore_errors=True)


def last_step(run) -> int:
    """The newest step that the run has noted."""
    path = run.out / "metrics.jsonl"
    lines = path.read_bytes().split(b"\n")[:-1] if path.exists() else []
    return json.loads(lines[-1])["step"] if lines else 0


def resumed(run) -> list[int]:
    """The steps from which starts went on, in their order."""
    path = run.out / "logs/rank-0.log"
    text = path.read_text(errors="replace") if path.exists() else ""
    return [int(step or 0) for step in
            re.findall(r"resumed from \S*/step-(\d+)|: starting at step 1\n", text)]  # fmt: skip


@dataclass
class Kill:
    """A moment at which ranks were killed: the run's last step, and the starts until then."""

    time: float
    step: int
    starts: int


def supervise(attacked, run, kill):
    """Runs it under axonn supervise, and calls kill(ranks) at random moments, at most four times.
    Returns the result, and each Kill."""
    log = run.folder / "starts.jsonl"
    log.unlink(missing_ok=True)
    words = [attacked.program, "supervise", "--run", run.out, "--log", log,
             "--failures", "100", "--", *run.command()]  # fmt: skip
    process = start(words, run.folder)
    kills = []
    end = time.monotonic() + PATIENCE
    while process.poll() is None and len(kills) < 4 and time.monotonic() < end:
        time.sleep(attacked.rng.uniform(0.05, 1.0))
        ranks = workers(process, attacked.program)
        if not ranks or (attacked.rng.random() < 0.5 and not run.losses()):
            continue
        kills.append(Kill(time.time(), last_step(run), len(resumed(run))))
        kill(attacked.rng.sample(ranks, min(len(ranks), attacked.rng.choice([1, 2]))))
    return finish(process, run.folder), kills


def kill_all(ranks: list[int]):
    for pid in ranks:
        signal_process(pid, 9)


def continued(run, kills: list[Kill]) -> list[tuple[Kill, int]]:
    """Each kill after which a start went on, with the step from which it did."""
    steps = resumed(run)
    return [(kill, steps[kill.starts]) for kill in kills if kill.starts < len(steps)]


def waits_of(run, kills: list[Kill]) -> list[float]:
    """Seconds from each kill to the next step of the start after it."""
    lines = [json.loads(line) for line in (run.out / "metrics.jsonl").read_text().splitlines()]
    waits = []
    for kill, step in continued(run, kills):
        waits += [line["time"] - kill.time for line in lines if line["step"] == step + 1]
    return waits


def tell_waits(name: str, waits: list[float]):
    if not waits:
        return
    waits.sort()
    tenths = [f"{waits[min(len(waits) - 1, len(waits) * n // 10)]:.2f}" for n in (1, 9)]
    within = [f"{sum(wait <= most for wait in waits)} in {most} s"
              for most in (0.5, 1, 1.5, 2, 2.5, 3, 4, 6)]  # fmt: skip
    print(f"{name}: from a kill to the next step {statistics.median(waits):.2f} s in the middle of "
          f"{len(waits)}, 80 % between {tenths[0]} and {tenths[1]} s, {waits[-1]:.2f} s at most; "
          f"{', '.join(within)}", flush=True)  # fmt: skip


def end_job(attacked, run):
    """Starts the run, and ends all of it at a random moment after its first local checkpoint, as
    the end of a job's nodes does."""
    process = run.start()
    step = attacked.rng.randint(2, run.steps - 10)
    end = time.monotonic() + PATIENCE
    while process.poll() is None and last_step(run) < step and time.monotonic() < end:
        time.sleep(0.01)
    kill_session(process)


def is_close(losses, reference) -> bool:
    """Whether these are the losses of the same run on another grid, but for rounding."""
    return [one[0] for one in losses] == [one[0] for one in reference] and all(
        abs(a - b) <= 1e-4 * abs(b) for one, other in zip(losses, reference)
        for a, b in zip(one, other))  # fmt: skip


def local_states(attacked):
    """Kills ranks of supervised runs as supervised() does. Without a checkpoint they go on from
    local ones; in most rounds each kill also takes the folder of a node. In the first of four
    rounds the job ends before, and goes on with half of its eight ranks. No run may lose more than
    a step that it had noted."""
    runs = [LocalRun(attacked, "threads", ranks=8, steps=60, every=0)]
    if attacked.mpirun.exists():
        runs.append(LocalRun(attacked, "mpi", ranks=8, steps=60, every=0, mpi=True))
    references = [reference(run) for run in runs]
    waits = {run.name: [] for run in runs}  # of runs on all ranks
    lost = []
    for number in range(attacked.several(2, 120)):
        for run, (losses, _) in zip(runs, references):
            run.clear()
            run.write()  # that of half of the ranks may be there
            node = attacked.rng.choice([None, run.local / "node-0", run.local / "node-1"])

            def kill(ranks):
                kill_all(ranks)
                if node:
                    shutil.rmtree(node, ignore_errors=True)

            ended = []
            if number % 4 == 0:
                end_job(attacked, run)
                ended.append(Kill(time.time(), last_step(run), len(resumed(run))))
                if node:
                    shutil.rmtree(node, ignore_errors=True)
                run = replace(run, ranks=run.ranks // 2)
            result, kills = supervise(attacked, run, kill)
            kills = ended + kills
            lost += [kill.step - step for kill, step in continued(run, kills)]
            if result.code != 0:
                yield f"{run.name}: the supervised run does not finish: {result.text()}"
            elif not (is_close(run.losses(), losses) if ended else run.losses() == losses):
                yield f"{run.name} ends with other losses than a run that nobody killed"
            elif lost and max(lost) > 1:
                yield f"{run.name} went {max(lost)} steps back ({node}): {kills}, {resumed(run)}"
            elif left := sorted(run.local.glob("*/*")):
                yield (f"{run.name}, {run.ranks} ranks, leaves {left} of local checkpoints ({node}): "
                       f"{kills}, {resumed(run)}")  # fmt: skip
            else:
                yield None
            if not ended:
                waits[run.name] += waits_of(run, kills)
    print(f"local_states: at most {max(lost, default=0)} noted steps lost by {len(lost)} kills")
    for name, of_run in waits.items():
        tell_waits(f"local_states, {name}", of_run)


def supervised(attacked):
    """Each round kills ranks of a supervised run, one or two at a time, also during recovery and
    saves, lets it finish, and compares its losses. Says how long a kill kept it from its steps."""
    runs = [Run(attacked, "threads", ranks=2, steps=60, every=1)]
    if attacked.mpirun.exists():
        runs.append(Run(attacked, "mpi", ranks=4, steps=60, every=1, mpi=True))
    references = [reference(run) for run in runs]
    waits = []
    for _ in range(attacked.several(1, 60)):
        for run, (losses, _) in zip(runs, references):
            run.clear()
            result, kills = supervise(attacked, run, kill_all)
            if result.code != 0:
                yield f"{run.name}: the supervised run does not finish: {result.text()}"
            elif run.losses() != losses:
                yield f"{run.name} ends with other losses than a run that nobody killed"
            else:
                yield None
            waits += waits_of(run, kills)
    tell_waits("supervised", waits)
