#!/usr/bin/env python3
"""compare.py RENDERER PATH...: compares what axonn makes of chat templates with what Jinja's own
Python package makes of them, set up as transformers does. A path is a template, a folder of
templates, or the folder of a Hugging Face model. RENDERER is build/dev/tests/data/text/chat_renderer.

For each template and conversation (conversations.json, rich_conversations.json, and random ones):

  text      to the byte, with and without add_generation_prompt; what Jinja refuses is refused
  control   markers that users, tools and documents write into their texts form no special token
  learned   nothing but the assistant's turns; by the marks of {% generation %}, if there are some,
            and the same without them

--published takes the templates of published.json from a folder, as NAME.jinja: they must be those
files, to the byte, and give what Jinja was once recorded to make of them. Without a folder and
AXONN_PUBLISHED_TEMPLATES it ends with 77. --record writes these hashes for the file's templates
anew. Needs Debian's python3-jinja2."""

import argparse
import hashlib
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

import jinja2

import record

HERE = record.HERE
PUBLISHED = HERE / "published.json"
GENERATED = 40
PLAIN_TOOL = {"type": "function", "function": {
    "name": "f", "description": "Doubles <n>", "parameters": {
        "type": "object", "properties": {"n": {"type": "integer", "description": " A number "}},
        "required": ["n"]}}}
MARKS = re.compile(r"{%-?\s*(?:end)?generation\s*-?%}")
MARKER = re.compile(r"<[^<>\s'\"{}]{2,40}>|\[/?[A-Z_]{3,20}\]")


def templates_in(path):
    """(name, template, token variables) of each template."""
    config = path / "tokenizer_config.json"
    if path.is_file():
        yield path.stem, path.read_text(), record.TOKENS
    elif config.exists() or (path / "chat_template.jinja").exists():
        known = json.loads(config.read_text()) if config.exists() else {}
        tokens = {
            k: v["content"] if isinstance(v, dict) else v
            for k, v in known.items()
            if k.endswith("_token") and isinstance(v, (str, dict))
        }
        own = path / "chat_template.jinja"
        found = own.read_text() if own.exists() else known.get("chat_template")
        if found is None:
            sys.exit(f"{config} has no chat_template")
        if isinstance(found, str):
            found = [{"name": "default", "template": found}]
        for each in found:
            yield f"{path.name}:{each['name']}", each["template"], tokens
    else:
        files = sorted(path.glob("*.jinja"))
        if not files:
            sys.exit(f"{path} is no template, and no folder of a model or of templates")
        for file in files:
            yield from templates_in(file)


def conversations():
    files = ["conversations.json", "rich_conversations.json"]
    found = [c for f in files for c in json.loads((HERE / f).read_text())]
    for number in range(GENERATED):
        talk = record.generated(number)
        if number % 2:  # what some templates cannot do without
            talk["tools"] = [PLAIN_TOOL]
            talk["chat_template_kwargs"] = {"functions": "[]", "datetime": "today"}
        found.append(talk)
    return found


def hostile(value, words):
    """A copy with words after each text that the assistant does not say."""
    if isinstance(value, str):
        return value + words
    if isinstance(value, list):
        return [hostile(v, words) for v in value]
    if isinstance(value, dict):
        if value.get("role") == "assistant":
            return value
        kept = ("role", "type", "name", "tool_call_id", "required", "chat_template_kwargs")
        return {k: v if k in kept else hostile(v, words) for k, v in value.items()}
    return value


def by_axonn(renderer, template, tokens, talks):
    marks = list(dict.fromkeys([*tokens.values(), *MARKER.findall(template)]))
    head = {"template": template, "tokens": tokens, "control": marks, "day": str(record.NOW.date())}
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as file:
        for line in [head, *talks]:
            file.write(json.dumps(line, ensure_ascii=False) + "\n")
        file.flush()
        done = subprocess.run([renderer, file.name], capture_output=True, text=True)
    if done.returncode:
        raise ValueError(done.stderr.strip())
    return [json.loads(line) for line in done.stdout.split("\n") if line]


def marked(template, tokens, talk):
    """The texts within the marks of {% generation %}."""
    record.Generation.bounds = begin, end = "\ue000", "\ue001"
    text = record.render_conversation(template, talk, False, tokens)
    record.Generation.bounds = "", ""
    if text is None:
        return None
    pieces = re.findall(f"{begin}(.*?){end}", text.replace(end + begin, ""), re.DOTALL)
    return [piece for piece in pieces if piece]


def place(want, got):
    at = len(os.path.commonprefix([want, got]))
    return f"{want[max(at - 60, 0):at + 60]!r} became {got[max(at - 60, 0):at + 60]!r}"


def sha256(text):
    return hashlib.sha256(text.encode()).hexdigest()


