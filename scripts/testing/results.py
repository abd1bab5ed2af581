"""Counts the cases in ctest's LastTest.log."""

import re
from dataclasses import dataclass, field

TEST = re.compile(r"\d+/\d+ Test: (.*)")
CASE = re.compile(r"\[ *(OK|SKIPPED|FAILED) *\] (\S+?\.[^\s,]+)(?:,| \(|$|\s)")
SLOW = re.compile(r"\[ *CPU *\] (\S+) \(([\d.]+) s\)")
SKIPPED = re.compile(r"([a-z_]+): skipped: ")  # a script, such as an attack


@dataclass
class Results:
    """A case of GoogleTest counts once, however many ranks ran it. A test without such cases, or
    one that failed outside of its cases, counts as a case."""

    passed: int = 0
    failed: int = 0
    skipped: int = 0
    failures: list = field(default_factory=list)
    slow: list = field(default_factory=list)  # (processor seconds, case)

    def add(self, other):
        for name in ("passed", "failed", "skipped", "failures", "slow"):
            setattr(self, name, getattr(self, name) + getattr(other, name))

    def fail(self, name):
        self.failed += 1
        self.failures.append(name)


def count(lines, part):
    """The results in the lines of a LastTest.log; failures are named "PART: TEST: CASE"."""
    results = Results()
    test, ok, cases = None, False, {}

    def end_test():
        if test is None:
            return
        outcomes = list(cases.values())
        bad = [case for case, outcome in cases.items() if outcome == "FAILED"]
        results.passed += outcomes.count("OK")
        results.skipped += outcomes.count("SKIPPED")
        for case in bad:
            results.fail(f"{part}: {test}: {case}")
        if not ok and not bad:
            results.fail(f"{part}: {test}")
        if ok and not cases:
            results.passed += 1

    for line in lines:
        if match := TEST.match(line):
            end_test()
            test, ok, cases = match[1].strip(), False, {}
        elif match := CASE.search(line):
            if cases.get(match[2]) != "FAILED":
                cases[match[2]] = match[1]
        elif match := SLOW.match(line):
            results.slow.append((float(match[2]), f"{part}: {match[1]}"))
        elif match := SKIPPED.match(line):
            cases[match[1]] = "SKIPPED"
        elif line.startswith("Test Passed."):
            ok = True
    end_test()
    return results
