"""Files that were damaged on disk, disks that are full, and writes that take part of the bytes."""

import os
import shutil
import subprocess

import scenarios
from harness import Run, Skipped, need, reference

SHORT_WRITES = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <unistd.h>

/* Every second call writes a third of its bytes, as write(2) is free to do. */
static int short_now(void) { static _Thread_local unsigned calls; return ++calls % 2; }

ssize_t write(int file, const void *bytes, size_t count) {
  ssize_t (*next)(int, const void *, size_t) = dlsym(RTLD_NEXT, "write");
  return next(file, bytes, count > 2 && short_now() ? count / 3 : count);
}

ssize_t pwrite64(int file, const void *bytes, size_t count, off64_t offset) {
  ssize_t (*next)(int, const void *, size_t, off64_t) = dlsym(RTLD_NEXT, "pwrite64");
  return next(file, bytes, count > 2 && short_now() ? count / 3 : count, offset);
}

ssize_t pwrite(int file, const void *bytes, size_t count, off_t offset) {
  return pwrite64(file, bytes, count, offset);
}
"""


def short_writes(attacked):
    need("cc")
    source = attacked.folder / "short.c"
    source.write_text(SHORT_WRITES)
    library = attacked.folder / "short.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
    for make in scenarios.ALL:
        scenario = make(attacked)
        result = scenario.execute(env={**os.environ, "LD_PRELOAD": str(library)})
        if result.code != 0:
            yield f"{scenario.name}: short writes are taken for errors: {result.text()}"
        else:
            yield scenario.fault(result, "short writes")


def flipped_bits(attacked):
    """Flips a bit of the newest checkpoint: the run goes on from the one before it."""
    run = Run(attacked, "run", steps=12, every=4, ranks=2)
    losses, _ = reference(run)
    run.run()
    kept = attacked.folder / "kept"
    (run.out / "checkpoints").rename(kept)
    files = [path.relative_to(kept) for path in sorted((kept / "step-12").iterdir())]
    for _ in range(attacked.several(20, 500)):
        run.clear()
        shutil.copytree(kept, run.out / "checkpoints")
        name = attacked.rng.choice(files)
        path = run.out / "checkpoints" / name
        data = bytearray(path.read_bytes())
        place = attacked.rng.randrange(8 * len(data))
        data[place // 8] ^= 1 << place % 8
        path.write_bytes(data)
        result = run.run()
        where = f"bit {place} of {name} is flipped"
        if result.code != 0:
            yield f"{where}: the older checkpoint is not used: {result.text()}"
        elif run.losses()[-4:] != losses[-4:]:
            yield f"{where}: other losses follow"
        elif "step-12" not in result.err + result.out:
            yield f"{where}: the checkpoint is skipped without a word: {result.text()}"
        else:
            yield None


def small_disks(attacked):
    """A run on disks of many sizes; then the disk grows, and the run is started again."""
    run = Run(attacked, "run", steps=12, every=3)
    losses, _ = reference(run)
    run.run()
    whole = sum(path.stat().st_size + 4096 for path in run.out.rglob("*"))
    run.clear()
    run.out.mkdir()
    for number in range(20):
        size = int(whole * (number + 0.5) / 20 * 1.2)
        mount = ["mount", "-t", "tmpfs", "-o", f"size={size // 4096 * 4096}", "axonn", run.out]
        if subprocess.run(mount, capture_output=True).returncode != 0:
            raise Skipped("only root can mount a small disk, where mounting is allowed")
        try:
            result = run.run()
            grow = ["mount", "-o", "remount,size=1g", run.out]
            subprocess.run(grow, check=True, capture_output=True)
            if result.code == 0 and run.losses() != losses:
                yield f"a disk of {size} bytes: the exit code is 0, the losses are others"
            elif result.code != 0 and "error: " not in result.err:
                yield f"a disk of {size} bytes: no message: {result.text()}"
            else:
                fault = run.fault(losses)
                yield fault and f"a disk of {size} bytes, then of 1 GB: {fault}"
        finally:
            subprocess.run(["umount", "-l", run.out], check=True)
