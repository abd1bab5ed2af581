"""Training data from Python: an iterable, written ahead of the run that reads it."""
from __future__ import annotations

import itertools
import json
import os
import shutil
import threading
from typing import Any, Dict, Iterable, List, Mapping, Optional, Tuple, cast

import numpy as np

from ._program import UsageError
from .model import Tokenizer, _list


class TokenStream:
    """Writes the tokens of an iterable into a file of i32, in a thread, while a run reads it
    (docs/data.md). What an earlier try has written is kept, and the iterable goes on from there."""

    def __init__(self, data: Iterable[Any], folder: str, count: int, tokenizer: str) -> None:
        """count: tokens that the run will read. tokenizer: of items that are texts."""
        self._data, self._count, self._folder = data, count, folder
        self._encoder, self._tokenizer = tokenizer, cast(Optional[Tokenizer], None)
        self.path = os.path.join(folder, "tokens.bin")
        #: What the iterable raised, if it did.
        self.error: Optional[BaseException] = None
        self._state: Dict[str, int] = {"items": 0, "tokens": 0}
        try:
            with open(os.path.join(folder, "index.json"), encoding="utf-8") as file:
                self._state = json.load(file)
        except FileNotFoundError:
            pass
        with open(self.path, "ab") as tokens:
            tokens.truncate(4 * count)
        self._say()
        threading.Thread(target=self._run, daemon=True).start()

    def _say(self, fault: str = "") -> None:
        line = f"{self._state['tokens']} {os.getpid()} {fault}\n"
        for name, text in (("index.json", json.dumps(self._state)), ("tokens.bin.written", line)):
            with open(os.path.join(self._folder, "part"), "w", encoding="utf-8") as file:
                file.write(text)
            os.replace(file.name, os.path.join(self._folder, name))

    def _tokens(self, item: Any) -> List[int]:
        if isinstance(item, Mapping):
            item = item["input_ids"] if "input_ids" in item else item["text"]
        if not isinstance(item, str):
            tokens = _list(item)
            if self._encoder == "bytes" and max(tokens, default=0) > 255:
                raise UsageError(f"token {max(tokens)} is none of data.tokenizer = 'bytes'; set it "
                                 "to the tokenizer that made the tokens, or to '': not known")
            return tokens
        self._tokenizer = self._tokenizer or Tokenizer(self._encoder)
        end = [] if self._tokenizer.end is None else [self._tokenizer.end]
        return self._tokenizer.encode(item, begin=True) + end

    def _run(self) -> None:
        try:
            done, skip = self._state["items"], getattr(self._data, "skip", None)
            items = (iter(skip(done)) if done and callable(skip)  # datasets' own is faster
                     else itertools.islice(self._data, done, None))
            with open(self.path, "r+b") as file:
                file.seek(4 * self._state["tokens"])
                while (left := self._count - self._state["tokens"]) > 0:
                    try:
                        tokens = np.asarray(self._tokens(next(items)), "<i4")[:left]
                    except StopIteration:
                        raise UsageError(f"the data ended after {self._state['items']} items; "
                                         "lower training.steps, or repeat them") from None
                    file.write(tokens.tobytes())
                    file.flush()
                    self._state["items"] += 1
                    self._state["tokens"] += len(tokens)
                    self._say()
        except BaseException as error:  # is raised by whoever waits for the run
            self.error = error
            self._say(" ".join(f"{type(error).__name__}: {error}".split()))


def write_examples(data: Iterable[Any], path: str) -> None:
    """Writes a line of JSON for each dict."""
    with open(path, "w", encoding="utf-8") as file:
        file.writelines(json.dumps(item, ensure_ascii=False) + "\n" for item in data)


def feed(data: Iterable[Any], config: Mapping[str, str]) -> Tuple[List[str], Optional[TokenStream]]:
    """The flags with which a run of this configuration reads the data, and who writes it. Dicts of
    conversations or of prompts with answers are written as a whole, since packing sorts them."""
    out = config["output.dir"]
    folder = out + ".data"
    if not config["checkpoint.resume"]:
        if os.path.exists(out) and config["output.overwrite"] != "true":
            raise UsageError(f"{out} exists: resume it with checkpoint.resume, or replace it with "
                             "output.overwrite")
        shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder, exist_ok=True)
    items = iter(data)
    first = list(itertools.islice(items, 1))
    if iter(data) is items:  # a generator, which does not begin anew
        data = itertools.chain(first, items)
    if first and isinstance(first[0], Mapping) and not {"text", "input_ids"} & set(first[0]):
        path = os.path.join(folder, "examples.jsonl")
        write_examples(data, path)
        return ["--data.jsonl", path], None
    steps, batch, length = (int(config["training." + key])
                            for key in ("steps", "global_batch", "seq_len"))
    if steps == 0:
        raise UsageError("a run on data from Python needs training.steps: how much to read")
    stream = TokenStream(data, folder, steps * batch * length + 1, config["data.tokenizer"])
    return ["--data.tokens", stream.path, "--data.token_type", "i32",
            "--data.shuffle", "false"], stream
