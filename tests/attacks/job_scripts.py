"""The job scripts of slurm/: their syntax, modules and options, and a chain of jobs across a time
limit."""

import re
import shlex
import shutil
import signal
import subprocess
from pathlib import Path

from harness import PATIENCE, Run, ranks_of, signal_process
from slurm import Slurm

FOLDER = Path(__file__).resolve().parents[2] / "slurm"
CHAIN, GENERIC = FOLDER / "chain.sh", FOLDER / "generic" / "train.sh"

# Nodes with the features and GPUs that the scripts of the sites ask for, which nothing ever starts.
SITES = """GresTypes=gpu
ResumeProgram=/bin/true
SuspendProgram=/bin/true
SuspendTime=600
NodeName=site[1-4] CPUs=288 Sockets=1 CoresPerSocket=288 Gres=gpu:8 Feature=gpu,nvme State=CLOUD
PartitionName=site Nodes=site[1-4] MaxTime=INFINITE State=UP
"""


def job_scripts(attacked):
    """Every script is accepted by bash, and by shellcheck if it is installed. Those that train load
    what the site's build has, and give each rank the cores of the job."""
    for script in sorted(FOLDER.rglob("*.sh")):
        for checker in (["bash", "-n"], ["shellcheck"]):
            if shutil.which(checker[0]):
                yield fault_of([*checker, script])
    for script in sorted(FOLDER.glob("*/train.sh")):
        yield unlike_its_job(attacked, script)


def job_chain(attacked):
    """sbatch accepts the options of every site's script; a chain of the generic script trains as a
    run without a time limit does, and cancels the jobs that it does not need."""
    with Slurm(attacked.folder, SITES) as cluster:
        for script in sorted(FOLDER.glob("*/train.sh")):
            yield accepted(cluster, script)
        yield chained(attacked, cluster)


def fault_of(words) -> str | None:
    done = subprocess.run([str(w) for w in words], capture_output=True, text=True)
    call = shlex.join(str(w) for w in words)
    return f"{call}: {done.stdout}{done.stderr}" if done.returncode else None


# Stand for the commands of a site: each writes its words to the file CALLS.
STUBS = ("srun", "module", "sbcast", "lfs", "scancel", "scontrol")
MODULES = {
    "perlmutter": "PrgEnv-gnu cudatoolkit nccl cudnn",
    "frontier": "PrgEnv-gnu cpe rocm craype-accel-amd-gfx90a",
}


def unlike_its_job(attacked, script) -> str | None:
    """Runs a script as Slurm would start it in a job with 5 cores a rank."""
    site = script.parent.name
    folder = attacked.folder / site
    folder.mkdir()
    calls = folder / "calls"
    for name in STUBS:
        (folder / name).write_text(f'#!/bin/sh\necho {name} "$@" >>{calls}\n')
        (folder / name).chmod(0o755)
    environment = {
        "PATH": f"{folder}:/usr/bin:/bin", "USER": "someone", "AXONN": "/bin/true",
        "OUT": str(folder / "out"), "UENV": "prgenv-gnu", "SLURM_JOB_NAME": "llama",
        "SLURM_JOB_NUM_NODES": "2", "SLURM_JOB_USER": "someone", "SLURM_CPUS_PER_TASK": "5",
    }  # fmt: skip
    done = subprocess.run([script, "llama.toml"], env=environment, capture_output=True, text=True)
    said = calls.read_text() if calls.exists() else ""
    if done.returncode or not re.search(r"^srun .*-c 5 .* train llama.toml", said, re.MULTILINE):
        return f"{script} does not give ranks their cores: {said}{done.stderr}"
    wanted = MODULES.get(site, "")
    built = re.search(rf"{site}\)\n *module load {wanted}", (FOLDER / "build.sh").read_text())
    if wanted and not (f"module load {wanted}\n" in said and built):
        return f"{script} and build.sh do not both load {wanted}: {said}"
    return None


def accepted(cluster, script) -> str | None:
    said = cluster.call("sbatch", "--test-only", "--partition=site", script, "config.toml")
    return None if "to start at" in said else f"{script}: {said}"


def chained(attacked, cluster) -> str | None:
    """Three jobs. The first gets USR1 before its time limit, the second finishes, the third is
    cancelled. The reference runs beside them. The learning rate is constant, so that the last step
    may be chosen when the first job has ended."""
    reference, run = (
        Run(attacked, name, steps=10**7, every=0, ranks=2, mpi=True,
            keys={"lr_scheduler.kind": "constant"})
        for name in ("reference", "chain")
    )  # fmt: skip
    alone = reference.start()
    try:
        jobs = submit(cluster, run, 3)
        cluster.call("scontrol", "hold", jobs[1])
        cluster.try_for(lambda: cluster.field("JobState", jobs)[0] == "FAILED")
        run.steps = len(run.losses()) + 100
        if cluster.field("ExitCode", jobs)[0] != "75:0" or run.steps == 100:
            return f"the first job has not saved: {said(cluster, run, jobs)}"
        run.write()
        cluster.call("scontrol", "release", jobs[1])
        ends = ["FAILED", "COMPLETED", "CANCELLED"]
        if not cluster.try_for(lambda: cluster.field("JobState", jobs) == ends):
            return f"the jobs do not end as {ends}: {said(cluster, run, jobs)}"
        cluster.try_for(lambda: len(reference.losses()) >= run.steps)
    finally:
        for rank in ranks_of(alone, attacked.program):
            signal_process(rank, signal.SIGTERM)
        alone.wait(PATIENCE)
    if len(run.losses()) != run.steps or run.losses() != reference.losses()[: run.steps]:
        return "the losses of the chain are not those of a run without a time limit"
    return None


def submit(cluster, run, count) -> list[str]:
    """Submits a chain of the generic script, as a user does. Its jobs may run for a minute; Slurm,
    which looks every half minute, sends USR1 in the first half."""
    command = run.command()
    train = command[command.index("train") + 1:]
    cluster.environment["AXONN"] = run.attacked.program
    said = cluster.call(CHAIN, run.name, count, "--nodes=1", "--ntasks-per-node=2", "--overcommit",
                        "--time=1", "--signal=USR1@25", f"--chdir={run.folder}",
                        f"--output={run.folder}/job.out", GENERIC, *train)  # fmt: skip
    return [line.split()[-1] for line in said.splitlines()]


def said(cluster, run, jobs) -> str:
    out = run.folder / "job.out"
    states = [cluster.field(name, jobs) for name in ("JobState", "ExitCode", "Reason")]
    return f"{states} {out.read_text()[-3000:] if out.exists() else ''}"
