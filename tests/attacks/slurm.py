"""A Slurm of one machine: USR1 before the time limit, requeue, crashes under a supervisor, and
resuming to the bit."""

import os
import re
import shutil
import socket
import subprocess
import time
from pathlib import Path

from harness import PATIENCE, Run, Skipped, need, reference, signal_process

DAEMONS = ("munged", "slurmctld", "slurmd")


class Slurm:
    """munge, slurmctld and slurmd with all their files in one folder. Needs root. `more` is added
    to slurm.conf."""

    def __init__(self, folder: Path, more: str = ""):
        need(*DAEMONS, "srun", "sbatch")
        if os.geteuid() != 0:
            raise Skipped("slurmd needs root")
        self.folder, self.more = folder, more
        folder.chmod(0o755)  # munged refuses a socket in a folder that others cannot enter
        self.daemons = []
        self.environment = {**os.environ, "SLURM_CONF": str(folder / "slurm.conf")}

    def __enter__(self):
        folder, host = self.folder, socket.gethostname().split(".")[0]
        (folder / "munge.key").write_bytes(os.urandom(1024))
        (folder / "munge.key").chmod(0o600)
        for name in ("state", "spool"):
            (folder / name).mkdir()
        control, node = free_port(), free_port()
        (folder / "slurm.conf").write_text(
            f"""ClusterName=attack
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmctldPort={control}
SlurmdPort={node}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket,cred_expire=5
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
MpiDefault=pmix
ReturnToService=2
KillWait=5
OverTimeLimit=0
BatchStartTimeout=60
JobRequeue=1
SchedulerParameters=batch_sched_delay=0,sched_interval=1,bf_interval=1
MailProg=/bin/true
NodeName={host} NodeAddr=127.0.0.1 CPUs={os.cpu_count()} State=UNKNOWN
PartitionName=all Nodes={host} Default=YES MaxTime=INFINITE State=UP
{self.more}"""
        )
        self.daemon("munged", "--foreground", "--force", f"--key-file={folder}/munge.key",
                    f"--socket={folder}/munge.socket", f"--pid-file={folder}/munge.pid",
                    f"--log-file={folder}/munge.log",
                    f"--seed-file={folder}/munge.seed")  # fmt: skip
        self.wait_for(lambda: (folder / "munge.socket").exists(), "munged")
        self.daemon("slurmctld", "-D", "-i")
        self.daemon("slurmd", "-D", "-N", host)
        self.wait_for(lambda: "idle" in self.call("sinfo", "-h", "-o", "%T", "-p", "all"), "the node")
        return self

    def __exit__(self, *_):
        for daemon in reversed(self.daemons):
            daemon.terminate()
        for daemon in self.daemons:
            try:
                daemon.wait(20)
            except subprocess.TimeoutExpired:
                daemon.kill()

    def daemon(self, name, *words):
        path = shutil.which(name) or f"/usr/sbin/{name}"
        with open(self.folder / f"{name}.out", "w") as out:
            self.daemons.append(
                subprocess.Popen([path, *words], stdout=out, stderr=out, env=self.environment)
            )

    def call(self, *words) -> str:
        done = subprocess.run(
            [str(w) for w in words], env=self.environment, capture_output=True, text=True
        )
        return done.stdout + done.stderr

    def wait_for(self, condition, what, seconds=60):
        end = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > end:
                logs = [f"{p.name}: {p.read_text()[-1000:]}" for p in self.folder.glob("*.out")]
                raise Skipped(f"{what} does not come up here: {' '.join(logs)[-3000:]}")
            time.sleep(0.2)

    def try_for(self, condition) -> bool:
        """Waits for the condition, as long as nothing takes on any machine."""
        try:
            self.wait_for(condition, "the job", PATIENCE)
        except Skipped:
            return False
        return True

    def field(self, name: str, jobs) -> list[str]:
        """A field of `scontrol show job`, of each job."""
        shown = [self.call("scontrol", "show", "job", job) for job in jobs]
        return [(re.findall(rf"\b{name}=(\S*)", text) or [text])[0] for text in shown]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Job:
    """A run of two ranks as a job, which is queued again whenever the run ends with 75. `before` and
    `options` are words before srun, and of srun."""

    def __init__(self, cluster: Slurm, run: Run, limits: str, before="", options="", **keys):
        self.cluster, self.run, self.said = cluster, run, run.folder / "job.out"
        command = run.command(**keys)
        train = " ".join(command[command.index(run.attacked.program):])
        (run.folder / "job.sh").write_text(
            f"""#!/bin/bash
#SBATCH --ntasks=2 --overcommit --requeue --open-mode=append {limits}
#SBATCH --output={self.said}
{before} srun {options} --mpi=pmix --overcommit {train}
code=$?
echo "ended with $code"
if ((code == 75)); then scontrol requeue "$SLURM_JOB_ID"; fi
exit $code
"""
        )
        batch = cluster.call("sbatch", "--chdir", run.folder, run.folder / "job.sh")
        self.id = batch.split()[-1]
        cluster.wait_for(lambda: run.losses() or self.ends(), "the job", PATIENCE)

    def ends(self) -> list[str]:
        said = self.said.read_text() if self.said.exists() else ""
        return re.findall("ended with ([0-9]+)", said)

    def wait_for(self, condition):
        self.cluster.try_for(condition)

    def unlike(self, ends: list[str]) -> str | None:
        if self.ends() == ends:
            return None
        said = self.said.read_text()[-3000:]
        return f"{self.run.name}: its starts end with {self.ends()}, not {ends}: {said}"


