"""Signals in every phase of a run, under threads and under mpirun."""

import signal
import time

from harness import Run, finish, kill_session, need, ranks_of, reference, signal_process

# Signals that ask the run to stop: it saves, and says 75.
STOPS = [signal.SIGTERM, signal.SIGINT, signal.SIGUSR1]
STOPPED_EARLY = 75


def signals(attacked):
    need(str(attacked.mpirun))
    runs = [
        Run(attacked, "threads", steps=400, every=100, ranks=2),
        Run(attacked, "mpi", steps=400, every=100, ranks=2, mpi=True),
    ]
    for run in runs:
        losses, seconds = reference(run)
        for _ in range(attacked.several(1, 25)):
            for number in STOPS:
                yield stops(attacked, run, losses, seconds, number)
            yield suspends(attacked, run, losses, seconds)


def stops(attacked, run, losses, seconds, number):
    """A signal to the program, or to mpirun, which passes it on: the run stops and can go on."""
    if run.mpi and number != signal.SIGUSR1:  # mpirun ends the job itself for the other two
        number = signal.SIGUSR1
    run.clear()
    process = run.start()
    while not run.losses() and process.poll() is None:
        time.sleep(0.01)
    time.sleep(attacked.rng.uniform(0, 0.8 * seconds))
    signal_process(process.pid, number)
    result = finish(process, run.folder)
    done = len(run.losses())
    what = f"{run.name}: {signal.Signals(number).name}"
    if result.code == 0 and done == run.steps:
        return run.fault(losses)  # it came too late
    if result.code != STOPPED_EARLY:
        return f"{what}: {result.text()}"
    if not (run.out / "checkpoints" / f"step-{done}").exists():
        return f"{what}: step {done} is the last one, and it is not saved"
    return run.fault(losses)


def suspends(attacked, run, losses, seconds):
    """All processes are stopped for longer than the timeout: the run goes on when they wake."""
    run.clear()
    process = run.start(**{"parallelism.timeout_seconds": 4})
    time.sleep(attacked.rng.uniform(0.1, seconds))
    processes = ranks_of(process, attacked.program)
    for pid in processes:
        signal_process(pid, signal.SIGSTOP)
    time.sleep(6)
    for pid in processes:
        signal_process(pid, signal.SIGCONT)
    result = finish(process, run.folder, 60)
    if result.code != 0:
        kill_session(process)
        return f"{run.name}: suspended for longer than the timeout: {result.text()}"
    return run.fault(losses)
