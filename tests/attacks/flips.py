"""Bits that flip in the memory of a supervised run: of weights and of the optimizer's state."""

import json
import signal
import struct
import time

from harness import Run, reference, signal_process
from supervised import LocalRun, supervise

# Bytes by which a piece of the state is found in memory, and how often a try looks for one: the
# memory has the bytes of a checkpoint from its step to the next update.
PIECE, LOOKS = 64, 10
# How often in a row a place must have changed as the state does.
ROUNDS = 4


def is_varied(piece: bytes) -> bool:
    """Whether the words of a piece differ, as those of trained values do."""
    return len({piece[i : i + 4] for i in range(0, len(piece), 4)}) > PIECE // 8


def is_near(before: bytes, now: bytes) -> bool:
    """Whether values are what those before may have become in some steps, and not the same."""
    pairs = zip(struct.unpack(f"<{PIECE // 4}f", before), struct.unpack(f"<{PIECE // 4}f", now))
    near = [abs(a) / 2 <= abs(b) <= 2 * abs(a) for a, b in pairs]
    return before != now and 4 * sum(near) >= 3 * len(near)


def parts_of(run) -> list:
    """What ranks leave beside their files of a checkpoint that is whole and not yet published, in
    the step after it: the memory has its values until the update of that step."""
    return sorted((run.out / "checkpoints").glob("*/rank-*.part"))


def piece_of_state(run, rng) -> tuple[bytes, str]:
    """A random piece of that checkpoint, and the name of its values."""
    data = rng.choice(parts_of(run)).with_suffix(".safetensors").read_bytes()
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + size])
    name = rng.choice([name for name in header if name != "__metadata__"])
    begin, end = header[name]["data_offsets"]
    begin += 8 + size + rng.randrange(max((end - begin - PIECE) // 4, 1)) * 4
    return data[begin : begin + PIECE], name


def writable(pid: int):
    """The memory of a process that no file lies behind: begin and size of each part."""
    with open(f"/proc/{pid}/maps") as maps:
        for line in maps:
            fields = line.split()
            begin, end = (int(word, 16) for word in fields[0].split("-"))
            if fields[1].startswith("rw") and fields[4] == "0" and end - begin < 1 << 28:
                yield begin, end - begin


def places_of(memory, pid: int, piece: bytes) -> list[int]:
    """Where a process has the piece."""
    places = []
    for begin, size in writable(pid):
        try:
            memory.seek(begin)
            part = memory.read(size) or b""
        except OSError:  # a guard page
            continue
        at = part.find(piece)
        while at >= 0:
            places.append(begin + at)
            at = part.find(piece, at + 1)
    return places


def flip(run, pid: int, rng) -> str | None:
    """Flips a bit of state in a process that is stopped, and returns which values it is of. Copies
    of the state for the disk are in memory, too, but do not change with each step."""
    piece, name = piece_of_state(run, rng)
    if not is_varied(piece):
        return None
    with open(f"/proc/{pid}/mem", "rb+", buffering=0) as memory:
        found = {place: piece for place in places_of(memory, pid, piece)}
        for _ in range(ROUNDS):
            if not found:
                return None
            signal_process(pid, signal.SIGCONT)
            time.sleep(0.03)
            signal_process(pid, signal.SIGSTOP)
            for place, before in list(found.items()):
                memory.seek(place)
                found[place] = memory.read(PIECE)
                if not is_near(before, found[place]):
                    del found[place]
        for place, now in found.items():
            byte = rng.randrange(PIECE)
            memory.seek(place + byte)
            memory.write(bytes([now[byte] ^ 1 << rng.randrange(8)]))
            return name
    return None


def wait_for_save(run):
    """Returns when a checkpoint is whole."""
    end = time.monotonic() + 1
    while len(parts_of(run)) < run.ranks and time.monotonic() < end:
        time.sleep(0.001)


def flip_somewhere(run, ranks: list[int], rng) -> str | None:
    """Tries some times to flip a bit of the state of a rank. Returns which values it is of; None if
    no try came at the right moment."""
    for _ in range(LOOKS):
        pid = rng.choice(ranks)
        try:
            wait_for_save(run)
            signal_process(pid, signal.SIGSTOP)
            name = flip(run, pid, rng)
            if name:
                return name
        except (OSError, ValueError, LookupError):  # no checkpoint yet, or the run has ended
            pass
        finally:
            signal_process(pid, signal.SIGCONT)
    return None


def alarms_of(run) -> list[str]:
    """What the ranks said of bits that they set right, and starts that ended of others."""
    logs = sorted((run.out / "logs").glob("rank-*.log"))
    said = [line for log in logs for line in log.read_text().splitlines() if " is set right" in line]
    said += (run.folder / "starts.jsonl").read_text().splitlines()
    return [line for line in said if "silent corruption: rank " in line]


def unexplained(alarms: list[str], made: list[str]) -> list[str]:
    """The alarms that are of none of the flips, each in values that checkpoints call GROUP.KIND."""
    left = [f": {name.rsplit('.', 1)[1]} of " for name in made]
    wrong = []
    for alarm in alarms:
        own = next((values for values in left if values in alarm), None)
        if own:
            left.remove(own)
        else:
            wrong.append(alarm)
    return wrong


def flipped_state(attacked):
    """Flips bits of the weights and of the optimizer's state in the memory of supervised runs. Each
    run has to end with the losses of a run in which none flipped, with no more alarms than flips."""
    keys = {"training.seq_len": 128, "training.global_batch": 64, "checkpoint.async": "false"}
    # Not over z, for which weights are gathered, where a flip would be found by nothing. The run
    # with local checkpoints is cut over x.
    along_data = keys | {"parallelism.grid": "1,1,1,2"}
    runs = [Run(attacked, "threads", ranks=2, steps=400, every=10, keys=along_data),
            LocalRun(attacked, "local", ranks=2, steps=400, every=10)]  # fmt: skip
    runs[1].keys |= keys
    if attacked.mpirun.exists():
        runs.append(Run(attacked, "mpi", ranks=2, steps=400, every=10, mpi=True,
                        keys=along_data | {"training.dtype": "bf16"}))  # fmt: skip
    references = [reference(run) for run in runs]
    flips, alarms, ended = [], 0, 0
    for _ in range(attacked.several(2, 80)):
        for run, (losses, _) in zip(runs, references):
            run.clear()
            made = []

            def attack(ranks):
                made.extend(filter(None, [flip_somewhere(run, ranks, attacked.rng)]))

            result, _ = supervise(attacked, run, attack)
            found = alarms_of(run)
            if result.code != 0:
                yield f"{run.name}: the supervised run does not finish: {result.text()}"
            elif run.losses() != losses:
                yield f"{run.name} ends with other losses after flips in {made}: {found}"
            elif len(found) > len(made):
                yield f"{run.name} has {len(found)} alarms after {len(made)} flips: {found}"
            elif wrong := unexplained(found, made):
                yield f"{run.name} has alarms of other values than {made}, which flipped: {wrong}"
            else:
                yield None
            flips += made
            alarms += len(found)
            ended += sum("is set right" not in alarm for alarm in found)
    print(f"flipped_state: {len(flips)} flips, {alarms} alarms, {ended} ended a start", flush=True)
    if 2 * alarms < len(flips):  # some were of copies
        yield f"only {alarms} of {len(flips)} flips were found"
