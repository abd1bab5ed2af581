#!/usr/bin/env python3
"""Builds and runs the tests, part by part (parts.py): run.py [--limit SECONDS] [--all] [PART ...]

With a limit, parts that would not end in time on this machine are left out (schedule.py); the last
lines say which. --all: also the parts and tests that are left out to save time. With names of
parts, only these run. Prints each part's seconds, and in the last line "N passed, M failed, K skipped".
"""

import argparse
import os
import platform
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

from parts import PARTS, Script
from results import Results, count
from schedule import Schedule, chosen, run_parts

ROOT = Path(__file__).resolve().parents[2]
SKIPPED = 77  # exit code of a script that lacks something on this machine
TIMED_OUT = 124
CALIBRATION = ROOT / "scripts/testing/calibration.cpp"
CALIBRATION_SECONDS = 2.8  # to compile it on each of two cores of the reference machine at once


def measured_slowness():
    """How many times longer than the reference machine this one takes for work on all cores."""
    cores = len(os.sched_getaffinity(0))
    command = ["g++", "-std=c++20", "-O1", "-c", "-o", "/dev/null", str(CALIBRATION)]
    begin = time.monotonic()
    for process in [subprocess.Popen(command) for _ in range(cores)]:
        process.wait()
    return (time.monotonic() - begin) / CALIBRATION_SECONDS * 2 / cores


def debian_version():
    """The number of this system's release of Debian; "" on another system."""
    release = platform.freedesktop_os_release()
    return release.get("VERSION_ID", "") if release.get("ID") == "debian" else ""


def processor_seconds():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


class Runner:
    """Runs parts and gathers their results. whole: without the filters that save time."""

    def __init__(self, whole):
        self.whole = whole
        self.results = Results()
        self.rows = []  # of the table of times
        self.ended = []  # parts that were ended for time

    def command(self, part, kind, command, schedule):
        """Runs a command of the part and notes its time. Returns its exit code."""
        print(f"== {part.name}: {kind}", flush=True)
        begin, begin_processor = time.monotonic(), processor_seconds()
        process = subprocess.Popen(command, cwd=ROOT, start_new_session=True)
        try:
            code = process.wait(schedule.left())
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            code = TIMED_OUT
        except KeyboardInterrupt:
            os.killpg(process.pid, signal.SIGTERM)
            raise
        seconds = time.monotonic() - begin
        schedule.note(part, kind, seconds)
        self.rows.append(
            [f"{part.name}: {kind}", seconds, processor_seconds() - begin_processor, ""]
        )
        return code

    def note(self, text):
        self.rows[-1][3] = text

    def __call__(self, part, schedule):
        if isinstance(part.run, Script):
            self.run_script(part, schedule)
        else:
            self.run_tests(part, schedule)

    def run_script(self, part, schedule):
        code = self.command(part, "test", part.run.command, schedule)
        if code == 0:
            self.results.passed += 1
        elif code == SKIPPED:
            self.results.skipped += 1
            self.note("skipped")
        elif code == TIMED_OUT:
            self.end(part)
        else:
            self.results.fail(part.name)
            self.note("failed")

    def run_tests(self, part, schedule):
        tests = part.run
        if tests.system and tests.system == debian_version():
            self.rows.append([f"{part.name}: test", 0, 0, "skipped: this is that system"])
            self.results.skipped += 1
            return
        where = ["scripts/in-debian.sh", tests.system] if tests.system else []
        programs = tests.programs + (tests.nightly if self.whole else ())
        build = ["scripts/build.sh", tests.preset, *(tests.targets or programs)]
        if where:  # a system that was just made has no compiler
            install = 'scripts/install-packages.sh --unit-tests && exec "$@"'
            build = [*where, "sh", "-c", install, "sh", *build]
        code = self.command(part, "build", build, schedule)
        if code == TIMED_OUT:
            return self.end(part)
        if code == SKIPPED and where:
            self.results.skipped += 1
            return self.note("skipped: such a system cannot be made here")
        if code != 0:
            self.results.fail(f"{part.name}: build")
            return self.note("failed")
        log = f"build/{tests.preset}/Testing/Temporary/LastTest.log"
        subprocess.run([*where, "rm", "-f", log], cwd=ROOT, check=True)
        setting = [f"{name}={value}" for name, value in tests.environment.items()]
        if self.whole:
            setting.append("AXONN_TEST_AT_LENGTH=1")  # tests/support/grids.h
        elif tests.few:
            setting.append(f"GTEST_FILTER={tests.few}")
        ctest = ["ctest", "--test-dir", f"build/{tests.preset}", "-j", str(tests.jobs)]
        ctest += ["--output-on-failure", "--no-tests=error", *tests.ctest]
        if programs:
            ctest += ["-R", f"^({'|'.join(programs)})$"]
        code = self.command(part, "test", [*where, "env", *setting, *tests.under, *ctest], schedule)
        if code == TIMED_OUT:
            log += ".tmp"  # the tests that have ended
        text = subprocess.run([*where, "cat", log], cwd=ROOT, capture_output=True).stdout
        found = count(text.decode(errors="replace").splitlines(), part.name)
        if code == TIMED_OUT:
            self.end(part)
        elif not text:
            found.fail(f"{part.name}: ctest found no tests")
        self.results.add(found)
        self.note(f"{found.passed} passed, {found.failed} failed, {found.skipped} skipped")

    def end(self, part):
        self.ended.append(part)
        self.note("ended for time")

    def report(self, schedule, left_out):
        print()
        for name, seconds, processor, text in self.rows:
            print(f"  {name:<24}{seconds:6.0f} s {processor:6.0f} CPU s  {text}")
        processor = sum(row[2] for row in self.rows)
        print(f"  {'total':<24}{schedule.elapsed():6.0f} s {processor:6.0f} CPU s")
        slow = sorted(self.results.slow, reverse=True)[:5]
        if slow:
            print("most processor time:", ", ".join(f"{name} {s:.0f} s" for s, name in slow))
        if self.results.failures:
            print("failed:", *self.results.failures, sep="\n  ")
        for part in left_out:
            print(f"left out for time: {part.name} ({part.about})")
        for part in self.ended:
            print(f"ended for time, with tests that did not run: {part.name} ({part.about})")
        skipped = self.results.skipped + len(left_out) + len(self.ended)
        print(f"{self.results.passed} passed, {self.results.failed} failed, {skipped} skipped")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--limit", type=float, default=0, help="seconds of the whole run; 0: none")
    parser.add_argument("--all", action="store_true", help="all parts, and all tests of each")
    parser.add_argument("part", nargs="*", help=f"parts to run: {', '.join(p.name for p in PARTS)}")
    arguments = parser.parse_args()
    unknown = set(arguments.part) - {part.name for part in PARTS}
    if unknown:
        parser.error(f"there is no part {', '.join(sorted(unknown))}")
    parts = chosen(PARTS, arguments.part, arguments.all)
    slowness = measured_slowness()
    print(f"this machine takes {slowness:.2f} times the seconds of the reference")
    schedule = Schedule(arguments.limit, slowness, time.monotonic)
    runner = Runner(arguments.all)
    left_out = run_parts(parts, schedule, runner)
    runner.report(schedule, left_out)
    return 1 if runner.results.failed else 0


if __name__ == "__main__":
    sys.exit(main())