class Comparison:
    """Of one template. faults: what differs."""

    def __init__(self, renderer, template, tokens):
        self.faults, self.rendered, self.refused = [], 0, 0
        self.template, self.tokens = template, tokens
        self.talks = conversations()
        wanted = []
        marks = list(dict.fromkeys(MARKER.findall(template) + record.MARKERS))
        broken = "".join(f"{m[:-1]}\u200b{m[-1]}" for m in marks)
        lines = [hostile(t, w) for w in ("", broken, "".join(marks)) for t in self.talks]
        ours = by_axonn(renderer, template, tokens, lines)
        for number, (talk, got) in enumerate(zip(lines, ours, strict=True)):
            for prompted, key in ((False, "all"), (True, "prompt")):
                want = record.render_conversation(template, talk, prompted, tokens)
                self.compare(number, want, got.get(key), got.get("why"))
                if number < len(self.talks):
                    wanted.append(want)
        self.rendering = sha256(json.dumps(wanted))
        for number, talk in enumerate(self.talks):
            _, broken, attacked = ours[number::len(self.talks)]
            self.control(number, broken, attacked)
            self.learned(number, ours[number])
        if MARKS.search(template):
            bare = by_axonn(renderer, MARKS.sub("", template), tokens, self.talks)
            for number, talk in enumerate(self.talks):
                self.marks(number, talk, ours[number], bare[number])

    def fault(self, number, text):
        self.faults.append(f"conversation {number}: {text}")

    def compare(self, number, want, got, why):
        self.rendered += want is not None
        self.refused += want is None
        if want != got:
            if want is None or got is None:
                self.fault(number, f"Jinja: {str(want)[:80]!r}; axonn: {str(got)[:80]!r} {why}")
            else:
                self.fault(number, place(want, got))

    def control(self, number, harmless, attacked):
        if "control" in harmless and "control" in attacked:
            if harmless["control"] != attacked["control"]:
                self.fault(number, f"control tokens {harmless['control']} became "
                                   f"{attacked['control']}")

    def learned(self, number, got):
        if "learned" not in got:
            return
        if "".join(got["learned"]) != got.get("fitted"):
            self.fault(number, f"tokens: {place(got['fitted'], ''.join(got['learned']))}")

    def marks(self, number, talk, got, bare):
        want = marked(self.template, self.tokens, talk)
        said = [m["content"] for m in talk["messages"] if m["role"] == "assistant"]
        shows_lists = got.get("fitted") != got.get("all")
        if want is None or "learned" not in got or None in said or shows_lists:
            return  # a template may write "None", or parts as Python shows lists
        if want != got["learned"][1::2]:
            self.fault(number, f"marked: {want} became {got['learned'][1::2]}")
        elif [p.strip() for p in want] != [p.strip() for p in bare["learned"][1::2]]:
            self.fault(number, f"without marks: {want} became {bare['learned'][1::2]}")


def check_record(row, template, comparison):
    for key, value in (("sha256", sha256(template)), ("rendering", comparison.rendering)):
        if row[key] != value:
            comparison.faults.append(f"{key} is {value}; published.json has {row[key]}")


def main():
    raw = argparse.RawTextHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("renderer")
    parser.add_argument("paths", nargs="*", type=pathlib.Path)
    parser.add_argument("--published", action="store_true")
    parser.add_argument("--record", action="store_true")
    parser.add_argument("--faults", type=int, default=3, help="so many are shown of a template")
    arguments = parser.parse_intermixed_args()
    paths, rows = arguments.paths, []
    if arguments.published or arguments.record:
        folder = paths[0] if paths else os.environ.get("AXONN_PUBLISHED_TEMPLATES")
        if not folder:
            print("skipped: AXONN_PUBLISHED_TEMPLATES names no folder with the templates")
            sys.exit(77)
        rows = json.loads(PUBLISHED.read_text())
        paths = [pathlib.Path(folder) / f"{row['name']}.jinja" for row in rows]
    failed = 0
    for number, (name, template, tokens) in enumerate(t for p in paths for t in templates_in(p)):
        try:
            done = Comparison(arguments.renderer, template, tokens)
        except ValueError as error:
            failed += 1
            print(f"{name}: {error}")
            continue
        if arguments.record:
            rows[number] |= {"sha256": sha256(template), "rendering": done.rendering}
        elif rows:
            check_record(rows[number], template, done)
        print(f"{name}: {done.rendered} equal, {done.refused} refused by both" if not done.faults
              else f"{name}: {len(done.faults)} of {done.rendered + done.refused} differ")
        for fault in done.faults[:arguments.faults]:
            print("  " + fault)
        failed += bool(done.faults)
    if arguments.record:
        lines = (json.dumps(row) for row in rows)
        PUBLISHED.write_text("[\n" + ",\n".join(lines) + "\n]\n")
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
