#!/usr/bin/env python3
"""Writes axonn/data/text/unicode/*_table.cpp: what tokenizers must know of Unicode's characters.

The tables are those of the tokenizers library 0.23, whatever libraries a machine has: the classes
and scripts of its patterns (Oniguruma) are of Unicode 16.0, and its composed form (NFC) is that of
Unicode 9.0, which leaves newer characters alone. Neither changes unless that library does.

usage: pip install unicodedataplus==16.0.0.post1; scripts/unicode-tables.py [--check]

With --check, nothing is written; the exit status is 1 if a table differs, and, if the Python
package tokenizers is installed, if that library disagrees with the tables on any character.
"""
import pathlib
import sys

import unicodedataplus as unicode

CLASSES, COMPOSED = "16.0", "9.0"
FOLDER = pathlib.Path(__file__).resolve().parent.parent / "axonn/data/text/unicode"
ALL = range(0x110000)
TEXT = [c for c in ALL if not 0xD800 <= c < 0xE000]
HANGUL = range(0xAC00, 0xAC00 + 11172)


def runs(value_of):
    """The first character of each run of characters with one value, and the value."""
    previous = None
    for c in ALL:
        value = value_of(chr(c))
        if value != previous:
            yield c, value
        previous = value


def composed_knows(c):
    age = unicode.age(chr(c))
    return age != "Unassigned" and float(age) <= float(COMPOSED)


def ranges(numbers):
    """[first, last] of each run in an ascending list."""
    found = []
    for n in numbers:
        if found and found[-1][1] == n - 1:
            found[-1][1] = n
        else:
            found.append([n, n])
    return found


def classes():
    return "".join(f"{c:x}={value}" for c, value in runs(unicode.category))


def scripts():
    members = {}
    for c in ALL:
        members.setdefault(unicode.script(chr(c)), []).append(c)
    members.pop("Unknown", None)
    return " ".join(
        f"{name} " + ",".join(f"{a:x}-{b:x}" if a != b else f"{a:x}" for a, b in ranges(of))
        for name, of in sorted(members.items()))


def combining():
    """first-last:class of the characters that do not start a composition."""
    found = []
    for c in TEXT:
        kind = unicode.combining(chr(c)) if composed_knows(c) else 0
        if not kind:
            continue
        if found and found[-1][1] == c - 1 and found[-1][2] == kind:
            found[-1][1] = c
        else:
            found.append([c, c, kind])
    return " ".join(f"{a:x}-{b:x}:{kind:x}" for a, b, kind in found)


def decompositions():
    """character=first+second, or first alone. A ! follows what is not composed again."""
    found = []
    for c in TEXT:
        parts = unicode.decomposition(chr(c))
        if not parts or parts.startswith("<") or not composed_knows(c):
            continue
        mark = "" if unicode.normalize("NFC", chr(c)) == chr(c) else "!"
        found.append(f"{c:x}={'+'.join(f'{int(p, 16):x}' for p in parts.split())}{mark}")
    return " ".join(found)


def compatible():
    """character=part+part: the compatible characters of special ones."""
    found = []
    for c in TEXT:
        parts = unicode.decomposition(chr(c))
        if parts.startswith("<") and composed_knows(c):
            found.append(f"{c:x}={'+'.join(f'{int(p, 16):x}' for p in parts.split()[1:])}")
    return " ".join(found)


def is_mark(c):
    """As of that version, in which three characters had another category."""
    if c in (0x1CF2, 0x1CF3, 0x111C9):
        return c != 0x111C9
    return unicode.category(chr(c))[0] == "M" and composed_knows(c)


def marks():
    return " ".join(f"{a:x}-{b:x}" for a, b in ranges(c for c in TEXT if is_mark(c)))


# Letters of Unicode 15 to 17, which Python may not know. (That library lowers those of 17.)
NEWER_SMALL = {0xA7CE: 0xA7CF, 0xA7D2: 0xA7D3, 0xA7D4: 0xA7D5,
               **{0x16EA0 + i: 0x16EBB + i for i in range(25)},
               0x1C89: 0x1C8A, 0xA7CB: 0x264, 0xA7CC: 0xA7CD, 0xA7DA: 0xA7DB, 0xA7DC: 0x19B,
               **{0x10D50 + i: 0x10D70 + i for i in range(22)}}


