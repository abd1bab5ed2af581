#!/usr/bin/env python3
"""record.py [--check]: renders the templates of this folder with Jinja's own Python package, set up
as transformers does, and writes what comes out to recorded.json; --check compares instead. The C++
tests read that file, so they need no Python. Needs Debian's python3-jinja2 (3.1 or newer)."""

import datetime
import functools
import json
import pathlib
import random
import sys

import jinja2
import jinja2.ext
import jinja2.sandbox

HERE = pathlib.Path(__file__).parent
NOW = datetime.datetime(2024, 7, 26, 12)
TOKENS = {"bos_token": "<s>", "eos_token": "</s>"}


class Generation(jinja2.ext.Extension):
    """{% generation %}: its body, as it is, between bounds."""

    tags = {"generation"}
    bounds = ("", "")

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_body"), [], [], body).set_lineno(line)

    def _body(self, caller):
        return caller().join(self.bounds)


def refuse(message):
    raise jinja2.exceptions.TemplateError(message)


def environment():
    env = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols]
    )

    def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(
            value, ensure_ascii=ensure_ascii, indent=indent, separators=separators,
            sort_keys=sort_keys,
        )

    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = refuse
    env.globals["strftime_now"] = NOW.strftime
    return env


ENV = environment()
COMPILED = functools.lru_cache(ENV.from_string)


def rendered(template, **variables):
    """The text, or None if the template refuses."""
    try:
        return COMPILED(template).render(**variables)
    except Exception:  # of any kind: the C++ side must refuse as well
        return None


# What snippets.j2 may use.
VARIABLES = {
    "yes": True,
    "no": False,
    "text": "Hello Wörld",
    "numbers": [1, 2, 3, 4],
    "dict": {"key": "value", "n": 1},
    "nested": {
        "items": "taken",
        "list": [
            {"name": "b", "n": 1, "deep": {"er": 1}},
            {"name": "a", "n": 0, "deep": {"er": None}},
        ],
    },
    "tree": [
        {"name": "a", "children": [{"name": "b", "children": []}]},
        {"name": "c", "children": []},
    ],
    "large": 123456789012345678901234567890,
    "floats": [1.0, 0.1, 1e100, 1.5e-7, 100000.0, 12345678901234567.0],
    "odd_keys": {"a b": 1, "": 2, "é": 3, "\"": 4},
    "deep": {"a": {"b": {"c": {"d": [["x"]]}}}},
    "users": [
        {"name": "Ann", "role": "admin", "tags": ["x", "y"]},
        {"name": "Bob", "role": "user", "tags": ["z"]},
    ],
}


def snippets():
    """The templates in snippets.j2, which lines with %% separate."""
    return (HERE / "snippets.j2").read_text().removesuffix("\n").split("\n%%\n")


# What users may write to imitate control tokens.
MARKERS = ["<|im_start|>", "<|im_end|>", "</s>", "<s>", "[INST]", "<|eot_id|>", "<|end|>",
           "<end_of_turn>", "<|endoftext|>"]


# Conversations by random choice: what users may write into every field.
WORDS = ["", "Hi", " a b ", "\n\nx\n", "{{ 7 * 7 }}", "{% if %}", "</s><s>", "<|im_end|>\n",
         "[INST]", "é漢😀", "it's \"q\"", "a\\nb", "<think>t</think>\n\nx", "</think>", "\u00a0x\u3000",
         "e\u0301", "0", "null", "<tool_call>", "x" * 40, "a\tb\r\nc", "\u200b", "/no_think"]
ARGUMENTS = [{}, {"city": "Köln"}, {"n": 5, "x": 1.5, "ok": True, "none": None},
             {"list": [1, "a", {"k": []}], "q": "\"<|im_end|>'"}, "{\"city\": \"Oslo\"}"]


def tool(name):
    return {
        "type": "function",
        "function": {
            "name": name,
            "description": "Says \"x\" <|im_end|>",
            "parameters": {
                "type": "object",
                "properties": {
                    "city": {"type": "string", "description": "Name of a town", "enum": ["a", "b"]},
                    "n": {"type": ["integer", "null"], "nullable": True},
                },
                "required": ["city"],
            },
        },
    }


def generated(number):
    pick = random.Random(number).choice
    messages = []
    if pick([True, False]):
        messages.append({"role": "system", "content": pick(WORDS)})
    for _ in range(pick([1, 1, 2, 3])):
        content = pick(WORDS)
        if pick([0, 0, 0, 1]):
            content = [{"type": "text", "text": content}, {"type": "text", "text": pick(WORDS)}]
        messages.append({"role": "user", "content": content})
        answer = {"role": "assistant", "content": pick(WORDS)}
        if pick([0, 0, 1]):
            answer["reasoning_content"] = pick(WORDS)
        if pick([0, 0, 1]):
            answer["content"] = pick([answer["content"], "", None])
            answer["tool_calls"] = [
                {"id": f"call{i}wxyz", "type": "function",
                 "function": {"name": pick(["f", "get_x"]), "arguments": pick(ARGUMENTS)}}
                for i in range(pick([1, 2]))
            ]
            messages.append(answer)
            for call in answer["tool_calls"]:
                messages.append({"role": "tool", "tool_call_id": call["id"],
                                 "name": call["function"]["name"], "content": pick(WORDS)})
            answer = {"role": "assistant", "content": pick(WORDS)}
        messages.append(answer)
    out = {"messages": messages}
    if pick([0, 0, 1]):
        out["tools"] = [tool("f"), tool("get_x")]
    if pick([0, 0, 0, 1]):
        out["documents"] = [{"title": pick(WORDS), "text": pick(WORDS)}]
    if pick([0, 0, 1]):
        out["chat_template_kwargs"] = {"enable_thinking": pick([True, False])}
    return out


def render_conversation(template, conversation, prompted, tokens=TOKENS):
    return rendered(
        template,
        **{
            **tokens,
            "messages": conversation["messages"],
            "tools": conversation.get("tools"),
            "documents": conversation.get("documents"),
            "add_generation_prompt": prompted,
            **conversation.get("chat_template_kwargs", {}),
        },
    )


def record(conversations_generated=12):
    conversations = json.loads((HERE / "conversations.json").read_text())
    conversations += [generated(n) for n in range(conversations_generated)]
    templates = {p.stem: p.read_text() for p in sorted(HERE.glob("*.jinja"))}
    return {
        "variables": VARIABLES,
        "snippets": [{"template": t, "text": rendered(t, **VARIABLES)} for t in snippets()],
        "conversations": conversations,
        "templates": {
            name: [
                [render_conversation(t, c, False), render_conversation(t, c, True)]
                for c in conversations
            ]
            for name, t in templates.items()
        },
    }


def main():
    file = HERE / "recorded.json"
    text = json.dumps(record(), ensure_ascii=False, indent=0) + "\n"
    if "--check" not in sys.argv[1:]:
        file.write_text(text)
    elif file.read_text() != text:
        sys.exit(f"{file} is not what Jinja {jinja2.__version__} renders; run {__file__}")


if __name__ == "__main__":
    main()
