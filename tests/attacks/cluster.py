"""Random trials of a cluster in one process (tests/cluster), other ones each day."""

import itertools
import subprocess
import time
from pathlib import Path

from harness import Skipped, seed_of_the_day

A_TRY = 20  # trials


def cluster(attacked):
    """Kills, frozen ranks, losses of power and faults of disks in virtual time. A try is 20 trials;
    in the long form they take a quarter of an hour."""
    program = Path(attacked.program).resolve().parent.parent / "tests/cluster/axonn_cluster"
    if not program.exists():
        raise Skipped(f"there is no {program}")
    day, end = seed_of_the_day(), time.monotonic() + 900
    print(f"cluster: AXONN_ATTACK_SEED={day}", flush=True)
    for number in itertools.count() if attacked.long else range(1):
        first = 100_000 * day + number * A_TRY
        done = subprocess.run([program, "--seeds", str(first), str(A_TRY)],
                              capture_output=True, text=True)  # fmt: skip
        yield None if done.returncode == 0 else done.stdout[-20000:] + done.stderr
        if time.monotonic() > end:
            break
