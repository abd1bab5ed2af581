"""What all attacks share: a small run of the program, its reference, and the count of tries.

An attack is a generator of tries. It yields None for a try that the program survived and a text
that says what was lost for one that it did not. Survived means: nothing that was saved is lost, the
exit code and the messages are true, and a run that is started again ends with the same losses, to
the last digit, as a run that nobody attacked.
"""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field, replace
from pathlib import Path

# A longer run hangs, on any machine.
PATIENCE = 300


class Skipped(Exception):
    """The machine lacks what an attack needs."""


@dataclass
class Attacked:
    """What an attack works with."""

    program: str  # path of axonn
    folder: Path  # for its files; exists, and is empty at the start
    long: bool  # an hour for all attacks together instead of a minute
    rng: random.Random

    @property
    def mpirun(self) -> Path:
        return launcher(self.program)

    def several(self, short: int, long: int) -> int:
        return long if self.long else short


@dataclass
class Result:
    code: int
    out: str
    err: str

    def text(self) -> str:
        return f"exit code {self.code}\n{self.out[-2000:]}\n{self.err[-2000:]}"


@dataclass
class Run:
    """A folder with a config, and the output of a training run of a second or less."""

    attacked: Attacked
    name: str
    steps: int = 30
    every: int = 3
    ranks: int = 1
    mpi: bool = False
    data: str = "synthetic = 20000"
    keys: dict = field(default_factory=dict)  # "section.key" -> value, overrides the config

    def __post_init__(self):
        self.folder = self.attacked.folder / self.name
        self.out = self.folder / "out"
        self.folder.mkdir(parents=True, exist_ok=True)
        self.write()

    def write(self):
        """Writes the config, of which a run that has begun reads nothing any more."""
        (self.folder / "run.toml").write_text(
            "[model]\nlayers = 1\nhidden = 16\nheads = 4\nvocab = 256\n"
            f"[data]\n{self.data}\n"
            f"[training]\nsteps = {self.steps}\nseq_len = 8\nglobal_batch = 4\nthreads = 1\n"
            "[optimizer]\nlr = 1e-2\n"
            f'[checkpoint]\nevery = {self.every}\nresume = "auto"\n'
            f'[parallelism]\ntransport = "{"mpi" if self.mpi else "threads"}"\n'
            f'z = {self.ranks}\n[output]\ndir = "{self.out}"\n'
        )

    def command(self, **keys) -> list[str]:
        words = []
        if self.mpi:
            words = [str(self.attacked.mpirun), "-np", str(self.ranks)]
        words += [self.attacked.program, "train", str(self.folder / "run.toml")]
        for key, value in {**self.keys, **keys}.items():
            words += [f"--{key}", str(value)]
        return words

    def start(self, prefix=(), **keys) -> subprocess.Popen:
        """Starts the run in a session of its own, with its output in files."""
        return start([*prefix, *self.command(**keys)], self.folder)

    def run(self, prefix=(), **keys) -> Result:
        return finish(self.start(prefix, **keys), self.folder)

    def losses(self) -> list:
        """Step, loss and gradient norm of each step, as metrics.jsonl has them."""
        path = self.out / "metrics.jsonl"
        if not path.exists():
            return []
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        return [(line["step"], line["loss"], line["grad_norm"]) for line in lines]

    def clear(self):
        shutil.rmtree(self.out, ignore_errors=True)

    def fault(self, reference: list) -> str | None:
        """Runs to the end and compares with the losses of the reference."""
        result = self.run()
        if result.code != 0:
            return f"{self.name} does not finish when it is started again: {result.text()}"
        if self.losses() != reference:
            return f"{self.name} ends with other losses than a run without an attack"
        left = [p.name for p in self.out.rglob("*.tmp-*")]
        if left:
            return f"{self.name} leaves temporary files: {left}"
        return None


