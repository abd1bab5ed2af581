#!/usr/bin/env python3
"""Deletes each barrier of the GPU kernels and each wait of a stream, one after the other, and
checks that the tests on emulated GPUs under ThreadSanitizer find it:

  tests/emulated_gpu/delete_waits.py [--only REGEX] [--list] [--seeds N] [--jobs N]

--only: places whose "FILE:LINE CODE" the regular expression matches; --list: prints the places.

Copies the sources to build/deleted-waits, where each place gets a condition, so that one build
(preset emulated-tsan) serves for all: the environment variable AXONN_DELETED_WAIT has the number of
the place that is left out. Runs the tests of the place with several seeds until one finds it.
Prints a row of a Markdown table for each: place, code, what finds it (a race, wrong values, a
violation of CUDA's rules, a deadlock, another failure) with test and seed. First, without --only, it
runs the tests with no place deleted, which must find nothing. Exits with 1 if a deletion is not
found.
"""
import argparse
import os
import re
import shutil
import subprocess
import sys
from multiprocessing.pool import ThreadPool
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
COPY = ROOT / "build/deleted-waits"
TESTS = COPY / "build/emulated-tsan/tests"

SOURCES = ["axonn/compute/ops/gpu/**/*", "axonn/ranks/comm/device/*", "axonn/compute/tensor/tensor.*",
           "axonn/compute/tensor/gpu/*", "axonn/ranks/parallel/*", "axonn/network/nn/*", "axonn/network/model/*"]

# Calls that order no work of a GPU, by a regular expression for "FILE: " and the line, with the one
# before it; and why.
EXCLUDED = {
    r"\bhost\..*\.wait\(\)": "waits for a collective of the host",
    r"changed\.wait\(": "a condition variable",
    r"matmul_tuner": "bounds a measurement of time",
    r"__shfl|__ballot|hip": "other devices",
    r"void sync\(\) const": "reduce_block() calls it, whose barriers are places",
    r"tensor\.h|var\.h": "a place calls it, or it calls one",
    r"overlap": "ends an overlap that the user has turned off; those who read wait as well",
    r"shard_gradient_\.wait\(\)": "frees the memory that a reduce-scatter sends from: it bounds "
                                 "memory; those who read wait as well",
}

CALL = re.compile(r"(?:\.|->)(wait|synchronize|sync)\(")
PLAIN = re.compile(
    r"(?<![\w.>:])(?:__syncthreads\(\)|wait\(\)|await\(\*link_?\)|cudaEventSynchronize\([^;]*\)|"
    r"check\(\"cudaStream(?:WaitEvent|Synchronize)\"[^;]*\)\))(?=;)")

CONDITION = """
#include <cstdlib>
#include <memory>
#include <utility>
namespace axonn::deleted {
inline const int place = std::getenv("AXONN_DELETED_WAIT") ? std::atoi(std::getenv(
    "AXONN_DELETED_WAIT")) : -1;
/// What waits when it is destroyed, never does.
template <typename T>
void drop(T&& x) {
  if constexpr (requires { x.keep(nullptr); }) new auto(std::move(x));
}
}  // namespace axonn::deleted
"""

STAGED = ("ranks/comm/comm_cuda_test", "*RanksExchangeThrough*")
NCCL = ("ranks/comm/comm_cuda_test", "*NcclGives*")
THREADS = ("ranks/comm/comm_cuda_test", "*ThreadRanks*")
LINKS = ("ranks/comm/comm_test", "StagedCommunicator*:LinkedCommunicator*")
QUEUES = ("ranks/comm/comm_test", "DeviceThreads*")
TRAINING = ("emulated_gpu/emulated_training_test", "*EveryTransport*")
DEVICE = ("emulated_gpu/emulated_nccl_test", "CudaDevice.*")
PARAMETERS = ("ranks/parallel/parallel_test", "ParameterGroup.*")
LOSSES = ("network/model/model_test", "TargetLosses.*")
OVERLAP = ("emulated_gpu/emulated_training_test", "*WithAndWithoutOverlap*:*ForLlama*")


