"""SIGKILL at random moments of the ranks of a job that axonn supervise starts again."""

import json
import statistics
import time

from harness import PATIENCE, Run, finish, ranks_of, reference, signal_process, start


def workers(process, program) -> list[int]:
    """The ranks, without the supervisor and launchers: programs that train."""
    found = []
    for pid in ranks_of(process, program):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as words:
                if words.read().split(b"\0")[1] == b"train":
                    found.append(pid)
        except (OSError, IndexError):
            continue
    return found


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
                for pid in attacked.rng.sample(ranks, min(len(ranks), attacked.rng.choice([1, 2]))):
                    signal_process(pid, 9)
                kills.append(time.time())
            result = finish(process, run.folder)
            if result.code != 0:
                yield f"{run.name}: the supervised run does not finish: {result.text()}"
            elif run.losses() != losses:
                yield f"{run.name} ends with other losses than a run that nobody killed"
            else:
                yield None
            times = [json.loads(line)["time"]
                     for line in (run.out / "metrics.jsonl").read_text().splitlines()]
            waits += [min(t - kill for t in times if t > kill) for kill in kills
                      if any(t > kill for t in times)]
    if waits:
        waits.sort()
        print(f"supervised: from a kill to the next step {statistics.median(waits):.2f} s in the "
              f"middle of {len(waits)}, {waits[-1]:.2f} s at most")  # fmt: skip
