"""Decides which parts of a test run fit into its time.

A machine may be three times slower than another, and a run that does not end in time counts for
nothing. So parts run in the order of their importance, and one that is predicted to end too late is
left out. A later, shorter one may still fit.
"""

from dataclasses import dataclass, field

# A run is to end before this share of its limit: the rest is for what no prediction knows.
USED = 0.8
# Parts that are still running at this share of the limit are ended, so that the run can report.
ENDED = 0.95
# The seconds of work for which the measured speed of the machine counts, beside those of the parts.
TRUST = 120


@dataclass(frozen=True)
class Part:
    """A part of the tests: a build, then a run of tests.

    build, test: seconds on a quiet machine with two cores of an AMD EPYC (Zen 5), from nothing.
    """

    name: str
    about: str
    build: float
    test: float
    run: object = None  # what the runner needs to know
    needed: bool = False  # never left out
    nightly: bool = False  # only runs if it is named, or all tests are asked for


@dataclass
class Speed:
    """How many times slower than the reference this machine does one kind of work."""

    measured: float
    expected: float = 0
    taken: float = 0

    def factor(self):
        return (TRUST * self.measured + self.taken) / (TRUST + self.expected)

    def note(self, expected, taken):
        self.expected += expected
        self.taken += taken


@dataclass
class Schedule:
    """limit: seconds of the whole run; 0: none. slowness: measured, 1 on the reference machine.
    clock: returns seconds."""

    limit: float
    slowness: float
    clock: object
    began: float = field(init=False)

    def __post_init__(self):
        self.began = self.clock()
        self.speeds = {"build": Speed(self.slowness), "test": Speed(self.slowness)}

    def elapsed(self):
        return self.clock() - self.began

    def predicted(self, part):
        """Seconds that the part will take here."""
        return sum(getattr(part, kind) * speed.factor() for kind, speed in self.speeds.items())

    def fits(self, part):
        return (
            part.needed
            or not self.limit
            or self.elapsed() + self.predicted(part) <= USED * self.limit
        )

    def note(self, part, kind, seconds):
        """Takes note of the seconds of a part's build or test."""
        self.speeds[kind].note(getattr(part, kind), seconds)

    def left(self):
        """Seconds after which a running part is ended; None: never."""
        return max(1, ENDED * self.limit - self.elapsed()) if self.limit else None


def chosen(parts, names, whole):
    """The parts of these names; without names those of each day, or all if `whole`."""
    if names:
        return [part for part in parts if part.name in names]
    return [part for part in parts if whole or not part.nightly]


def run_parts(parts, schedule, run):
    """Runs the parts that fit, in their order. `run(part, schedule)` does one and notes its times.
    Returns the parts that were left out."""
    left_out = []
    for part in parts:
        if schedule.fits(part):
            run(part, schedule)
        else:
            left_out.append(part)
    return left_out
