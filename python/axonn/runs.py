"""Trainings: axonn train and its relatives as processes that Python watches and stops."""
from __future__ import annotations

import atexit
import collections
import contextlib
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
import weakref
from typing import (Any, Callable, Deque, Dict, Iterable, Iterator, List, Mapping, Optional,
                    Sequence, Union)

from . import _program
from ._program import PathLike
from .checkpoint import Checkpoint, _lines
from .data import TokenStream, feed, write_examples
from .rewards import Reward, serve

Config = Union[PathLike, Mapping[str, Any], None]
Metrics = Dict[str, Any]

_STEP = re.compile(r"step ([\d,]+)/([\d,]+) ")
_RUNNING: "weakref.WeakSet[Run]" = weakref.WeakSet()


class _Tail:
    """The lines of a file that grows, and that a resumed run cuts first."""

    def __init__(self, path: pathlib.Path) -> None:
        self._path, self._at = path, 0  # just behind a line's end

    def new(self) -> List[bytes]:
        """The whole lines since the last call; all lines if the file has been cut."""
        if not self._path.exists():
            return []
        with open(self._path, "rb") as file:
            file.seek(max(self._at - 1, 0))
            text = file.read()
            if self._at and text[:1] != b"\n":
                self._at = file.seek(0)
                text = file.read()
        text = text[1 if self._at else 0 : text.rfind(b"\n") + 1]
        self._at += len(text)
        return text.splitlines()