def slurm(attacked):
    with Slurm(attacked.folder) as cluster:
        for number in range(attacked.several(1, 10)):
            yield requeues(attacked, cluster, f"job-{number}", at_limit=False)
            yield crashes(attacked, cluster, f"crashes-{number}")
        if attacked.long:
            yield requeues(attacked, cluster, "limit", at_limit=True)
            for number in range(5):
                yield suspended(attacked, cluster, f"suspended-{number}")
                yield terminated(attacked, cluster, f"cancelled-{number}", at_limit=False)
            yield terminated(attacked, cluster, "limit-without-signal", at_limit=True)


def requeues(attacked, cluster, name, at_limit):
    """A job gets USR1 while it trains, by scancel or before its time limit. It saves, ends with 75
    and is queued again; its second start finishes, or, on a slow machine, a later one."""
    run = Run(attacked, name, steps=4000, every=1000, ranks=2, mpi=True)
    losses, seconds = reference(run)
    if at_limit:  # which is two minutes, with the signal a minute or two before
        run = Run(attacked, name, steps=int(4000 * 130 / seconds), every=10000, ranks=2, mpi=True)
        losses, seconds = reference(run)
    job = Job(cluster, run, "--time=2 --signal=USR1@60")
    if not at_limit:
        time.sleep(attacked.rng.uniform(0, 0.5 * seconds))
        cluster.call("scancel", "--signal=USR1", job.id)
    job.wait_for(lambda: job.ends() and job.ends()[-1] != "75")
    again = len(job.ends()) - 1 if at_limit else 1
    return job.unlike(["75"] * max(again, 1) + ["0"]) or run.fault(losses)


def crashes(attacked, cluster, name):
    """Ranks of a job are killed: its supervisor probes the node and starts the step again."""
    run = Run(attacked, name, steps=4000, every=200, ranks=2, mpi=True)
    losses, seconds = reference(run)
    supervisor = f'{attacked.program} supervise --nodes "$SLURM_JOB_NODELIST" --run {run.out} --'
    job = Job(cluster, run, "--time=10", supervisor, "--nodelist {nodes} --nodes {count}")
    for _ in range(2):
        time.sleep(attacked.rng.uniform(0, 0.3 * seconds))
        ranks = training(run)
        if ranks:
            signal_process(attacked.rng.choice(ranks), 9)
    job.wait_for(job.ends)
    return job.unlike(["0"]) or run.fault(losses)


def training(run) -> list[int]:
    """The ranks of a run, which are not children of this process."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if words[0] == run.attacked.program.encode() and words[1:2] == [b"train"]:
            if str(run.folder / "run.toml").encode() in words:
                found.append(int(entry.name))
    return found


def suspended(attacked, cluster, name):
    """A job is suspended for longer than the timeout: it goes on when it is resumed."""
    run = Run(attacked, name, steps=4000, every=1000, ranks=2, mpi=True)
    losses, seconds = reference(run)
    job = Job(cluster, run, "--time=10", **{"parallelism.timeout_seconds": 4})
    time.sleep(attacked.rng.uniform(0, 0.3 * seconds))
    said = cluster.call("scontrol", "suspend", job.id)
    time.sleep(7)
    said += cluster.call("scontrol", "resume", job.id)
    job.wait_for(job.ends)
    fault = job.unlike(["0"])
    return f"{fault} {said}" if fault else run.fault(losses)


def terminated(attacked, cluster, name, at_limit):
    """A job is cancelled, or reaches its time limit without a signal before: Slurm sends TERM, and
    KILL five seconds later. The run saves its last step."""
    run = Run(attacked, name, steps=10**7, every=0, ranks=2, mpi=True)
    job = Job(cluster, run, "--time=1")
    if not at_limit:
        time.sleep(attacked.rng.uniform(0, 3))
        cluster.call("scancel", job.id)
    job.wait_for(lambda: not cluster.call("squeue", "-h", "-j", job.id, "-t", "R,CG,PD").strip())
    done = len(run.losses())
    if not (run.out / "checkpoints" / f"step-{done}").exists():
        return f"{name}: step {done} is the last one, and it is not saved: {job.said.read_text()}"
    return None
