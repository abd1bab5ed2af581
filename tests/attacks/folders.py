"""Two runs in one output folder, at the same time and one after the other."""

import time

from harness import Run, finish, kill_session, reference, start


def folders(attacked):
    run = Run(attacked, "run", ranks=2, steps=80, every=1)
    losses, seconds = reference(run)
    other = attacked.folder / "other"
    other.mkdir()
    for _ in range(attacked.several(3, 100)):
        run.clear()
        first = run.start()
        time.sleep(attacked.rng.uniform(0.2, 0.6) * seconds)
        alive = first.poll() is None
        second = finish(start(run.command(), other), other)
        first.wait()
        if alive and second.code != 0 and "another run writes" not in second.err:
            yield f"the second run is not told who holds the folder: {second.text()}"
        elif first.returncode != 0 or run.losses() != losses:
            yield f"a second run disturbs the first: {second.text()}"
        else:
            yield None

    def files():
        return {p: p.read_bytes() for p in run.out.rglob("*") if p.is_file() and p.name != "lock"}

    before = files()
    result = run.run(**{"checkpoint.resume": "", "training.steps": 5})
    if result.code != 2 or "--output.overwrite" not in result.err:
        yield f"a finished run is overwritten unasked: {result.text()}"
    elif files() != before:
        yield "a refused run changes files of the one before it"
    else:
        yield None

    run.clear()
    killed = run.start()
    time.sleep(seconds / 2)
    kill_session(killed)
    yield run.fault(losses)  # the lock is gone with the process
