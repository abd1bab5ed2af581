#!/usr/bin/env python3
"""Writes the Parquet files of these tests with Apache Arrow, and NAME.jsonl with their rows, as
Arrow reads them, without what is null. Not run by any test:

  pip install pyarrow numpy && tests/data/corpus/parquet/make.py
"""
import datetime
import decimal
import json
import math
import os
import uuid

import numpy
import pyarrow
import pyarrow.parquet

os.chdir(os.path.dirname(os.path.abspath(__file__)))


def plain(value):
    """A value of Arrow as JSON has it; None for what is null or has no JSON."""
    if isinstance(value, dict):
        return {name: plain(item) for name, item in value.items() if item is not None}
    if isinstance(value, list):
        if value and isinstance(value[0], tuple):
            return {key: plain(item) for key, item in value}
        return [plain(item) for item in value]
    if isinstance(value, (datetime.datetime, datetime.time)):
        text = value.isoformat()
        return text.rstrip("0") if value.microsecond else text
    if isinstance(value, (datetime.date, uuid.UUID)):
        return str(value)
    if isinstance(value, decimal.Decimal):
        return float(value)
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return {"bytes": len(value)}
    if isinstance(value, (float, numpy.float16)):
        return None if math.isnan(value) else float(value)
    return value


def write(name, table, singles=(), **options):
    pyarrow.parquet.write_table(table, name + ".parquet", **options)
    with open(name + ".jsonl", "w") as lines:
        for row in pyarrow.parquet.read_table(name + ".parquet").to_pylist():
            for column in singles:  # the shortest digits that give the same number of 32 bits
                if row[column] is not None and not math.isnan(row[column]):
                    row[column] = float(str(numpy.float32(row[column])))
            row = {key: plain(value) for key, value in row.items()}
            row = {key: value for key, value in row.items() if value is not None}
            lines.write(json.dumps(row, ensure_ascii=False) + "\n")


def types():
    day, moment = datetime.date(1969, 12, 31), datetime.datetime(2026, 11, 26, 14, 5, 0, 250000)
    columns = {
        "text": (pyarrow.string(), ["a \"b\"\\\n\t\x01", "", "\u00e9 \u6f22 \U0001f600", None]),
        "i8": (pyarrow.int8(), [-128, 127, 0, None]),
        "i64": (pyarrow.int64(), [-(2**63), 2**63 - 1, 0, None]),
        "u32": (pyarrow.uint32(), [0, 2**32 - 1, 5, None]),
        "u64": (pyarrow.uint64(), [0, 2**64 - 1, 5, None]),
        "f16": (pyarrow.float16(), [numpy.float16(x) for x in (0.5, -65504, 2.0**-24, 3)]),
        "f32": (pyarrow.float32(), [0.1, -1e-30, float("nan"), None]),
        "f64": (pyarrow.float64(), [0.1, -1e300, float("nan"), None]),
        "flag": (pyarrow.bool_(), [True, False, True, None]),
        "bytes": (pyarrow.binary(), [b"text", b"\xff\x00", b"", None]),
        "fixed": (pyarrow.binary(3), [b"abc", b"\xff\x00\x01", b"xyz", None]),
        "small": (pyarrow.decimal128(7, 2), [decimal.Decimal(x) for x in ("-0.05", "99999.99", "0", "1.10")]),
        "large": (pyarrow.decimal128(30, 10), [decimal.Decimal(x) for x in ("-12345678901234567890.5", "0.0000000001", "0", "1")]),
        "date": (pyarrow.date32(), [day, datetime.date(2026, 11, 26), datetime.date(1, 1, 1), None]),
        "time": (pyarrow.time64("us"), [datetime.time(23, 59, 1), datetime.time(0, 0, 0, 500), datetime.time(12), None]),
        "millis": (pyarrow.timestamp("ms"), [moment, datetime.datetime(1969, 12, 31, 23, 59, 59), moment, None]),
        "micros": (pyarrow.timestamp("us"), [moment, datetime.datetime(1600, 1, 1), moment, None]),
        "nothing": (pyarrow.null(), [None] * 4),
    }
    return pyarrow.table({name: pyarrow.array(values, kind) for name, (kind, values) in columns.items()})


def conversations():
    call = pyarrow.struct([("name", pyarrow.string()), ("arguments", pyarrow.map_(pyarrow.string(), pyarrow.int64()))])
    message = pyarrow.struct([("role", pyarrow.string()), ("content", pyarrow.string()), ("tool_calls", pyarrow.list_(call))])
    schema = pyarrow.schema([("messages", pyarrow.list_(message)), ("matrix", pyarrow.list_(pyarrow.list_(pyarrow.int32())))])
    rows = []
    for n in range(11):
        messages = [{"role": "user", "content": f"What is {n} + 1?", "tool_calls": None},
                    {"role": "assistant", "content": None, "tool_calls": [{"name": "add", "arguments": [("a", n), ("b", 1)]}] * (1 + n % 2)},
                    {"role": "assistant", "content": str(n + 1), "tool_calls": [] if n % 2 else None}]
        matrix = [None, [], [[]], [[1], None, [2, None, n]]][n % 4]
        rows.append({"messages": [] if n == 5 else messages, "matrix": matrix})
    return pyarrow.Table.from_pylist(rows, schema)


def documents(count):
    # Python's own generator, so that the files can be made again.
    words = "the river of a town has many small stones and old bridges".split()
    text = [" ".join(words[(n * 7 + k * k) % len(words)] for k in range(3 + n % 20)) for n in range(count)]
    return pyarrow.table({"text": text, "id": list(range(count)), "unread": [w * 3 for w in text]})


everything = types()
write("types", everything, ["f32"], compression="snappy", write_page_checksum=True)
write("types_v2", everything, ["f32"], compression="none", data_page_version="2.0", use_dictionary=False,
      column_encoding={"text": "DELTA_BYTE_ARRAY", "bytes": "DELTA_LENGTH_BYTE_ARRAY", "i64": "DELTA_BINARY_PACKED",
                       "f64": "BYTE_STREAM_SPLIT", "u32": "DELTA_BINARY_PACKED", "flag": "RLE"})
write("int96", everything.select(["text", "millis"]), use_deprecated_int96_timestamps=True)
write("conversations", conversations(), compression="zstd", data_page_version="2.0", data_page_size=40, row_group_size=4)
write("conversations_v1", conversations(), compression="gzip", data_page_size=40)
for codec in ("gzip", "brotli", "lz4", "none"):
    write(codec, documents(40), compression=codec)
write("groups", documents(300), compression="snappy", row_group_size=50)
