"""Reads TensorBoard's event files by their published formats: the records of TensorFlow's
record_writer.cc, and the messages of event.proto, summary.proto and tensor.proto."""
import struct


def _crc_table():
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
        table.append(byte)
    return table


_TABLE = _crc_table()


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _TABLE[(crc ^ byte) & 0xFF] ^ crc >> 8
    return crc ^ 0xFFFFFFFF


def masked(crc):
    return ((crc >> 15 | crc << 17 & 0xFFFFFFFF) + 0xA282EAD8) & 0xFFFFFFFF


def records(path):
    """The data of all records; ValueError if one is damaged or cut short."""
    with open(path, "rb") as file:
        data = file.read()
    at = 0
    while at < len(data):
        length, check = struct.unpack_from("<QI", data, at)
        body = data[at + 12 : at + 12 + length]
        if check != masked(crc32c(data[at : at + 8])):
            raise ValueError(f"{path}: CRC of the length at {at}")
        if len(body) < length or data[at + 12 + length : at + 16 + length] != struct.pack(
            "<I", masked(crc32c(body))):
            raise ValueError(f"{path}: CRC of the data at {at}")
        yield body
        at += 16 + length


def _varint(data, at):
    value = shift = 0
    while True:
        value |= (data[at] & 0x7F) << shift
        at, more = at + 1, data[at] & 0x80
        shift += 7
        if not more:
            return value, at


def fields(message):
    """(number, value) of each field: int, bytes, or the raw 4 or 8 bytes of a fixed number."""
    at = 0
    while at < len(message):
        head, at = _varint(message, at)
        number, kind = head >> 3, head & 7
        if kind == 0:
            value, at = _varint(message, at)
        else:
            size = {1: 8, 5: 4}.get(kind)
            if size is None:
                assert kind == 2, f"wire type {kind}"
                size, at = _varint(message, at)
            value, at = message[at : at + size], at + size
            assert len(value) == size, "a field is cut short"
        yield number, value


def _one(message, number, default=b""):
    found = [value for n, value in fields(message) if n == number]
    return found[-1] if found else default


def events(path):
    """Each event as {"time", "step", "values": {tag: number or text}}, and what else it has."""
    for record in records(path):
        event = {
            "time": struct.unpack("<d", _one(record, 1))[0],
            "step": _one(record, 2, 0),
            "values": {},
        }
        if version := _one(record, 3):
            event["version"] = version.decode()
        if log := _one(record, 7):
            event["starts"] = _one(log, 1) == 1
        for number, value in fields(_one(record, 5)):
            assert number == 1, "a summary has values alone"
            tag = _one(value, 1).decode()
            if tensor := _one(value, 8):
                assert _one(tensor, 1) == 7 and _one(_one(tensor, 2), 2) == b"\x08\x01", "a string"
                assert _one(_one(_one(value, 9), 1), 1) == b"text", "the plugin"
                event["values"][tag] = _one(tensor, 8).decode()
            else:
                event["values"][tag] = struct.unpack("<f", _one(value, 2))[0]
        yield event