def ops(names):
    return ("compute/ops/ops_cuda_test", names)


# The tests of a file's places: programs and GoogleTest filters; the first match counts.
TESTS_OF = [
    (r"cached_attention", [ops("CachedAttention.TakesSeveral*:CachedAttention.OfLong*")]),
    (r"flash_", [ops("Attention.EqualsPlainLoopsForAligned*")]),
    (r"cuda_backend", [ops("Embedding*:LayerNorm.*")]),
    (r"team|reduce_block", [ops("Softmax*:CrossEntropy.Equals*:LayerNorm.*")]),
    (r"device_communicator", [NCCL, LINKS, STAGED]),
    (r"device_threads", [QUEUES, THREADS]),
    (r"compute/tensor/gpu", [DEVICE, TRAINING, STAGED]),
    (r"parameters", [PARAMETERS, TRAINING, OVERLAP]),
    (r"loss", [LOSSES]),
    (r"", [TRAINING, OVERLAP]),
]


class Place:
    def __init__(self, file, line, code, begin, end):
        self.file, self.line, self.code, self.begin, self.end = file, line, code, begin, end
        self.number = None

    def __str__(self):
        return f"{self.file}:{self.line} {self.code}"


def receiver_begin(text, end):
    """Where the expression before text[end] begins, such as `a.b(c)->d`."""
    at = end
    while at > 0:
        c = text[at - 1]
        if c in ")]":
            depth, at = 1, at - 1
            while depth:
                at -= 1
                depth += (text[at] in ")]") - (text[at] in "([")
        elif c.isalnum() or c in "_.:":
            at -= 1
        elif text[at - 2:at] == "->":
            at -= 2
        else:
            break
    return at


def closing(text, opening):
    depth, at = 1, opening + 1
    while depth:
        depth += (text[at] == "(") - (text[at] == ")")
        at += 1
    return at


def places_of(file):
    text = (ROOT / file).read_text()
    found = []
    for match in CALL.finditer(text):
        end = closing(text, match.end() - 1)
        if text[end] == ";":
            found.append((receiver_begin(text, match.start()), end, match.start()))
    found += [(m.start(), m.end(), None) for m in PLAIN.finditer(text)]
    found += [(m.start(), closing(text, m.end() - 1), None)
              for m in re.finditer(r"__syncthreads_or\(", text)]
    for begin, end, dot in sorted(found):
        line = text.count("\n", 0, begin) + 1
        start = text.rfind("\n", 0, begin) + 1
        whole = text[text.rfind("\n", 0, start - 1) + 1:text.find("\n", end)]
        place = Place(file, line, text[begin:end], begin, end)
        place.receiver = text[begin:dot] if dot else None
        if not re.match(r"\s*//", text[start:]) and not any(
                re.search(p, f"{file}: {whole}") for p in EXCLUDED):
            yield place


def all_places():
    files = sorted({str(p.relative_to(ROOT)) for s in SOURCES for p in ROOT.glob(s)
                    if p.is_file()})
    places = [p for file in files for p in places_of(file)]
    for number, place in enumerate(places):
        place.number = number
    return places


def conditional(place):
    """The place's code, unless the environment names it."""
    deleted = f"::axonn::deleted::place == {place.number}"
    if place.code.startswith("__syncthreads_or"):
        return f"({deleted} ? int{place.code[len('__syncthreads_or'):]} : {place.code})"
    without = f"::axonn::deleted::drop({place.receiver})" if place.receiver else "void()"
    return f"({deleted} ? {without} : void({place.code}))"