class Run:
    """A training in a process of its own.

    Iterating gives the metrics of each step as it ends, as dicts of metrics.jsonl (docs/tools.md),
    and raises Error if the training fails. Ctrl-C while Python waits for the run stops it as
    stop() does, and is raised again. A run that still goes on when the interpreter ends is stopped
    likewise; one whose interpreter is killed goes on to its end.
    """

    def __init__(self, words: List[str], progress: bool, more: Sequence[str] = (),
                 data: Optional[Iterable[Any]] = None) -> None:
        """Use train(), finetune(), prefer() and distill()."""
        config = _program.shown_config([*words, *more])
        if not config["output.dir"]:
            raise _program.UsageError("the run writes no files: set output.dir")
        #: The run's folder, output.dir: metrics.jsonl, checkpoints/, config.toml.
        self.folder = pathlib.Path(config["output.dir"])
        self._stream: Optional[TokenStream] = None
        self._scratch: Optional["tempfile.TemporaryDirectory[str]"] = None  # has the run's data
        if data is not None:
            flags, self._stream = feed(data, config)
            words = [*words, *flags]
        self._words, self._progress = words, progress
        self._began = time.time()
        self._process = _program.start([*words, *more], stdin=subprocess.DEVNULL,
                                       stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self._errors: Deque[str] = collections.deque(maxlen=1000)
        self._readers = [threading.Thread(target=each, daemon=True)
                         for each in (self._read_output, self._read_errors)]
        for reader in self._readers:
            reader.start()
        _RUNNING.add(self)

    def __repr__(self) -> str:
        return f"Run({str(self.folder)!r}, {self.status})"

    def _read_output(self) -> None:
        show = _bar() if self._progress else None
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if show is not None:
                show(line.decode(errors="replace"))

    def _read_errors(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            text = line.decode(errors="replace")
            self._errors.append(text)
            if text.startswith("warning: ") or (self._progress and text[:7] != "error: "):
                print(text, end="", file=sys.stderr)

    @property
    def status(self) -> str:
        """"running", "finished", "stopped" (with a checkpoint to resume from) or "failed"."""
        code = self._process.poll()
        if code is None:
            return "running"
        return {0: "finished", _program.STOPPED: "stopped"}.get(code, "failed")

    def __iter__(self) -> Iterator[Metrics]:
        last, lines = 0, _Tail(self.folder / "metrics.jsonl")
        while True:
            running = self.status == "running"  # before reading: then nothing is missed
            for text in lines.new():
                line: Metrics = json.loads(text)
                if line["step"] > last and line["time"] >= self._began:
                    last = line["step"]
                    yield line
            if not running:
                self.wait()
                return
            with self._stops_if_interrupted():
                time.sleep(0.05)

    @contextlib.contextmanager
    def _stops_if_interrupted(self) -> Iterator[None]:
        try:
            yield
        except BaseException:  # KeyboardInterrupt
            _program.end(self._process, signal.SIGINT)
            raise

    def metrics(self) -> List[Metrics]:
        """The metrics of all steps so far, also of those before a resume."""
        try:
            return _lines(str(self.folder / "metrics.jsonl"))
        except FileNotFoundError:
            return []

    def wait(self) -> "Run":
        """Waits for the end. Raises Error or UsageError with the program's words if it failed."""
        with self._stops_if_interrupted():
            self._process.wait()
            for reader in self._readers:
                reader.join()
        _RUNNING.discard(self)
        if self.status == "failed":
            if self._stream is not None and self._stream.error is not None:
                raise self._stream.error
            raise _program.fault(self._words, self._process.returncode, "".join(self._errors))
        return self

    def stop(self) -> "Run":
        """Ends the run after its current step, with a checkpoint. Waits for that."""
        _program.end(self._process, signal.SIGTERM)
        return self.wait()

    def resume(self, **keys: Any) -> "Run":
        """Continues a stopped or failed run from its newest checkpoint, in the same folder; keys
        replace those of before. Losses are those of a run that was never stopped."""
        if self.status == "running":
            raise _program.UsageError(f"the run in {self.folder} has not ended; stop() it first")
        words = self._words + _program.key_flags(keys)
        run = Run(words, self._progress, ["--checkpoint.resume", "auto"])
        run._stream, run._scratch = self._stream, self._scratch  # it still writes ahead
        return run

    def checkpoint(self) -> Checkpoint:
        """The newest checkpoint, as arrays by name."""
        return Checkpoint(self.folder)


@atexit.register
def _stop_all() -> None:
    for run in list(_RUNNING):
        _program.end(run._process, signal.SIGTERM)


def _bar() -> Callable[[str], None]:
    """Shows the program's lines: as a bar of tqdm if it is there, else as they are."""
    try:
        from tqdm.auto import tqdm
    except ImportError:
        return lambda line: print(line, end="", flush=True)
    bar: Any = None

    def show(line: str) -> None:
        nonlocal bar
        step = _STEP.match(line)
        if step is None:
            tqdm.write(line, end="")
            return
        done, total = (int(each.replace(",", "")) for each in step.groups())
        bar = bar or tqdm(total=total, unit="step")
        bar.set_postfix_str(" ".join(line[step.end():].split())[:60], refresh=False)
        bar.update(done - bar.n)

    return show


def train(config: Config = None, data: Optional[Iterable[Any]] = None, *, progress: bool = True,
          **keys: Any) -> Run:
    """Starts axonn train.

    config: a file, or a dict of sections as in it: {"training": {"steps": 20}}.
    keys: replace the config's, by section: training={"steps": 20}, or **{"training.steps": 20}
    (docs/configuration.md). data: keys of [data], or in their place any iterable of texts, of
    sequences of tokens, or of dicts with "text", with "input_ids", or as lines of data.jsonl have;
    it is read ahead in a thread (docs/python.md). progress: whether the program's lines are shown.
    Raises UsageError for wrong keys and values before anything starts."""
    if isinstance(data, Mapping):
        keys, data = {**keys, "data": data}, None
    words = ["train", *_program.config_words(config), *_program.key_flags(keys)]
    return Run(words, progress, data=data)


def _tune(command: str, model: PathLike, data: Union[PathLike, Iterable[Any]],
          options: Mapping[str, Any], progress: bool, keys: Mapping[str, Any],
          reward: Optional[Reward] = None) -> Run:
    scratch = tempfile.TemporaryDirectory(prefix="axonn-")
    if reward:
        keys = {**keys, "rl.reward_program": serve(reward, scratch.name)}
    if not isinstance(data, (str, os.PathLike)):
        path = os.path.join(scratch.name, "data.jsonl")
        write_examples(data, path)
        data = path
    words = [command, os.fspath(model), os.fspath(data), *_program.option_flags(options)]
    run = Run(words + _program.key_flags(keys), progress)
    run._scratch = scratch
    return run


def finetune(model: PathLike, data: Union[PathLike, Iterable[Any]], *, full: bool = False,
             progress: bool = True, **keys: Any) -> Run:
    """Starts axonn finetune: adapters, or with full=True all weights, on conversations or text.
    data: a file, or an iterable of dicts as the lines of one."""
    return _tune("finetune", model, data, {"full": full}, progress, keys)


def prefer(model: PathLike, pairs: Union[PathLike, Iterable[Any]], *, full: bool = False,
           progress: bool = True, **keys: Any) -> Run:
    """Starts axonn prefer: a training on pairs of answers (docs/preferences.md). pairs: a file, or
    an iterable of dicts as the lines of one."""
    return _tune("prefer", model, pairs, {"full": full}, progress, keys)


def reinforce(model: PathLike, prompts: Union[PathLike, Iterable[Any]], *,
              reward: Optional[Reward] = None, full: bool = False, progress: bool = True,
              **keys: Any) -> Run:
    """Starts axonn reinforce: a training on the model's own answers (docs/rewards.md). prompts: a
    file, or an iterable of dicts as the lines of one. reward: a function of the dict of an answer,
    with the keys of its prompt's line, "completion", "completion_ids" and "truncated", which
    returns a number, None, or a dict of these by name; called in a thread of this interpreter,
    in place of rl.reward_program."""
    return _tune("reinforce", model, prompts, {"full": full}, progress, keys, reward)


def distill(model: PathLike, data: Union[PathLike, Iterable[Any]], teacher: PathLike, *,
            full: bool = False, progress: bool = True, **keys: Any) -> Run:
    """Starts axonn distill: a training on a teacher's distributions (docs/distillation.md)."""
    return _tune("distill", model, data, {"full": full, "teacher": teacher}, progress, keys)
