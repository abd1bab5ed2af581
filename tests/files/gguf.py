"""Reads GGUF files by the published format (ggml-org/ggml, docs/gguf.md) with numpy, and joins
them."""
import struct

import numpy as np

_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q",
            12: "d"}
_STRING, _ARRAY = 8, 9
_NON_LINEAR = np.array([-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113],
                       np.float32)


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
        self.infos_at = self.at
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
        if kind in (10, 11, 12, 13, 14, 23):
            return self._large_blocks(kind, count // 256, at)
        if kind == 39:
            return self._micro_scaled(count // 32, at)
        assert kind in (2, 3, 6, 7, 8, 20) and count % 32 == 0, f"type {kind}"
        if kind != 8:
            return self._half_bytes(kind, count // 32, at)
        blocks = np.frombuffer(self.data, [("scale", "<f2"), ("q", "i1", 32)], count // 32, at)
        values = blocks["scale"].astype(np.float32)[:, None] * blocks["q"].astype(np.float32)
        return values.reshape(-1), 34 * (count // 32)

    def _half_bytes(self, kind, count, at):
        """Values of Q4_0, Q4_1, Q5_0, Q5_1 and IQ4_NL: blocks of 32, of which Q4_1 and Q5_1 have a
        least value."""
        five, above = kind in (6, 7), kind in (3, 7)
        form = np.dtype([("scale", "<f2")] + [("least", "<f2")] * above +
                        [("fifth", "u1", 4)] * five + [("q", "u1", 16)])
        blocks = np.frombuffer(self.data, form, count, at)
        codes = np.concatenate([blocks["q"] & 15, blocks["q"] >> 4], axis=1)
        if five:
            codes = codes | np.unpackbits(blocks["fifth"], axis=1, bitorder="little") << 4
        scale = blocks["scale"].astype(np.float32)[:, None]
        if kind == 20:
            return (scale * _NON_LINEAR[codes]).reshape(-1), form.itemsize * count
        codes = codes.astype(np.float32)
        if above:
            values = scale * codes + blocks["least"].astype(np.float32)[:, None]
        else:
            values = scale * (codes - (16 if five else 8))
        return values.reshape(-1), form.itemsize * count

    def _micro_scaled(self, count, at):
        """Values of MXFP4: a power of two, and codes of a sign and the doubled sizes."""
        blocks = np.frombuffer(self.data, [("power", "u1"), ("q", "u1", 16)], count, at)
        codes = np.concatenate([blocks["q"] & 15, blocks["q"] >> 4], axis=1)
        sizes = np.array([0, 1, 2, 3, 4, 6, 8, 12], np.float32)
        values = np.where(codes < 8, sizes[codes & 7], -sizes[codes & 7])
        return np.ldexp(values, blocks["power"].astype(np.int32)[:, None] - 128).reshape(
            -1), 17 * count

    def _large_blocks(self, kind, count, at):
        """Values of Q2_K to Q6_K and IQ4_XS: blocks of 256 with scales of their parts."""
        others = {10: self._two_bits, 11: self._three_bits, 23: self._six_bits_of_table}
        if kind in others:
            return others[kind](count, at)
        if kind in (12, 13):
            form = [("scales", "<f2", 2), ("six", "u1", 12), ("fifth", "u1", 32 * (kind - 12)),
                    ("q", "u1", (4, 32))]
            blocks = np.frombuffer(self.data, form, count, at)
            six = blocks["six"].astype(np.int32)
            low = [six[:, :4] & 63, (six[:, 8:] & 15) | six[:, :4] >> 6 << 4]
            high = [six[:, 4:8] & 63, six[:, 8:] >> 4 | six[:, 4:8] >> 6 << 4]
            scale, least = (np.concatenate(each, axis=1).astype(np.float32) * blocks["scales"][
                :, i:i + 1].astype(np.float32) for i, each in enumerate([low, high]))
            codes = np.stack([blocks["q"] & 15, blocks["q"] >> 4], axis=2).reshape(count, 8, 32)
            if kind == 13:
                codes = codes | (blocks["fifth"][:, None, :] >> np.arange(8, dtype=np.uint8)[
                    :, None] & 1) << 4
            values = codes.astype(np.float32) * scale[:, :, None] - least[:, :, None]
            return values.reshape(-1), (144 + 32 * (kind - 12)) * count
        form = [("low", "u1", (2, 64)), ("high", "u1", (2, 32)), ("parts", "i1", 16),
                ("scale", "<f2")]
        blocks = np.frombuffer(self.data, form, count, at)
        low = np.concatenate([blocks["low"] & 15, blocks["low"] >> 4], axis=2)
        high = np.concatenate([blocks["high"] >> shift & 3 for shift in (0, 2, 4, 6)], axis=2)
        codes = (low | high << 4).reshape(count, 16, 16).astype(np.float32) - 32
        scale = blocks["scale"].astype(np.float32)[:, None] * blocks["parts"].astype(np.float32)
        return (scale[:, :, None] * codes).reshape(-1), 210 * count

    def _two_bits(self, count, at):
        form = [("both", "u1", 16), ("two", "u1", (2, 32)), ("scales", "<f2", 2)]
        blocks = np.frombuffer(self.data, form, count, at)
        factors = blocks["scales"].astype(np.float32)
        scale = factors[:, :1] * (blocks["both"] & 15).astype(np.float32)
        least = factors[:, 1:] * (blocks["both"] >> 4).astype(np.float32)
        codes = np.stack([blocks["two"] >> shift & 3 for shift in (0, 2, 4, 6)], axis=2)
        codes = codes.reshape(count, 16, 16).astype(np.float32)
        return (scale[:, :, None] * codes - least[:, :, None]).reshape(-1), 84 * count

    def _six_bits_of_table(self, count, at):
        form = [("scale", "<f2"), ("high", "<u2"), ("low", "u1", 4), ("q", "u1", (8, 16))]
        blocks = np.frombuffer(self.data, form, count, at)
        low = np.stack([blocks["low"] & 15, blocks["low"] >> 4], axis=2).reshape(count, 8)
        high = blocks["high"][:, None] >> np.arange(0, 16, 2, dtype=np.uint16) & 3
        scale = blocks["scale"].astype(np.float32)[:, None] * (
            (low | high << 4).astype(np.float32) - 32)
        codes = np.concatenate([blocks["q"] & 15, blocks["q"] >> 4], axis=2)
        return (scale[:, :, None] * _NON_LINEAR[codes]).reshape(-1), 136 * count

    def _three_bits(self, count, at):
        form = [("third", "u1", 32), ("two", "u1", (2, 32)), ("low", "u1", 8), ("high", "u1", 4),
                ("scale", "<f2")]
        blocks = np.frombuffer(self.data, form, count, at)
        scales = np.concatenate([blocks["low"] & 15, blocks["low"] >> 4], axis=1) | np.concatenate(
            [blocks["high"] >> shift & 3 for shift in (0, 2, 4, 6)], axis=1) << 4
        two = np.stack([blocks["two"] >> shift & 3 for shift in (0, 2, 4, 6)], axis=2)
        third = np.stack([blocks["third"] >> shift & 1 for shift in range(8)], axis=1)
        codes = two.reshape(count, 256) | third.reshape(count, 256) << 2
        scale = blocks["scale"].astype(np.float32)[:, None] * (scales.astype(np.float32) - 32)
        values = scale[:, :, None] * (codes.reshape(count, 16, 16).astype(np.float32) - 4)
        return values.reshape(-1), 110 * count


def join(path, files, file_of):
    """Writes a file whose tensor NAME is that of files[file_of(name)], all of the same model."""
    readers = {kind: Reader(file) for kind, file in files.items()}

    def tensor(name):
        reader = readers[file_of(name)]
        begin, count = reader.bytes_of[name]
        return reader.tensors[name][0], reader.data[begin:begin + count]

    _write(path, next(iter(readers.values())), tensor)


def with_matrices(path, file, kind, blocks_of):
    """Writes a file with other matrices: blocks of a kind, by its number, that blocks_of(values)
    gives for so many values."""
    reader = Reader(file)

    def tensor(name):
        own, sizes, values = reader.tensors[name]
        begin, count = reader.bytes_of[name]
        if len(sizes) > 1:
            return kind, blocks_of(values.size)
        return own, reader.data[begin:begin + count]

    _write(path, reader, tensor)


def _write(path, first, tensor):
    """Writes the keys and the names of a file; tensor(name) gives a tensor's type and bytes."""
    header, data = bytearray(first.data[:first.infos_at]), bytearray()
    for name, (_, sizes, _) in first.tensors.items():
        kind, values = tensor(name)
        header += struct.pack("<Q", len(name)) + name.encode()
        header += struct.pack(f"<I{len(sizes)}Q", len(sizes), *sizes)
        header += struct.pack("<IQ", kind, len(data))
        data += values
        data += bytes(-len(data) % 32)
    with open(path, "wb") as file:
        file.write(header + bytes(-len(header) % 32) + data)
