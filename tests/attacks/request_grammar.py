"""Hostile requests from a grammar: bytes, and how they are sent."""

import gzip
import json
import random
from dataclasses import dataclass

POSTS = ("/v1/completions", "/v1/chat/completions", "/v1/embeddings", "/v1/responses",
         "/v1/messages", "/tokenize", "/detokenize", "/none")  # fmt: skip
GETS = ("/", "/health", "/v1/models", "/v1/models/x", "/tokenizer_info", "/favicon.ico",
        "/api/runs", "/api/rows?run=0", "/api/config?run=0", "/api/samples?run=0",
        "/../../etc/passwd", "/%2e%2e/%00", "/%", "/?a=%zz&&=")  # fmt: skip
JSON = "Content-Type: application/json"


@dataclass
class HostileRequest:
    data: bytes
    # whole: all at once; slow: it stays open, with a byte now and then; reset, gone: the client
    # hangs up before the end, or without reading; half: it says that it will send no more
    manner: str = "whole"


def head(first: str, *lines: str) -> bytes:
    return "\r\n".join([first + " HTTP/1.1", "Host: localhost", *lines, "", ""]).encode("latin-1")


def post(path: str, body: bytes, *lines: str) -> bytes:
    return head(f"POST {path}", JSON, f"Content-Length: {len(body)}", *lines) + body


def nested(rng: random.Random) -> str:
    depth = rng.choice((50, 200, 5_000, 100_000))
    begin, end = rng.choice((("[", "]"), ('{"a":', "}"), ('[{"a":[', "]}]")))
    return begin * depth + (end * depth if rng.random() < 0.8 else "")


def strange_form(rng: random.Random) -> str:
    """A regular expression, a schema, or choices, of which some are very large."""
    return rng.choice((
        lambda: '"' + rng.choice(("(a{1000}){1000}", "(a|b)*c", "((a*)*)*", "(" * 500)) + '"',
        lambda: '{"$ref":"#"}',
        lambda: '{"type":"array","items":{"$ref":"#"}}',
        lambda: json.dumps({"enum": [str(i) for i in range(rng.choice((1, 100, 9_000)))]}),
        lambda: json.dumps({"type": "string", "maxLength": rng.choice((0, 3, 8_192))}),
        lambda: json.dumps({"json": {"type": "object"}}),
        lambda: json.dumps([str(i) for i in range(rng.choice((1, 100, 9_000)))]),
        lambda: '{"type":"json_object"}',
    ))()  # fmt: skip


def strange_value(rng: random.Random) -> str:
    """The text of a JSON value, or of what looks like one."""
    return rng.choice((
        lambda: nested(rng),
        lambda: str(rng.choice((-1, 0, 2**31, 2**53, 2**63, 2**64, 10**40, 256, 1e-320))),
        lambda: rng.choice(("1e400", "NaN", "-0.0", "1.0", "null", "true", "{}", "[]", '""', "")),
        lambda: json.dumps("x" * rng.choice((10, 1_000, 100_000))),
        lambda: rng.choice(('"\\ud800"', '"\xff\xfe"', '"\x00"', '"\\u0000"', '"\\x"', '"')),
        lambda: "[" + ",".join(["{}"] * rng.choice((10, 10_000, 600_000))) + "]",
        lambda: "[" + ",".join(["1"] * rng.choice((10, 100_000))) + "]",
        lambda: "[" + ",".join(['"a"'] * rng.choice((1, 300, 100_000))) + "]",
        lambda: strange_form(rng),
        lambda: '[{"role":"user","content":' + strange_value(rng) + "}]",
        lambda: '[{"type":"text","text":' + strange_value(rng) + "}]",
        lambda: '[{"type":"function_call","name":"f","arguments":' + strange_value(rng) + "}]",
        lambda: '[{"type":"tool_result","tool_use_id":"a","content":' + strange_value(rng) + "}]",
        lambda: '{"format":' + strange_value(rng) + "}",
    ))()  # fmt: skip