def lower_case():
    """character=small letters, each for itself."""
    found = []
    for c in TEXT:
        small = chr(NEWER_SMALL[c]) if c in NEWER_SMALL else chr(c).lower()
        if chr(c) == "\u03a3":
            small = "\u03c3"
        if small != chr(c):
            found.append(f"{c:x}={'+'.join(f'{ord(p):x}' for p in small)}")
    return " ".join(found)


def lines(text):
    """A string literal in lines of at most 100 columns, cut between items."""
    width, out = 94, []
    while text:
        out.append('    "' + text[:width] + '"')
        text = text[width:]
    return "\n".join(out)


def source(version, what, **strings):
    body = "\n\n".join(f"const std::string_view {name} =\n{lines(text)};"
                       for name, text in strings.items())
    return ("// Written by scripts/unicode-tables.py from the Unicode Character Database "
            f"{version}.\n// {what}\n"
            '#include "axonn/data/text/unicode/tables.h"\n\nnamespace axonn {\n\n'
            f"{body}\n\n}}  // namespace axonn\n")


def tables():
    return {
        "classes_table.cpp": source(CLASSES, "The general category of every character.",
                                    kUnicodeClasses=classes()),
        "scripts_table.cpp": source(CLASSES, "The characters of each script.",
                                    kUnicodeScripts=scripts()),
        "composition_table.cpp": source(f"{CLASSES}, as of version {COMPOSED}",
                                        "Combining classes and canonical decompositions.",
                                        kCombiningClasses=combining(),
                                        kDecompositions=decompositions()),
        "compatible_table.cpp": source(f"{CLASSES}, as of version {COMPOSED}",
                                       "Compatible characters for special ones, and marks.",
                                       kCompatible=compatible(), kMarks=marks()),
        "lower_case_table.cpp": source(CLASSES, "The small letters of other letters.",
                                       kLowerCase=lower_case()),
    }


def disagreements():
    """Characters for which the tokenizers library, if it is installed, has another class."""
    try:
        from tokenizers import Regex, normalizers
    except ImportError:
        return 0
    text, wrong = "".join(map(chr, TEXT)), 0
    for name in sorted({unicode.category(c) for c in text}):
        left = set(normalizers.Replace(Regex(r"\p{%s}" % name), "").normalize_str(text))
        wrong += sum((c not in left) != (unicode.category(c) == name) for c in text)
    composed = normalizers.NFC()
    for c in TEXT:
        kind = unicode.combining(chr(c))
        if not kind:
            continue
        # Another mark, which is put in front of this one, or behind it, if both are known.
        pair = chr(c) + "\u0334" if kind != 1 else "\u0315" + chr(c)
        want = "a" + (unicode.normalize("NFC", pair) if composed_knows(c) else pair)
        wrong += composed.normalize_str("a" + pair) != want
    special = normalizers.NFKD()
    for c in TEXT:
        want = unicode.normalize("NFKD", chr(c)) if composed_knows(c) else chr(c)
        wrong += special.normalize_str("a" + chr(c)) != "a" + want
    small = dict(entry.split("=") for entry in lower_case().split())
    lower, strip = normalizers.Lowercase(), normalizers.StripAccents()
    for c in TEXT:
        want = small.get(f"{c:x}", f"{c:x}").split("+")
        wrong += lower.normalize_str(chr(c)) != "".join(chr(int(p, 16)) for p in want)
        wrong += strip.normalize_str("a" + chr(c)) != ("a" if is_mark(c) else "a" + chr(c))
    return wrong


def main():
    assert unicode.unidata_version.startswith(CLASSES), unicode.unidata_version
    check, differ = "--check" in sys.argv, 0
    for name, text in tables().items():
        path = FOLDER / name
        if check:
            differ += not path.exists() or path.read_text() != text
        else:
            path.write_text(text)
    wrong = disagreements() if check else 0
    if check:
        print(f"{differ} tables differ; the tokenizers library disagrees {wrong} times")
    return 1 if differ or wrong else 0


if __name__ == "__main__":
    sys.exit(main())
