"""Reads checkpoints, metrics and plans of axonn with numpy and xxhash alone. The file works without
the rest of the package, too.

    from axonn.checkpoint import Checkpoint
    checkpoint = Checkpoint("out")                  # the newest of a run; or a folder step-200
    checkpoint["wte.weight"]                        # float32, whatever grid wrote it
    checkpoint.get("wte.weight", kind="exp_avg")    # the optimizer's state
    checkpoint.state["steps_done"]

Files are mapped, not read: a parameter costs memory once it is asked for, and none if one rank
wrote it as a whole. Checksums of what is read are verified. docs/checkpoints.md describes the
format.
"""
from __future__ import annotations

import functools
import json
import os
import re
import struct
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Tuple, Union

import numpy as np
import numpy.typing as npt

try:
    from xxhash import xxh3_64_intdigest
except ImportError:
    xxh3_64_intdigest = None  # type: ignore[assignment]

Array = npt.NDArray[Any]
Path = Union[str, "os.PathLike[str]"]
_Place = Tuple[Callable[[int], Array], int, int, int, int, int, int]

PIECE_BYTES = 4 << 20  # of a file, that one checksum covers
# Kinds of a matrix's factored second moment: a number for each row, and for each column.
_ROWS, _COLUMNS = "exp_avg_sq_row", "exp_avg_sq_col"
_BLOCK_OF_CODES = 256  # values with one absmax
_TAIL = re.compile(rb',\n"xxh3": "([0-9a-f]{16})"}\n?\Z')


class CheckpointError(ValueError):
    """A file is missing, damaged, or not a checkpoint."""


def _dynamic_map(signed: bool) -> Array:
    """The values of the 256 codes of an optimizer's state in 8 bits (docs/checkpoints.md)."""
    values = [0.0, 1.0]
    for decade in range(7):
        parts = 2 ** (decade if signed else decade + 1)
        steps = [10.0 ** (decade - 6) * (0.1 + 0.9 * (j + 0.5) / parts) for j in range(parts)]
        values += steps + ([-each for each in steps] if signed else [])
    return np.sort(np.array(values)).astype(np.float32)


