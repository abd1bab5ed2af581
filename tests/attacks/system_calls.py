"""A kill or an error at every system call by which a save, a load, a tokenization and an export
touch their files."""

import scenarios
from harness import tracing

# The calls, and the errors that each is given besides a kill.
CALLS = {
    "openat": ["EIO", "ENOSPC", "EACCES"],
    "newfstatat": ["EIO"],
    "getdents64": ["EIO"],
    "read": ["EIO"],
    "pread64": ["EIO"],
    "write": ["EIO", "ENOSPC"],
    "pwrite64": ["EIO", "ENOSPC"],
    "fsync": ["EIO", "ENOSPC"],
    "fdatasync": ["EIO"],
    "rename": ["EIO", "ENOSPC"],
    "mkdir": ["EIO", "ENOSPC"],
    "unlink": ["EIO"],
    "unlinkat": ["EIO"],
    "rmdir": ["EIO"],
    "flock": ["EIO", "ENOLCK"],
    "ftruncate": ["EIO"],
    "mmap": ["ENOMEM"],
}


def places(scenario):
    """The calls of the scenario that touch its folder: name and number. strace counts the calls of
    each name in each thread on its own."""
    trace = scenario.folder / "trace"
    watched = tracing("-y", "-o", trace, "-e", f"trace={','.join(CALLS)}")
    scenario.execute(prefix=watched)
    counts, found, spared = {}, set(), set()
    for line in trace.read_text(errors="replace").splitlines():
        thread, _, call = line.partition(" ")
        name = call.strip().split("(")[0]
        if name not in CALLS:  # the end of a call that was interrupted, or of a thread
            continue
        counts[thread, name] = counts.get((thread, name), 0) + 1
        place = name, counts[thread, name]
        if "/stderr" in call or ".so" in call:  # messages of the program, and the program itself
            spared.add(place)
        elif str(scenario.folder) in call:
            found.add(place)
    trace.unlink()
    scenario.clear()
    if not found:
        raise RuntimeError(f"{scenario.name} touches no file")
    return sorted(found - spared)


def system_calls(attacked):
    strace = tracing()
    for make in scenarios.ALL:
        scenario = make(attacked)
        attacks = [
            (call, number, what)
            for call, number in places(scenario)
            for what in ["signal=KILL", *(f"error={error}" for error in CALLS[call])]
        ]
        if not attacked.long:
            attacks = attacked.rng.sample(attacks, min(12, len(attacks)))
        for call, number, what in attacks:
            inject = f"inject={call}:{what}:when={number}"
            result = scenario.execute(
                prefix=[*strace, "-e", f"trace={call}", "-e", inject]
            )
            yield scenario.fault(result, f"{call} number {number}: {what}", "KILL" in what)
