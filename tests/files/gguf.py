"""Reads GGUF files by the published format (ggml-org/ggml, docs/gguf.md) with numpy."""
import struct

import numpy as np

_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q",
            12: "d"}
_STRING, _ARRAY = 8, 9


class Reader:
    """keys: name -> value; tensors: name -> (type, sizes with the fastest first, float32 array);
    bytes_of: name -> (first byte, bytes) in the file."""

    def __init__(self, path):
        with open(path, "rb") as file:
            self.data = file.read()
        self.at = 0
        assert self._take(4) == b"GGUF"
        self.version = self._scalar("I")
        tensors, keys = self._scalar("Q"), self._scalar("Q")
        self.keys = {}
        for _ in range(keys):
            name = self._string()
            assert name not in self.keys, name
            self.keys[name] = self._value(self._scalar("I"))
        alignment = self.keys.get("general.alignment", 32)
        infos = []
        for _ in range(tensors):
            name = self._string()
            sizes = [self._scalar("Q") for _ in range(self._scalar("I"))]
            infos.append((name, sizes, self._scalar("I"), self._scalar("Q")))
        begin = -(-self.at // alignment) * alignment
        self.tensors, self.bytes_of, end = {}, {}, 0
        for name, sizes, kind, place in infos:
            assert place == -(-end // alignment) * alignment, f"{name} is at {place}"
            values, count = self._values(kind, int(np.prod(sizes)), begin + place)
            end = place + count
            self.bytes_of[name] = begin + place, count
            self.tensors[name] = (kind, sizes, values.reshape(sizes[::-1]))
        assert begin + -(-end // alignment) * alignment == len(self.data), "the end of the file"

    def _take(self, count):
        taken = self.data[self.at : self.at + count]
        assert len(taken) == count, "the file is cut short"
        self.at += count
        return taken

    def _scalar(self, form):
        return struct.unpack("<" + form, self._take(struct.calcsize("<" + form)))[0]

    def _string(self):
        return self._take(self._scalar("Q")).decode()

    def _value(self, kind):
        if kind == _STRING:
            return self._string()
        if kind == _ARRAY:
            kind, count = self._scalar("I"), self._scalar("Q")
            return [self._value(kind) for _ in range(count)]
        return self._scalar(_SCALARS[kind])

    def _values(self, kind, count, at):
        """The values as float32, and their bytes."""
        if kind == 0:
            return np.frombuffer(self.data, "<f4", count, at), 4 * count
        if kind == 1:
            return np.frombuffer(self.data, "<f2", count, at).astype(np.float32), 2 * count
        if kind == 30:
            bits = np.frombuffer(self.data, "<u2", count, at).astype(np.uint32) << 16
            return bits.view(np.float32), 2 * count
        assert kind in (2, 8) and count % 32 == 0, f"type {kind}"
        if kind == 2:
            blocks = np.frombuffer(self.data, [("scale", "<f2"), ("q", "u1", 16)], count // 32, at)
            codes = np.concatenate([blocks["q"] & 15, blocks["q"] >> 4], axis=1).astype(np.float32)
            values = blocks["scale"].astype(np.float32)[:, None] * (codes - 8)
            return values.reshape(-1), 18 * (count // 32)
        blocks = np.frombuffer(self.data, [("scale", "<f2"), ("q", "i1", 32)], count // 32, at)
        values = blocks["scale"].astype(np.float32)[:, None] * blocks["q"].astype(np.float32)
        return values.reshape(-1), 34 * (count // 32)
