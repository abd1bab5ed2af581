"""A small trained model, and the program beside the package."""
import json
import pathlib
import subprocess

import pytest

import axonn
from axonn import _program

CONFIG = {
    "model": {"layers": 2, "hidden": 32, "heads": 4, "vocab": 256, "positions": 80},
    "data": {"synthetic": 20000, "validation": "0.1"},
    "training": {"steps": 6, "seq_len": 16, "global_batch": 8, "threads": 1},
    "optimizer": {"lr": 1e-2},
}


def command(*words, code=0):
    """Runs the program itself; returns its standard output, or its errors if code is not 0."""
    done = subprocess.run([_program.program(), *map(str, words)], capture_output=True, text=True,
                          errors="replace")
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout if code == 0 else done.stderr


def command_json(folder, *words):
    """What the program writes to --json."""
    path = pathlib.Path(folder) / "command.json"
    command(*words, "--json", path)
    return json.loads(path.read_text())


@pytest.fixture(scope="session")
def run(tmp_path_factory):
    """A finished run."""
    folder = tmp_path_factory.mktemp("run")
    return axonn.train(CONFIG, progress=False, output={"dir": folder / "run"}).wait()


@pytest.fixture(scope="session")
def model(run):
    with axonn.Model(run.folder) as model:
        yield model
