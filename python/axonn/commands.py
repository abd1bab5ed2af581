"""Commands that give tables: plan, evaluate, memorize, audit; and convert."""
from __future__ import annotations

import json
import os
import pathlib
import re
import tempfile
from typing import Any, Dict, List, Mapping, Optional, Sequence, Union

from . import _program
from ._program import PathLike
from .runs import Config

Row = Dict[str, Any]
Paths = Union[PathLike, Sequence[PathLike]]


def _result(words: List[str]) -> Any:
    """What a command writes to --json."""
    with tempfile.TemporaryDirectory(prefix="axonn-") as folder:
        path = os.path.join(folder, "result.json")
        _program.run([*words, "--json", path])
        with open(path, encoding="utf-8") as file:
            return json.load(file)


def plan(config: Config = None, **keys: Any) -> List[Row]:
    """Ranks all grids by predicted time: a dict for each plan, the best first; for several
    devices, a dict for each number of them.

    keys: those of the configuration, which have a section, and the options of `axonn plan`:
    machine="frontier", devices=512 or [64, 512], top=20, model="gpt2-124m", ...
    pandas.DataFrame(axonn.plan(...)) is the table."""
    sections, options = _program.split_keys(keys)
    found = _result(["plan", *_program.config_words(config), *_program.key_flags(sections),
                     *_program.option_flags(options)])
    rows: List[Row] = found["plans"] if "plans" in found else found["points"]
    return rows


def evaluate(model: PathLike, data: Optional[PathLike] = None, **options: Any) -> Row:
    """What `axonn eval --json` gives: loss, perplexity and bits per byte of a text, or with
    choices="questions.jsonl" the accuracies of multiple choice. options: seq_len, grid, ..."""
    words = ["eval", "--model", os.fspath(model)]
    result: Row = _result(words + _program.option_flags({"data": data, **options}))
    return result


def convert(model: PathLike, out: PathLike, **options: Any) -> pathlib.Path:
    """Converts a checkpoint to a Hugging Face folder, a folder to a checkpoint, or either to GGUF.
    options: to="hf", "checkpoint" or "gguf", dtype, merge, adapter, overwrite, ... Returns out."""
    _program.run(["convert", "--model", os.fspath(model), "--out", os.fspath(out),
                  *_program.option_flags(options)])
    return pathlib.Path(out)


class Memorization:
    """The report of a study or of an audit. pandas.DataFrame(report.summary) is the table of its
    figures, pandas.DataFrame(report.recitations) that of all documents."""

    def __init__(self, report: Mapping[str, Any]) -> None:
        #: Everything, as in report.json.
        self.report = report
        #: Figures by variant, group and length of prompt.
        self.summary: List[Row] = list(report["summary"])
        #: A dict for each document, prompt and training, with the training's variant and trial.
        self.recitations: List[Row] = [
            {"variant": run["variant"], "trial": run["trial"], **row}
            for run in report["runs"] for row in run["recitations"]]

    def __repr__(self) -> str:
        return f"Memorization({self.report['headline']!r})"


def memorize(config: Config, *, progress: bool = True, **keys: Any) -> Memorization:
    """Runs the study of `axonn memorize`, which may take hours, or continues it; keys are those of
    the configuration. Returns its report, which is also in output.dir. progress: whether the
    program's lines are shown."""
    words = ["memorize", *_program.config_words(config), *_program.key_flags(keys)]
    out = _program.run(words, echo=progress)
    found = re.search(r" and (.*/report\.json)\n\Z", out)
    if found is None:
        raise _program.Error(f"axonn memorize wrote no report: {out[-500:]!r}")
    with open(found[1], encoding="utf-8") as file:
        return Memorization(json.load(file))


def audit(model: PathLike, documents: Paths, control: Paths = (), **options: Any) -> Memorization:
    """Tests which documents a model can recite (`axonn memorize --audit`). options: suffix,
    prompt_lengths, policies ("t=1,k=40;greedy"), seq_len, limit, grid, ..."""
    words = ["memorize", "--audit", "--model", os.fspath(model)]
    for flag, paths in (("--documents", documents), ("--control", control)):
        each = [paths] if isinstance(paths, (str, os.PathLike)) else list(paths)
        if each:
            words += [flag, _program.value_text(flag, each)]
    return Memorization(_result(words + _program.option_flags(options)))
