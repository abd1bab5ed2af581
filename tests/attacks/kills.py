"""SIGKILL at a random moment: of the program, of a rank under mpirun, of mpirun itself."""

import subprocess
import time

from harness import Run, kill_session, ranks_of, reference, signal_process


def kills(attacked):
    """Each round kills a run again and again, then lets it finish and compares its losses."""
    runs = [Run(attacked, "threads", ranks=2), Run(attacked, "one")]
    if attacked.mpirun.exists():
        runs.append(Run(attacked, "mpi", ranks=2, mpi=True))
    else:
        print("kills: without MPI, which the build lacks")
    references = [reference(run) for run in runs]
    for _ in range(attacked.several(2, 84)):
        for run, (losses, seconds) in zip(runs, references):
            run.clear()
            for _ in range(4):
                process = run.start()
                time.sleep(attacked.rng.uniform(0, 1.2 * seconds))
                ranks = ranks_of(process, attacked.program)
                if run.mpi and ranks and attacked.rng.random() < 0.7:
                    signal_process(attacked.rng.choice(ranks), 9)
                    try:
                        process.wait(30)
                    except subprocess.TimeoutExpired:
                        kill_session(process)
                        yield f"{run.name}: a rank was killed, and the job does not end"
                        continue
                kill_session(process)
                yield None  # what it did is judged at the end of the round
            yield run.fault(losses)
