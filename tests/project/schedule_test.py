#!/usr/bin/env python3
"""Tests scripts/testing: which parts a time limit leaves out, and how results are counted."""

import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts/testing"))

from parts import PARTS  # noqa: E402
from results import count  # noqa: E402
from schedule import Part, Schedule, chosen, run_parts  # noqa: E402


class Machine:
    """A clock, and a runner whose parts take `slow` times their seconds."""

    def __init__(self, slow, builds=1.0):
        self.now = 1000.0
        self.slow = {"build": slow * builds, "test": slow}
        self.ran = []

    def clock(self):
        return self.now

    def run(self, part, schedule):
        self.ran.append(part.name)
        for kind, slow in self.slow.items():
            seconds = slow * getattr(part, kind)
            self.now += seconds
            schedule.note(part, kind, seconds)


def outcome(machine, limit, measured, parts):
    schedule = Schedule(limit, measured, machine.clock)
    left_out = run_parts(parts, schedule, machine.run)
    return machine.ran, [part.name for part in left_out], schedule


DAILY = chosen(PARTS, [], False)
FOUR = [
    Part("first", "", 100, 100, needed=True),
    Part("large", "", 300, 300),
    Part("medium", "", 100, 100),
    Part("small", "", 10, 10),
]


class ScheduleTest(unittest.TestCase):
    def test_runs_all_parts_without_a_limit(self):
        ran, left_out, _ = outcome(Machine(100), 0, 100, FOUR)
        self.assertEqual(ran, ["first", "large", "medium", "small"])
        self.assertEqual(left_out, [])

    def test_runs_all_parts_where_they_fit(self):
        ran, left_out, schedule = outcome(Machine(1), 1300, 1, FOUR)
        self.assertEqual(left_out, [])
        self.assertEqual(ran, ["first", "large", "medium", "small"])
        self.assertEqual(schedule.elapsed(), 1020)

    def test_leaves_out_what_does_not_fit_and_runs_later_parts_that_do(self):
        ran, left_out, schedule = outcome(Machine(2), 1100, 2, FOUR)
        self.assertEqual(ran, ["first", "medium", "small"])
        self.assertEqual(left_out, ["large"])
        self.assertLessEqual(schedule.elapsed(), 0.8 * 1100)

    def test_the_needed_part_runs_however_slow_the_machine_is(self):
        ran, left_out, _ = outcome(Machine(50), 1000, 50, FOUR)
        self.assertEqual(ran, ["first"])
        self.assertEqual(left_out, ["large", "medium", "small"])

    def test_learns_from_the_parts_that_the_machine_is_slower_than_measured(self):
        ran, left_out, schedule = outcome(Machine(4), 2600, 1, FOUR)
        self.assertEqual(left_out, ["large"])
        self.assertLessEqual(schedule.elapsed(), 0.8 * 2600)

    def test_learns_that_a_compiler_cache_saves_builds(self):
        _, left_out, _ = outcome(Machine(2, builds=0.05), 1750, 2, FOUR)
        self.assertEqual(left_out, [])
        _, left_out, _ = outcome(Machine(2), 1750, 2, FOUR)
        self.assertEqual(left_out, ["large"])

    def test_says_when_a_running_part_has_to_end(self):
        machine = Machine(1)
        schedule = Schedule(1000, 1, machine.clock)
        machine.now += 900
        self.assertEqual(schedule.left(), 50)
        machine.now += 200
        self.assertEqual(schedule.left(), 1)
        self.assertIsNone(Schedule(0, 1, machine.clock).left())

    def test_nightly_parts_run_only_if_asked_for(self):
        daily, nightly = FOUR[0], Part("nightly", "", 10, 10, nightly=True)
        self.assertEqual(chosen([daily, nightly], [], False), [daily])
        self.assertEqual(chosen([daily, nightly], [], True), [daily, nightly])
        self.assertEqual(chosen([daily, nightly], ["nightly"], False), [nightly])

    def test_all_parts_fit_90_minutes_on_a_machine_that_takes_much_longer(self):
        ran, left_out, _ = outcome(Machine(1.7), 5400, 1.7, DAILY)
        self.assertEqual(left_out, [])
        self.assertEqual(len(set(ran)), len(DAILY))
        _, left_out, _ = outcome(Machine(2), 5400, 2, DAILY)
        self.assertEqual(left_out, ["aarch64-program"])

    def test_on_a_machine_four_times_as_slow_the_first_parts_run_in_time(self):
        ran, left_out, schedule = outcome(Machine(4), 5400, 4, DAILY)
        self.assertNotEqual(left_out, [])
        self.assertEqual(ran[:2], [part.name for part in DAILY[:2]])
        self.assertLessEqual(schedule.elapsed(), 0.8 * 5400)


LOG = """
1/4 Test: ops_test
[ RUN      ] Softmax.IsRight
[       OK ] Softmax.IsRight (3 ms)
[      CPU ] Softmax.IsRight (2.5 s)
[ RUN      ] Softmax.NeedsAGpu
[  SKIPPED ] Softmax.NeedsAGpu (0 ms)
[ RUN      ] All/Norm.IsRight/2
[  FAILED  ] All/Norm.IsRight/2, where GetParam() = 2 (1 ms)
[  FAILED  ] 1 test, listed below:
[  FAILED  ] All/Norm.IsRight/2, where GetParam() = 2
Test Failed.
2/4 Test: crashed_test
[       OK ] Fine.Here (3 ms)
Test Failed.
3/4 Test: attack_slurm
slurm: skipped: slurmd is missing
Test Passed.
4/4 Test: hip_build
Test Passed.
"""


class ResultsTest(unittest.TestCase):
    def test_counts_cases_and_tests_without_cases(self):
        results = count(LOG.splitlines(), "dev")
        self.assertEqual((results.passed, results.failed, results.skipped), (3, 2, 2))
        self.assertEqual(
            results.failures, ["dev: ops_test: All/Norm.IsRight/2", "dev: crashed_test"]
        )
        self.assertEqual(results.slow, [(2.5, "dev: Softmax.IsRight")])

    def test_ranks_that_print_the_same_case_count_once_and_a_failure_of_one_counts(self):
        log = ["1/1 Test: mpi_test"]
        log += ["[       OK ] Sum.IsRight (1 ms)"] * 2 + ["[  FAILED  ] Sum.IsRight (1 ms)"]
        log += ["[       OK ] Sum.IsRight (1 ms)", "Test Failed."]
        results = count(log, "dev")
        self.assertEqual((results.passed, results.failed), (0, 1))


if __name__ == "__main__":
    unittest.main()
