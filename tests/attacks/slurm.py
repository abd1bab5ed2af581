"""A Slurm of one machine: USR1 before the time limit, requeue, and resuming to the bit."""

import os
import re
import shutil
import socket
import subprocess
import time
from pathlib import Path

from harness import PATIENCE, Run, Skipped, need, reference

DAEMONS = ("munged", "slurmctld", "slurmd")


class Slurm:
    """munge, slurmctld and slurmd with all their files in one folder. Needs root."""

    def __init__(self, folder: Path):
        need(*DAEMONS, "srun", "sbatch")
        if os.geteuid() != 0:
            raise Skipped("slurmd needs root")
        self.folder = folder
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
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""
        )
        self.daemon("munged", "--foreground", "--force", f"--key-file={folder}/munge.key",
                    f"--socket={folder}/munge.socket", f"--pid-file={folder}/munge.pid",
                    f"--log-file={folder}/munge.log",
                    f"--seed-file={folder}/munge.seed")  # fmt: skip
        self.wait_for(lambda: (folder / "munge.socket").exists(), "munged")
        self.daemon("slurmctld", "-D", "-i")
        self.daemon("slurmd", "-D", "-N", host)
        self.wait_for(lambda: "idle" in self.call("sinfo", "-h", "-o", "%T"), "the node")
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


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def slurm(attacked):
    with Slurm(attacked.folder) as cluster:
        for number in range(attacked.several(1, 20)):
            yield requeues(attacked, cluster, f"job-{number}", at_limit=False)
        if attacked.long:
            yield requeues(attacked, cluster, "limit", at_limit=True)


def requeues(attacked, cluster, name, at_limit):
    """A job of two ranks gets USR1 while it trains, by scancel or before its time limit. It saves,
    ends with 75 and is queued again; its second start finishes."""
    run = Run(attacked, name, steps=4000, every=1000, ranks=2, mpi=True)
    losses, seconds = reference(run)
    if at_limit:  # which is two minutes, with the signal a minute or two before
        run = Run(attacked, name, steps=int(4000 * 130 / seconds), every=10000, ranks=2, mpi=True)
        losses, seconds = reference(run)
    train = " ".join(run.command()[run.command().index(attacked.program):])
    (run.folder / "job.sh").write_text(
        f"""#!/bin/bash
#SBATCH --ntasks=2 --overcommit --time=2 --signal=USR1@60 --requeue --open-mode=append
#SBATCH --output={run.folder}/job.out
srun --mpi=pmix --overcommit {train}
code=$?
echo "ended with $code"
if ((code == 75)); then scontrol requeue "$SLURM_JOB_ID"; fi
exit $code
"""
    )
    job = cluster.call("sbatch", "--chdir", run.folder, run.folder / "job.sh").split()[-1]
    said = run.folder / "job.out"

    def ends():
        return re.findall("ended with ([0-9]+)", said.read_text()) if said.exists() else []

    cluster.wait_for(lambda: run.losses() or ends(), "the job", PATIENCE)
    if not at_limit:
        time.sleep(attacked.rng.uniform(0, 0.5 * seconds))
        cluster.call("scancel", "--signal=USR1", job)
    try:
        cluster.wait_for(lambda: ends() and ends()[-1] != "75", "the end of the job", PATIENCE)
    except Skipped:
        pass
    if ends() != ["75", "0"]:
        return f"{name}: its starts end with {ends()}, not 75 and 0: {said.read_text()[-3000:]}"
    return run.fault(losses)
