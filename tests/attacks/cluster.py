"""Random trials of a cluster in one process (tests/cluster), other ones each day."""

import itertools
import subprocess
import time
from pathlib import Path

from harness import Skipped, seed_of_the_day

A_TRY = 20  # trials
NO_MPI = 77  # the exit code with --mpi of a build without it


def cluster(attacked):
    """Kills, frozen ranks, losses of power, faults of disks and of messages in virtual time. A try is
    20 trials of thread ranks and as many of processes of MPI; in the long form they take a quarter
    of an hour."""
    program = Path(attacked.program).resolve().parent.parent / "tests/cluster/axonn_cluster"
    if not program.exists():
        raise Skipped(f"there is no {program}")
    day, end = seed_of_the_day(), time.monotonic() + 900
    print(f"cluster: AXONN_ATTACK_SEED={day}", flush=True)
    for number in itertools.count() if attacked.long else range(1):
        first = 100_000 * day + number * A_TRY
        for transport in [], ["--mpi"]:
            done = subprocess.run([program, "--seeds", str(first), str(A_TRY), *transport],
                                  capture_output=True, text=True)  # fmt: skip
            if done.returncode != NO_MPI:
                yield None if done.returncode == 0 else done.stdout[-20000:] + done.stderr
        if time.monotonic() > end:
            break