KEYS = ("prompt", "messages", "max_tokens", "max_completion_tokens", "temperature", "top_p",
        "top_k", "n", "stream", "stream_options", "logprobs", "top_logprobs", "echo", "stop",
        "seed", "stop_token_ids", "ignore_eos", "tools", "tool_choice", "documents",
        "chat_template_kwargs", "response_format", "logit_bias", "tokens", "add_special_tokens",
        "repetition_penalty", "model", "unknown", "guided_json", "guided_regex", "guided_choice",
        "guided_grammar", "grammar", "structured_outputs", "min_tokens", "min_p", "presence_penalty", "reasoning_effort",
        "input", "encoding_format", "pooling", "instructions", "max_output_tokens", "text", "reasoning",
        "include", "system", "stop_sequences")  # fmt: skip


def body_of(rng: random.Random) -> bytes:
    """A JSON object with some strange members; some bodies are no JSON."""
    kind = rng.random()
    if kind < 0.05:
        return rng.randbytes(rng.choice((0, 3, 5_000)))
    if kind < 0.1:
        return strange_value(rng).encode("latin-1")
    if kind < 0.15:
        return json.dumps({"input": rng.choice(("a", ["a" * 90] * 256, [[1, 2]] * 300))}).encode()
    if kind < 0.25:  # what may be asked for, multiplied
        wanted = {"prompt": rng.choice(("a", ["a"] * 256, [[1, 2]] * 300)),
                  "n": rng.choice((1, 16, 256)), "best_of": rng.choice((1, 16, 256)),
                  "logprobs": rng.choice((0, 20, 100)),
                  "max_tokens": rng.choice((0, 1, 4096)), "echo": rng.random() < 0.5,
                  "stream": rng.random() < 0.5, "ignore_eos": True}  # fmt: skip
        if rng.random() < 0.3:
            wanted |= {"use_beam_search": True, "length_penalty": rng.choice((-10, 0, 1, 10)),
                       "early_stopping": rng.choice((False, True, "never"))}  # fmt: skip
        return json.dumps(wanted).encode()
    asked = rng.choice((("prompt", '"a"'), ("messages", '[{"role":"user","content":"Hi"}]')))
    members = {asked[0]: asked[1], "max_tokens": "2"}
    if rng.random() < 0.2:
        members = {"input": '"a"'}
    for key in rng.sample(KEYS, rng.randint(1, 3)):
        members[key] = strange_value(rng)
    text = ",".join(f'"{key}":{value}' for key, value in members.items())
    return ("{" + text + "}").encode("latin-1")


def chunks(rng: random.Random, body: bytes) -> bytes:
    if rng.random() < 0.2:  # sizes that lie
        size = rng.choice((b"-1", b"ffffffffffffffff", b"fffffffffffffffff", b"0x5", b"", b"z"))
        return size + b"\r\n" + body[:1000]
    out, step = b"", rng.choice((1, 7, 1_000, 65_536))
    for at in range(0, min(len(body), step * 2_000), step):
        part = body[at : at + step]
        extension = b";" + b"x" * rng.choice((0, 0, 0, 9_000))
        out += b"%x%s\r\n%s\r\n" % (len(part), extension, part)
    trailer = b"a: b\r\n" * rng.choice((0, 0, 5, 5_000))
    return out + b"0\r\n" + trailer + b"\r\n"


LENGTHS = (-1, 2**63, 2**64, 10**30)
METHODS = ("PUT", "DELETE", "OPTIONS", "TRACE", "CONNECT", "G" * 99)


