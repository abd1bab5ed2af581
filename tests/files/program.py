"""Runs the axonn program for the tests in this folder."""
import os
import subprocess
import sys
import tempfile
import unittest

PROGRAM = None  # set by main()

TINY = """
[model]
layers = 2
hidden = 32
heads = 4
vocab = 256
[data]
synthetic = 20000
validation = "0.1"
[training]
steps = 6
seq_len = 8
global_batch = 8
threads = 1
eval_every = 2
[optimizer]
lr = 1e-2
"""


def mpirun():
    """The launcher of the build's MPI; None: it has none."""
    found = os.path.join(os.path.dirname(os.path.dirname(os.path.realpath(PROGRAM))), "tests",
                         "mpirun")
    return found if os.path.exists(found) else None


def axonn(*arguments, code=0, processes=0):
    """Runs a command, with so many processes under MPI; returns its standard output, or its error
    messages if code is not 0."""
    launcher = [mpirun(), "-np", str(processes)] if processes else []
    done = subprocess.run([*launcher, PROGRAM, *map(str, arguments)], capture_output=True,
                          text=True)
    if done.returncode != code:
        raise AssertionError(
            f"axonn {arguments}: exit {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout if code == 0 else done.stderr


class RunTest(unittest.TestCase):
    """A test with a folder of its own, and short trainings in it."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="axonn-files-")
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def path(self, *names):
        return os.path.join(self.folder, *names)

    def write(self, name, data):
        os.makedirs(os.path.dirname(self.path(name)), exist_ok=True)
        with open(self.path(name), "wb") as file:
            file.write(data.encode() if isinstance(data, str) else data)
        return self.path(name)

    def train(self, out, *more, config=TINY):
        """Trains; returns output.dir."""
        axonn("train", self.write("config.toml", config), "--output.dir", self.path(out), *more)
        return self.path(out)


def main():
    global PROGRAM
    PROGRAM = os.path.abspath(sys.argv.pop(1))
    unittest.main(module="__main__")