class _File:
    """A file of a checkpoint, mapped; its pieces are verified when they are first read."""

    def __init__(self, folder: str, entry: Dict[str, Any], verify: bool) -> None:
        self.path = os.path.join(folder, entry["name"])
        self.sums = [int(each, 16) for each in entry["xxh3"]]
        try:
            self.data = np.memmap(self.path, np.uint8, "r")
        except (OSError, ValueError) as error:
            raise CheckpointError(f"cannot read {self.path}: {error}") from error
        if len(self.data) != entry["bytes"]:
            raise CheckpointError(
                f"{self.path} has {len(self.data)} bytes, but the index says {entry['bytes']}")
        self.unverified = set(range(len(self.sums))) if verify else set()

    def verify(self, begin: int, end: int) -> None:
        """Verifies the pieces that have bytes of [begin, end)."""
        wanted = range(begin // PIECE_BYTES, -(-end // PIECE_BYTES))
        for number in self.unverified.intersection(wanted):
            first = number * PIECE_BYTES
            if xxh3_64_intdigest(self.data[first : first + PIECE_BYTES].data) != self.sums[number]:
                raise CheckpointError(f"{self.path} is damaged: bytes from {first} on do not have "
                                      "the checksum of the index")
        self.unverified.difference_update(wanted)

    def floats(self, offset: int, count: int) -> Array:
        self.verify(offset, offset + 4 * count)
        return self.data[offset : offset + 4 * count].view("<f4")

    def values(self, code: str, offset: int, absmax: int, first: int, count: int) -> Array:
        """Values from the first-th of a kind on; those of codes begin where a block does."""
        if code == "f32":
            return self.floats(offset + 4 * first, count)
        size = 2 if code == "bf16" else 1
        begin, end = offset + size * first, offset + size * (first + count)
        self.verify(begin, end)
        if code == "bf16":
            halves = self.data[begin:end].view("<u2").astype(np.uint32)
            return (halves << np.uint32(16)).view(np.float32)
        blocks = -(-count // _BLOCK_OF_CODES)
        most = self.floats(absmax + 4 * (first // _BLOCK_OF_CODES), blocks)
        table = _dynamic_map(code == "dynamic")
        found: Array = table[self.data[begin:end]] * np.repeat(most, _BLOCK_OF_CODES)[:count]
        return found


def find_checkpoint(path: Path) -> str:
    """The folder of the checkpoint at `path`: itself, the newest in it, or in its checkpoints/."""
    for folder in (os.fspath(path), os.path.join(path, "checkpoints")):
        if os.path.exists(os.path.join(folder, "index.json")):
            return folder
        if os.path.isdir(folder):
            names = os.listdir(folder)
            steps = [int(name[5:]) for name in names if re.fullmatch(r"step-\d+", name)]
            if steps:
                return os.path.join(folder, f"step-{max(steps)}")
    raise CheckpointError(f"there is no checkpoint in {path}")


class Checkpoint(Mapping[str, Array]):
    """A checkpoint that any grid wrote. Maps names of parameters to arrays of float32."""

    def __init__(self, path: Path, verify: bool = True) -> None:
        """path: a checkpoint, a folder of several (the newest is taken) or a run's output.dir.
        Raises CheckpointError if it is damaged; verify=False skips the checksums."""
        if verify and xxh3_64_intdigest is None:
            raise CheckpointError("verifying needs the package xxhash (of PyPI, or python3-xxhash "
                                  "of Debian); verify=False skips it")
        self.folder = find_checkpoint(path)
        self._verify = verify
        self.index = self._read_index()
        self.step = self.index["step"]
        self.kinds = self.index["kinds"]  # "master" is the parameter, others are the optimizer's
        #: name -> shape; vectors have one dim
        self.shapes = {name: (rows,) if cols == 1 else (rows, cols)
                       for name, rows, cols in self.index["parameters"]}
        self._files = [_File(self.folder, entry, verify) for entry in self.index["files"]]
        # (name, kind) -> [(file, offset, row, rows, col, cols, begin, end)]
        self._places: Dict[Tuple[str, str], List[_Place]] = {}
        for file, entry in zip(self._files, self.index["files"]):
            for block in entry["blocks"]:
                self._add_block(file, block)

    def _read_index(self) -> Dict[str, Any]:
        path = os.path.join(self.folder, "index.json")
        try:
            with open(path, "rb") as file:
                text = file.read()
        except OSError as error:
            raise CheckpointError(f"cannot read {path}: {error}") from error
        tail = _TAIL.search(text)
        if not tail or (
                self._verify and xxh3_64_intdigest(text[: tail.start()]) != int(tail[1], 16)):
            raise CheckpointError(f"{path} is altered or cut short")
        index: Dict[str, Any] = json.loads(text)
        if index.get("format") != "axonn checkpoint" or index.get("version") not in (1, 2):
            raise CheckpointError(f"{path} is not an index of version 1 or 2")
        return index

    def _add_block(self, file: _File, block: Dict[str, Any]) -> None:
        count, blocks, numbers = 0, 0, block["slices"]
        coded = block.get("coded", {})  # the kinds that are not float32
        for i in range(0, len(numbers), 7):
            parameter, row, rows, col, cols, begin, end = numbers[i : i + 7]
            name = self.index["parameters"][parameter][0]
            for kind, offset in block["offsets"].items():
                code, absmax = coded.get(kind, ("f32", 0))
                first = count if code == "f32" else blocks * _BLOCK_OF_CODES
                values = functools.partial(file.values, code, offset, absmax, first)
                self._places.setdefault((name, kind), []).append(
                    (values, row, rows, col, cols, begin, end))
            count += end - begin
            blocks += -(-(end - begin) // _BLOCK_OF_CODES)

    def __iter__(self) -> Iterator[str]:
        return iter(self.shapes)

    def __len__(self) -> int:
        return len(self.shapes)

    def __contains__(self, name: object) -> bool:
        return name in self.shapes

    def __getitem__(self, name: str) -> Array:
        return self.get(name)

    def get(self, name: str, kind: str = "master") -> Array:  # type: ignore[override]
        """The parameter, or with another kind (self.kinds) the optimizer's buffer of it. That of
        rows or columns (exp_avg_sq_row, exp_avg_sq_col) has one dim; a vector has none of columns.
        """
        if name not in self.shapes:
            raise KeyError(f"the checkpoint has no parameter {name}; shapes has all")
        if kind not in self.kinds:
            raise KeyError(f"the checkpoint has no {kind}, but {', '.join(self.kinds)}")
        places = self._places.get((name, kind), [])
        shape = self.shapes[name]
        all_rows, all_cols = shape if len(shape) == 2 else (shape[0], 1)
        if kind == _COLUMNS and len(shape) == 1:
            raise KeyError(f"{name} is a vector, which has no {kind}")
        if kind == _ROWS:
            all_cols, shape = 1, (all_rows,)
        elif kind == _COLUMNS:
            all_rows, shape = 1, (all_cols,)
        if len(places) == 1:
            read, _, rows, _, cols, begin, end = places[0]
            if (rows, cols, begin, end) == (all_rows, all_cols, 0, rows * cols):
                return read(end).reshape(shape)
        found = np.empty((all_rows, all_cols), np.float32)
        filled = 0
        for read, row, rows, col, cols, begin, end in places:
            values = read(end - begin)
            filled += len(values)
            part = found[row : row + rows, col : col + cols]
            while begin < end:  # the rest of a row, then whole rows
                line, at = divmod(begin, cols)
                lines = (end - begin) // cols if at == 0 else 0
                if lines:
                    part[line : line + lines] = values[: lines * cols].reshape(lines, cols)
                    count = lines * cols
                else:
                    count = min(cols - at, end - begin)
                    part[line, at : at + count] = values[:count]
                values, begin = values[count:], begin + count
        if filled != found.size:
            raise CheckpointError(
                f"{self.folder} has {filled} of the {found.size} elements of {name} ({kind})")
        return found.reshape(shape)

    def text(self, name: str) -> str:
        """A text of the checkpoint: state.json, config.toml."""
        entry = next((each for each in self.index["texts"] if each[0] == name), None)
        if entry is None:
            raise KeyError(f"the checkpoint has no text {name}")
        path = os.path.join(self.folder, name)
        with open(path, "rb") as file:
            data = file.read()
        if len(data) != entry[1] or (self._verify and xxh3_64_intdigest(data) != int(entry[2], 16)):
            raise CheckpointError(f"{path} is damaged")
        return data.decode()

    @property
    def state(self) -> Dict[str, Any]:
        """The run's state: steps_done, samples_done, tokens_seen and more."""
        return dict(json.loads(self.text("state.json")))

    def verify(self) -> int:
        """Verifies all files. Returns their bytes. Raises CheckpointError."""
        for name, *_ in self.index["texts"]:
            self.text(name)
        for file in self._files:
            file.verify(0, len(file.data))
        return sum(len(file.data) for file in self._files)


# --- Other files ---


def _lines(path: str) -> List[Dict[str, Any]]:
    lines = []
    with open(path, encoding="utf-8", errors="replace") as file:
        for line in file:
            try:
                lines.append(json.loads(line))
            except ValueError:
                continue  # a crash has cut it short
    return [line for line in lines if isinstance(line, dict)]


def metrics(run: Path) -> List[Dict[str, Any]]:
    """metrics.jsonl of a run's output.dir, as a list of dicts, a step each."""
    return _lines(os.path.join(run, "metrics.jsonl"))


def samples(run: Path) -> List[Dict[str, Any]]:
    """samples.jsonl of a run's output.dir, as a list of dicts, a text each: step, time, prompt,
    text, tokens, end. Empty if the run writes no samples."""
    path = os.path.join(run, "samples.jsonl")
    return _lines(path) if os.path.exists(path) else []


def end(run: Path) -> Tuple[Optional[str], str]:
    """How the run in output.dir ended: a pair of "finished", "stopped" or "failed" and a line that
    says more; (None, "") if it goes on, or was killed without a word."""
    try:
        with open(os.path.join(run, "lock"), encoding="utf-8", errors="replace") as file:
            lines = file.read().split("\n")
    except FileNotFoundError:
        return None, ""
    how, comma, rest = (lines[1] if len(lines) > 1 else "").partition(", ")
    if not comma or how not in ("finished", "stopped", "failed"):
        return None, ""
    return how, rest.partition(": ")[2]


def plans(path: Path) -> List[Dict[str, Any]]:
    """The plans of `axonn plan --json FILE`, best first, as a list of dicts."""
    with open(path, encoding="utf-8") as file:
        return list(json.load(file)["plans"])


_TYPES = {"F32": "<f4", "F16": "<f2", "F64": "<f8", "I64": "<i8", "I32": "<i4", "I16": "<i2",
          "I8": "i1", "U8": "u1", "BOOL": "?"}


def safetensors(path: Path) -> Dict[str, Array]:
    """The tensors of a safetensors file: name -> array. Mapped, but BF16 becomes float32."""
    data = np.memmap(path, np.uint8, "r")
    (size,) = struct.unpack("<Q", data[:8].tobytes())
    header = json.loads(data[8 : 8 + size].tobytes())
    tensors = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        begin, end = (8 + size + at for at in entry["data_offsets"])
        if entry["dtype"] == "BF16":
            values = (data[begin:end].view("<u2").astype(np.uint32) << 16).view(np.float32)
        else:
            values = data[begin:end].view(_TYPES[entry["dtype"]])
        tensors[name] = values.reshape(entry["shape"])
    return tensors