def framed(rng: random.Random) -> bytes:
    """A body whose length is told in several ways, or wrongly."""
    body, path = body_of(rng), rng.choice(POSTS)
    chunked = "Transfer-Encoding: chunked"
    return rng.choice((
        lambda: head(f"POST {path}", JSON, chunked) + chunks(rng, body),
        lambda: head(f"POST {path}", JSON, chunked, f"Content-Length: {len(body)}") + body,
        lambda: head(f"POST {path}", JSON, "Transfer-Encoding: gzip, chunked") + body,
        lambda: head(f"POST {path}", JSON, f"Content-Length: {rng.choice(LENGTHS)}") + body,
        lambda: head(f"POST {path}", JSON, "Content-Length: 5", "Content-Length: 6") + body,
        lambda: post(path, gzip.compress(b" " * 1_000_000), "Content-Encoding: gzip"),
        lambda: post(path, b" " * 9_000_000),
        lambda: head(f"POST {path}", JSON, chunked) + b"10000\r\n" + b" " * 9_000_000,
        lambda: post(path, body, "Expect: 100-continue"),
    ))()  # fmt: skip


def hostile_head(rng: random.Random) -> bytes:
    path = rng.choice(GETS)
    many = rng.choice((50, 5_000, 200_000))
    return rng.choice((
        lambda: head(f"GET {path}", *[f"X-{i}: b" for i in range(many)]),
        lambda: head(f"GET {path}", "X: " + "b" * many),
        lambda: head("GET /" + "a" * many),
        lambda: head("GET /?" + "a=b&" * many),
        lambda: head(f"GET {path}", "Range: bytes=0-" + ",0-" * rng.choice((1, 1_000, many))),
        lambda: head(f"GET {path}", "Accept-Encoding: " + "gzip, " * 500, "Cookie: a=b; " * 500),
        lambda: head(f"GET {path}", "Host: attacker.example"),
        lambda: head(f"{rng.choice(METHODS)} {path}"),
        lambda: head(f"OPTIONS {path}", "Origin: " + rng.choice(("null", "http://a", "b" * many))),
        lambda: head(f"GET {path}", "no colon", " folded: line", "bad\x00name: x"),
        lambda: b"GET " + path.encode() + b" HTTP/1.1\nHost: localhost\n\n",
        lambda: b"GET " + path.encode() + b" HTTP/9.9\r\n\r\n",
        lambda: b"\x16\x03\x01\x02\x00\x01\x00" + rng.randbytes(300),
        lambda: rng.randbytes(rng.choice((1, 100, 100_000))),
        lambda: b"\r\n" * many,
        lambda: head(f"GET {path}") * rng.choice((2, 50)),
    ))()  # fmt: skip


def certain_requests() -> list[HostileRequest]:
    """One of each kind that takes much where it is not bounded."""
    deep = b"[" * 100_000 + b"]" * 100_000
    product = b'{"prompt":"a","n":256,"logprobs":100,"max_tokens":4096,"ignore_eos":true}'
    spaces = b"100000\r\n" + b" " * 2**20 + b"\r\n"
    chunked = head("POST /v1/completions", JSON, "Transfer-Encoding: chunked")
    zipped = gzip.compress(b" " * 50_000_000)
    bodies = (b'{"prompt":"a","stop":%s}', b'{"prompt":[1,%s]}', b'{"prompt":"a","unknown":%s}',
              b'{"prompt":"a","stop_token_ids":%s}')  # fmt: skip
    return [HostileRequest(data) for data in (
        *[post("/v1/completions", body % deep) for body in bodies],
        post("/detokenize", b'{"tokens":%s}' % deep),
        post("/v1/completions", product),
        post("/v1/completions", zipped, "Content-Encoding: gzip"),
        chunked + spaces * 30,
        head("GET /", *["X-a: b"] * 2_000_000),
        head("GET /", "Range: bytes=0-" + ",0-" * 2_000, "Connection: close"),
    )]  # fmt: skip


def hostile_request(rng: random.Random) -> HostileRequest:
    data = rng.choice((
        lambda: hostile_head(rng),
        lambda: framed(rng),
        lambda: post(rng.choice(POSTS), body_of(rng)),
        lambda: post(rng.choice(POSTS), body_of(rng)),
    ))()  # fmt: skip
    manner = rng.choices(("whole", "slow", "reset", "gone", "half"), (60, 10, 10, 10, 10))[0]
    if manner in ("slow", "reset"):
        data = data[: rng.randint(1, len(data))]
    return HostileRequest(data, manner)