def write_copy(places):
    files = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, check=True,
                           capture_output=True, text=True).stdout.split("\n")[:-1]
    by_file = {}
    for place in places:
        by_file.setdefault(place.file, []).append(place)
    by_file_text = {"axonn/foundation/base/deleted.h": "#pragma once\n" + CONDITION}
    for file in filter(lambda f: (ROOT / f).is_file(), files):
        text = (ROOT / file).read_bytes()
        if file in by_file:
            source = text.decode()
            for place in reversed(by_file[file]):
                source = source[:place.begin] + conditional(place) + source[place.end:]
            once = "#pragma once\n" if source.startswith("#pragma once\n") else ""
            text = (once + '#include "axonn/foundation/base/deleted.h"\n' + source[len(once):]).encode()
        by_file_text[file] = text
    for file, text in by_file_text.items():
        to = COPY / file
        text = text if isinstance(text, bytes) else text.encode()
        to.parent.mkdir(parents=True, exist_ok=True)
        if not to.exists() or to.read_bytes() != text:  # or else it would be compiled again
            to.write_bytes(text)
            if (ROOT / file).exists():
                shutil.copymode(ROOT / file, to)


def run(test, number, seed, seconds=600):
    """What a test finds without a place: "" if nothing."""
    program, names = test
    environment = dict(os.environ, AXONN_DELETED_WAIT=str(number), AXONN_EMULATED_SEED=str(seed),
                       AXONN_TEST_SANITIZED="1", AXONN_EMULATED_PATIENCE="20",
                       OMP_THREAD_LIMIT="1",  # ThreadSanitizer does not know libgomp's barriers
                       TSAN_OPTIONS="exitcode=66:halt_on_error=1")
    command = ["setarch", "-R", str(TESTS / program), f"--gtest_filter={names}",
               "--gtest_fail_fast"]
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True,
                              errors="replace", timeout=seconds, check=False)
    except subprocess.TimeoutExpired:
        return "no end"
    output = done.stdout + done.stderr
    if re.search(r"^\[==========\] 0 tests", output, re.MULTILINE):
        sys.exit(f"{program}: no test has a name of {names}")
    running = re.findall(r"^\[  FAILED  \] (\S+)", output, re.MULTILINE)[:1] or re.findall(
        r"^\[ RUN      \] (\S+)", output, re.MULTILINE)[-1:]
    where = f" in {running[0]}" if running else ""
    if found := re.search(r": ThreadSanitizer: (data race|[\w-]+)", output):
        return found[1].replace("data ", "") + where
    if found := re.search(r"^emulated GPU: ([^\n]*)", output, re.MULTILINE):
        kind = "deadlock" if "deadlock" in found[1] else "violation"
        return f"{kind}{where}: {found[1][:60]}"
    if done.returncode == 0:
        return ""
    return ("wrong values" if "FAILED" in output else f"ends with {done.returncode}") + where


def tests_of(place):
    return next(tests for files, tests in TESTS_OF if re.search(files, place.file))


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    every = all_places()
    places = [p for p in every if re.search(options.only, str(p))]
    if options.list:
        for place in places:
            print(place.number, place)
        return
    write_copy(every)
    programs = sorted({test[0].split("/")[1] for place in places for test in tests_of(place)})
    subprocess.run(["scripts/build.sh", "emulated-tsan", *programs], cwd=COPY, check=True,
                   stdout=sys.stderr)

    def find(place):
        for seed in range(options.seeds):
            for test in tests_of(place):
                if found := run(test, place.number, seed):
                    return f"{found} (seed {seed})"
        return ""

    missed = 0
    if not options.only:
        for tests in {str(t): t for _, t in TESTS_OF}.values():
            for test in tests:
                if found := run(test, -1, 0):
                    sys.exit(f"without a deletion, {test} finds: {found}")
    print("| place | deleted | found by |\n| --- | --- | --- |")
    for place, found in zip(places, ThreadPool(options.jobs).imap(find, places)):
        missed += not found
        code = " ".join(place.code.split())
        found = found or "**not found**"
        print(f"| `{place.file}:{place.line}` | `{code}` | {found} |", flush=True)
    print(f"\n{len(places) - missed} of {len(places)} deletions are found")
    sys.exit(1 if missed else 0)


main()
