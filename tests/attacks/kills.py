"""SIGKILL at a random moment: of the program, of a rank under mpirun, of mpirun itself."""

import json
import subprocess
import time

from harness import Run, kill_session, ranks_of, reference, signal_process


class RewardsRun(Run):
    """A run that writes answers, has a program reward them and trains on each generation twice."""

    def write(self):
        prompts = self.folder / "prompts.jsonl"
        prompts.write_text("".join(json.dumps({"prompt": f"{i}="}) + "\n" for i in range(10)))
        self.data = f'jsonl = ["{prompts}"]\ntokenizer = "bytes"\neod = 10'
        length = "import sys\nfor line in sys.stdin: print(len(set(line)), flush=True)"
        self.keys = {"rl.loss": "grpo", "rl.group": 4, "rl.max_tokens": 6, "rl.iterations": 2,
                     "rl.reward_program": f"python3 -c '{length}'"}  # fmt: skip
        super().write()

    def losses(self) -> list:
        """Also the reward of each step, and the answers of the generation that begins with it."""
        path = self.out / "metrics.jsonl"
        lines = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
        return [(*loss, line["reward"], self.answers(line["step"]))
                for loss, line in zip(super().losses(), lines)]  # fmt: skip

    def answers(self, step: int) -> str:
        path = self.out / f"rollouts/step-{step:06}.jsonl"
        return path.read_text() if path.exists() else ""


def kills(attacked):
    """Each round kills a run again and again, then lets it finish and compares its losses."""
    runs = [Run(attacked, "threads", ranks=2), Run(attacked, "one"),
            RewardsRun(attacked, "rewards", steps=12, ranks=2)]  # fmt: skip
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