def start(words, folder: Path, **options) -> subprocess.Popen:
    with open(folder / "stdout", "w") as out, open(folder / "stderr", "w") as err:
        return subprocess.Popen(
            [str(w) for w in words], stdout=out, stderr=err, start_new_session=True, **options
        )


def finish(process: subprocess.Popen, folder: Path, seconds: float = PATIENCE) -> Result:
    try:
        process.wait(seconds)
        code = process.returncode
    except subprocess.TimeoutExpired:
        kill_session(process)
        code = -1000
    texts = [(folder / name).read_text(errors="replace") for name in ("stdout", "stderr")]
    return Result(code, *texts)


def call(attacked: Attacked, *words, prefix=(), seconds: float = PATIENCE) -> Result:
    """Runs a command of the program in the attack's folder."""
    words = [*prefix, attacked.program, *words]
    return finish(start(words, attacked.folder), attacked.folder, seconds)


def kill_session(process: subprocess.Popen):
    """Kills a process and all that it started, also processes in groups of their own."""
    for pid in processes_of_session(process.pid):
        signal_process(pid, signal.SIGKILL)
    process.wait()


def processes_of_session(session: int) -> list[int]:
    found = []
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            fields = Path(f"/proc/{entry}/stat").read_text().rsplit(")", 1)[1].split()
        except OSError:  # it has ended
            continue
        if int(fields[3]) == session:
            found.append(int(entry))
    return found


def ranks_of(process: subprocess.Popen, program: str) -> list[int]:
    """The processes of axonn that a session runs: the ranks under mpirun."""
    found = []
    for pid in processes_of_session(process.pid):
        try:
            if os.path.realpath(f"/proc/{pid}/exe") == os.path.realpath(program):
                found.append(pid)
        except OSError:
            pass
    return sorted(found)


def signal_process(pid: int, number: int):
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass


def rank_processes(process: subprocess.Popen, program: str) -> dict[int, int]:
    """The process of each rank under mpirun."""
    found = {}
    for pid in ranks_of(process, program):
        words = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        names = (b"OMPI_COMM_WORLD_RANK=", b"PMI_RANK=")  # of Open MPI and MPICH
        rank = [w.split(b"=")[1] for w in words if w.startswith(names)]
        if rank:
            found[int(rank[0])] = pid
    return found


def until(condition, process: subprocess.Popen, seconds: float = PATIENCE):
    """Waits for a condition, or the end of the process."""
    end = time.monotonic() + seconds
    while not condition() and process.poll() is None and time.monotonic() < end:
        time.sleep(0.01)


def unlike(result: Result, code: int | tuple, *texts: str) -> str | None:
    """What is wrong unless a program ended with this code (or one of them) and said these texts."""
    missing = [text for text in texts if text not in result.out + result.err]
    if result.code not in (code if isinstance(code, tuple) else (code,)):
        return f"wanted exit code {code}: {result.text()}"
    return f"it does not say {missing}: {result.text()}" if missing else None


def each(attacked: Attacked, tries):
    """Makes the tries one after the other, each with a folder of its own."""
    for number, attempt in enumerate(tries * attacked.several(1, 5)):
        folder = attacked.folder / f"{attempt.__name__}-{number}"
        folder.mkdir()
        try:
            fault = attempt(replace(attacked, folder=folder))
        except Skipped as why:
            print(f"{attempt.__name__}: skipped: {why}", flush=True)
            continue
        yield fault and f"{attempt.__name__}: {fault}"


def reference(run: Run) -> tuple[list, float]:
    """The losses of a run without an attack, and its seconds. Clears the run's output."""
    run.clear()
    begin = time.monotonic()
    result = run.run()
    seconds = time.monotonic() - begin
    if result.code != 0 or len(run.losses()) != run.steps:
        raise RuntimeError(f"the run without an attack fails: {result.text()}")
    losses = run.losses()
    run.clear()
    return losses, seconds


