"""Reads the code of the CPU kernels: inner loops of products keep their sums in registers.

  inner_loops.py OBJECT ...

An inner loop is the code from the target of a backward jump to that jump with no other such loop in
it. Fails if one that multiplies and adds, in one of the functions below, stores a vector to the
stack, or if a function's loop is not found. Skipped for code without fused multiply-adds.
"""

import re
import shutil
import subprocess
import sys
from pathlib import Path

# Products that are bound by arithmetic; those of one or two rows wait for memory, and f16 is for
# GPUs.
FUNCTIONS = (r"register_tile<", r"\bstrip<", r"dot_tile<(?!axonn::f16)[^,]+, [234], [24]>")
INSTRUCTION = re.compile(r"^ +([0-9a-f]+):\t(\S+) *(.*)$")
STACK_STORE = re.compile(r"^%[xyz]mm\d+,-?(0x)?[0-9a-f]*\(%r[sb]p")


def functions_of(path):
    """Name and instructions (address, operation, operands) of each function of an object."""
    text = subprocess.run(["objdump", "-d", "--no-show-raw-insn", "-C", path],
                          capture_output=True, text=True, check=True).stdout  # fmt: skip
    name, code = "", []
    for line in text.splitlines():
        if line.endswith(">:"):
            if code:
                yield name, code
            name, code = line[line.index("<") + 1 : -2], []
        elif found := INSTRUCTION.match(line):
            code.append((int(found[1], 16), found[2], found[3]))
    if code:
        yield name, code


def inner_loops(code):
    """The instructions of each innermost loop."""
    at = {address: i for i, (address, _, _) in enumerate(code)}
    loops = []
    for i, (_, operation, operands) in enumerate(code):
        target = re.match(r"([0-9a-f]+) ", operands)
        if operation.startswith("j") and target and at.get(int(target[1], 16), i) < i:
            loops.append((at[int(target[1], 16)], i))
    for begin, end in loops:
        if not any(begin <= b and e <= end and (b, e) != (begin, end) for b, e in loops):
            yield code[begin : end + 1]


def main():
    if not shutil.which("objdump"):
        sys.exit(77)
    checked, spilled = set(), []
    for path in sys.argv[1:]:
        for name, code in functions_of(path):
            kind = next((f for f in FUNCTIONS if re.search(f, name)), None)
            if not kind:
                continue
            for loop in inner_loops(code):
                if sum(operation.startswith(("vfmadd", "vdpbf16")) for _, operation, _ in loop) < 4:
                    continue
                checked.add(kind)
                stores = sum(bool(STACK_STORE.match(operands)) for _, _, operands in loop)
                if stores:
                    spilled.append(f"{Path(path).name}: {name[:150]}: {stores} of {len(loop)}")
    if not checked:
        print("no loop with fused multiply-adds")
        sys.exit(77)
    print(*spilled, sep="\n")
    print(f"checked loops of {', '.join(sorted(checked))}: {len(spilled)} store vectors to the stack")
    sys.exit(bool(spilled) or checked != set(FUNCTIONS))


if __name__ == "__main__":
    main()