def byte_level(path: Path, split: str = r"\s+|\S+", **parts) -> Path:
    """Writes a tokenizer.json with a token for each byte and some merges; `parts` replace its
    own."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in plain]
    letters = [chr(byte) for byte in plain] + [chr(256 + i) for i in range(len(others))]
    pairs = [a + " " + b for a in "aeinost" for b in "aeinost"]
    tokens = letters + [pair.replace(" ", "") for pair in pairs]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True,
                  "use_regex": False}  # fmt: skip
    path.write_text(json.dumps({
        "added_tokens": [],
        "normalizer": None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
            {"type": "Split", "pattern": {"Regex": split}, "behavior": "Isolated",
             "invert": False}, byte_level]},
        "post_processor": None,
        "decoder": byte_level,
        "model": {"type": "BPE", "vocab": {token: i for i, token in enumerate(tokens)},
                  "merges": pairs},
        **parts,
    }))  # fmt: skip
    return path


def launcher(program: str) -> Path:
    """The launcher of the program's build, which exists if that has MPI."""
    return Path(program).resolve().parent.parent / "tests" / "mpirun"


def seed_of_the_day() -> int:
    """AXONN_ATTACK_SEED, or the date in UTC, such as 20261126: other random draws each day."""
    return int(os.environ.get("AXONN_ATTACK_SEED") or time.strftime("%Y%m%d", time.gmtime()))


def need(*programs: str):
    missing = [p for p in programs if not shutil.which(p)]
    if missing:
        raise Skipped(f"{', '.join(missing)} not found")


def tracing(*words) -> list:
    """The command that traces or changes system calls of the command after it."""
    need("strace")
    strace = ["strace", "-f", "-qqq", "-o", "/dev/null"]
    if subprocess.run([*strace, "true"], capture_output=True).returncode != 0:
        raise Skipped("processes may not be traced here")
    return [*strace, *words]


def files_place(long: bool) -> str | None:
    """Memory for the short forms if it has room for 2 GB, since a disk's syncs would take half of
    their time; else the usual folder for temporary files."""
    memory = "/dev/shm"
    roomy = os.path.isdir(memory) and shutil.disk_usage(memory).free > 2e9
    return memory if roomy and not long else None


def main(attacks: dict):
    """Runs the attacks named in the arguments; exits with 0 if all tries were survived, 77 if all
    attacks were skipped."""
    import argparse

    parser = argparse.ArgumentParser(description="Attacks on axonn: survived of tried.")
    parser.add_argument("program", help="path of axonn")
    parser.add_argument("attacks", nargs="*", metavar="ATTACK", help=", ".join(attacks))
    parser.add_argument("--long", action="store_true", help="an hour instead of a minute")
    parser.add_argument("--seed", type=int, default=0, help="of all random choices")
    arguments = parser.parse_args()
    unknown = set(arguments.attacks) - set(attacks)
    if unknown:
        parser.error(f"there is no attack {', '.join(sorted(unknown))}")

    ran = lost = 0
    for name in arguments.attacks or attacks:
        begin = time.monotonic()
        tried, faults = 0, []
        place = files_place(arguments.long)
        with tempfile.TemporaryDirectory(prefix=f"axonn-{name}-", dir=place) as folder:
            attacked = Attacked(
                os.path.abspath(arguments.program),
                Path(folder),
                arguments.long,
                random.Random(f"{name} {arguments.seed}"),
            )
            try:
                for fault in attacks[name](attacked):
                    tried += 1
                    if fault:
                        faults.append(fault)
                        print(f"{name}: {fault}", flush=True)
            except Skipped as why:
                print(f"{name}: skipped: {why}", flush=True)
                continue
        ran += 1
        lost += len(faults)
        seconds = time.monotonic() - begin
        print(f"{name}: survived {tried - len(faults)} of {tried} in {seconds:.0f} s", flush=True)
        if tried == 0:
            sys.exit(f"{name}: nothing was tried")
    sys.exit(77 if ran == 0 else 1 if lost else 0)
