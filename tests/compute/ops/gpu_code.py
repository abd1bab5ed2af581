"""Reads the compiled code of kernels for sm_90a, which needs neither a GPU nor NVIDIA's tools.

    gpu_code.py FILE ...            prints a table of the kernels in object files or cubins
    gpu_code.py --loops FILE ...    prints the instructions of their loops, by kind
    gpu_code.py --check FILE ...    fails if a kernel breaks one of the rules below; status 77 if the
                                    code is compressed (compile with nvcc -no-compress)

An instruction has 16 bytes. Bits 0 to 11 are the operation, bits 73 to 75 the width of an access,
bits 110 to 112 the scoreboard that a load sets when its result is there, and bits 116 to 121 the
scoreboards that the instruction waits for. Bits 34 to 81 of a branch are its distance in units of 4
bytes, on Hopper with 8 more bits below, in bits 16 to 23. All this was found by compiling kernels of
known content.
"""
import re
import struct
import subprocess
import sys
from collections import Counter, namedtuple

LOAD_GLOBAL, STORE_GLOBAL, COPY_ASYNC = 0x981, 0x986, 0xFAE
LOAD_LOCAL, STORE_LOCAL = 0x983, 0x387
LOAD_SHARED, LOAD_MATRIX, MULTIPLY = 0x984, 0x83B, 0x23C
BRANCH, NOP = 0x947, 0x918
# The lowest 9 bits of operations, whatever their operands are.
KINDS = {
    0x03C: "products",
    0x03B: "matrices",
    0x184: "LDS",
    0x181: "LDG",
    0x1AE: "LDGSTS",
    0x11D: "barriers",
    0x189: "shuffles",
    0x108: "MUFU",
    0x023: "FFMA",
    0x020: "FMUL",
    0x021: "FADD",
    0x009: "FMNMX",
    0x008: "FSEL",
    0x00C: "ISETP",
    0x03E: "F2F",
}
WIDE = 6  # 16 bytes
REGISTERS, FRAME = 0x2F, 0x11  # attributes in the section .nv.info
MACHINE_CUDA = 190
SKIPPED = 77

Section = namedtuple("Section", "name kind link info bytes")
Instruction = namedtuple("Instruction", "operation width sets waits")
Kernel = namedtuple(
    "Kernel",
    "registers frame local instructions loads wide stores together divisions shared matrices products",
)


def sections_of(elf):
    (start,) = struct.unpack_from("<Q", elf, 40)
    size, count, names = struct.unpack_from("<HHH", elf, 58)
    heads = [struct.unpack_from("<IIQQQQIIQQ", elf, start + i * size) for i in range(count)]

    def name(offset):
        begin = heads[names][4] + offset
        return elf[begin : elf.index(b"\0", begin)].decode()

    return [
        Section(name(h[0]), h[1], h[6], h[7], b"" if h[1] == 8 else elf[h[4] : h[4] + h[5]])
        for h in heads
    ]


def device_code(path):
    """The cubins in a file: itself, or those in the section .nv_fatbin of an object file."""
    with open(path, "rb") as file:
        data = file.read()
    if data[:4] == b"\x7fELF" and struct.unpack_from("<H", data, 18)[0] == MACHINE_CUDA:
        return [data]
    found = []
    for section in sections_of(data):
        if not section.name.startswith(".nv_fatbin"):
            continue
        for match in re.finditer(b"\x7fELF", section.bytes):
            elf = section.bytes[match.start() :]
            if struct.unpack_from("<H", elf, 18)[0] == MACHINE_CUDA:
                found.append(elf)
        if section.bytes and not found:
            print(f"{path}: its device code is compressed; compile with nvcc -no-compress")
            sys.exit(SKIPPED)
    return found


def decode(low, high):
    return Instruction(low & 0xFFF, high >> 9 & 7, high >> 46 & 7, high >> 52 & 0x3F)


def most_together(instructions):
    """The most wide loads that are under way at once: none waits for another of them."""
    most, pending = 0, []
    for i in instructions:
        if any(i.waits >> sets & 1 for sets in pending):
            pending = []
        if i.operation == LOAD_GLOBAL and i.width == WIDE:
            pending.append(i.sets)
            most = max(most, len(pending))
    return most


def kernel_of(code, registers, frame, divisions):
    instructions = [decode(*words) for words in instructions_of(code)]
    count = Counter(i.operation for i in instructions)
    wide = Counter(i.operation for i in instructions if i.width == WIDE)
    return Kernel(
        registers,
        frame,
        count[LOAD_LOCAL] + count[STORE_LOCAL],
        sum(1 for i in instructions if i.operation != NOP),
        count[LOAD_GLOBAL] + count[COPY_ASYNC],
        wide[LOAD_GLOBAL] + wide[COPY_ASYNC],
        wide[STORE_GLOBAL],
        most_together(instructions),
        divisions,
        count[LOAD_SHARED],
        count[LOAD_MATRIX],
        count[MULTIPLY],
    )


def instructions_of(code):
    return [struct.unpack_from("<QQ", code, at) for at in range(0, len(code) - 15, 16)]


def loops_of(code):
    """(first, last, counts by kind) of the instructions between each backward branch and its target."""
    words = instructions_of(code)

    def target(at, fine):
        low, high = words[at]
        units = low >> 34 | (high & 0x3FFFF) << 30
        units -= units >> 47 << 48
        return at + 1 + (units * 256 + (low >> 16 & 0xFF) if fine else units) // 4

    branches = [at for at, (low, _) in enumerate(words) if low & 0xFFF == BRANCH]
    last = branches.pop()  # every kernel ends with a branch to itself
    fine = target(last, True) == last
    for at in branches:
        first = target(at, fine)
        if 0 <= first < at:
            kinds = Counter(KINDS.get(low & 0x1FF, "others") for low, _ in words[first : at + 1])
            yield first, at, kinds


def print_loops(elf):
    for section in sections_of(elf):
        if not section.name.startswith(".text."):
            continue
        for first, last, kinds in sorted(loops_of(section.bytes)):
            count = ", ".join(f"{count} {kind}" for kind, count in kinds.most_common())
            name = plain([section.name.removeprefix(".text.")])[0]
            print(f"{name} {first} to {last}, {last - first + 1}: {count}")


def kernels_of(elf):
    """Kernels by their mangled names."""
    sections = sections_of(elf)
    attributes = {REGISTERS: {}, FRAME: {}}
    symbols = next(s for s in sections if s.kind == 2)
    names = sections[symbols.link].bytes
    for section in sections:
        if section.name != ".nv.info":
            continue
        at = 0
        while at < len(section.bytes):
            form, attribute, size = struct.unpack_from("<BBH", section.bytes, at)
            if form == 4:
                if attribute in attributes:
                    symbol, value = struct.unpack_from("<II", section.bytes, at + 4)
                    (offset,) = struct.unpack_from("<I", symbols.bytes, 24 * symbol)
                    name = names[offset : names.index(b"\0", offset)].decode()
                    attributes[attribute][name] = value
                at += size
            at += 4
    divisions = Counter()  # subroutines such as __cuda_sm20_div_s64, by the kernel's section
    for at in range(0, len(symbols.bytes), 24):
        offset, section = struct.unpack_from("<IxxH", symbols.bytes, at)
        if re.search(rb"_(div|rem)_[su]64$", names[offset : names.index(b"\0", offset)]):
            divisions[section] += 1
    found = {}
    for index, section in enumerate(sections):
        name = section.name.removeprefix(".text.")
        if name != section.name and name in attributes[REGISTERS]:
            found[name] = kernel_of(
                section.bytes,
                attributes[REGISTERS][name],
                attributes[FRAME].get(name, 0),
                divisions[index],
            )
    return found


def plain(names):
    """Demangled, without parameters and the project's namespaces."""
    lines = subprocess.run(
        ["c++filt"], input="\n".join(names), capture_output=True, text=True, check=True
    ).stdout.splitlines()
    short = []
    for line in lines:
        line = re.sub(r"\(anonymous namespace\)::|axonn::|cuda::|rowwise::|<unnamed>::", "", line)
        line = re.sub(r"^void |\([^()]*\)$", "", line)
        line = re.sub(r"unsigned short|\(int\)|\(unsigned long\)", "", line)
        short.append(line)
    return short


# Kernels, and how many of their 16-byte loads must be under way together: those of all operands, in
# sums down columns of four rows. If one waits for another, the kernel takes several times the
# latency of memory.
TOGETHER = {
    "norm_backward<bf16, bf16, 3>": 9,
    "norm_backward<bf16, bf16, 4>": 12,
    "run_heads<HeadDots<bf16> >": 2,
    "run_heads<HeadNormBackwardKernel<bf16, bf16> >": 3,
    "run_heads<RotaryKernel<bf16, false> >": 6,
    "run_rows<AddMomentsKernel<bf16> >": 2,
    "run_rows<CombineRowsBackwardKernel<bf16> >": 2,
    "run_rows<CombineRowsKernel<bf16> >": 4,
    "run_rows<CrossEntropyBackwardKernel<bf16, float> >": 2,
    "run_rows<CrossEntropyKernel<bf16, bf16> >": 2,
    "run_rows<CrossEntropyKernel<bf16, float> >": 4,
    "run_rows<LayerNormBackwardKernel<bf16, bf16> >": 4,
    "run_rows<LayerNormKernel<bf16, bf16> >": 3,
    "run_rows<LayerNormSumsKernel<bf16, bf16> >": 3,
    "run_rows<NormForwardKernel<bf16, bf16> >": 1,
    "run_rows<SoftmaxStatsKernel<float> >": 4,
    "run_rows<XieluBackwardKernel<bf16> >": 2,
    "run_tiles<Binary<Plus, bf16, bf16, bf16> >": 2,
    "run_tiles<Binary<SiluGradient, bf16, bf16, bf16> >": 2,
    "run_tiles<Binary<TanhGeluGradient, bf16, bf16, bf16> >": 2,
    "run_tiles<ColumnPartials<1ul, HeadWeightTerm, HeadRows<bf16 const>, HeadRows<bf16 const> > >": 8,
    "run_tiles<ColumnPartials<1ul, ValueTerm, Matrix<bf16 const> > >": 4,
    "run_tiles<ColumnPartials<1ul, WeightTerm, Matrix<bf16 const>, Matrix<bf16 const> > >": 8,
    "run_tiles<ColumnPartials<2ul, WeightAndBiasTerms, Matrix<bf16 const>, Matrix<bf16 const> > >": 8,
    "run_tiles<SwigluBackwardKernel<bf16, GeluGate> >": 3,
    "run_tiles<SwigluBackwardKernel<bf16, SiluGate> >": 3,
    "run_tiles<SwigluKernel<bf16, ClampedGate> >": 2,
    "run_tiles<SwigluKernel<bf16, GeluGate> >": 2,
    "run_tiles<SwigluKernel<bf16, SiluGate> >": 2,
    "run_tiles<Unary<TanhGelu, bf16, bf16> >": 1,
    "run_tiles<UpdateKernel<bf16, AdEMAMixRule> >": 10,
    "run_tiles<UpdateKernel<bf16, AdamWRule> >": 8,
}
# Kernels that store 16 bytes at once. Whether the compiler joins stores depends on the types of
# indices: with a head's number of 64 bits it stores two bytes at a time.
WIDE_STORES = [
    f"run_heads<{kernel}>"
    for kernel in (
        "CopyHeadsKernel<bf16> ",
        "HeadNormBackwardKernel<bf16, bf16> ",
        "HeadNormKernel<bf16, bf16> ",
        "KeepHeadsKernel<bf16> ",
        "RotaryKernel<bf16, false> ",
    )
]
# The most registers of a thread. With 56, a multiprocessor has 1,152 threads of kernels of one row
# or tile, and so 16 to 64 KiB of loads under way; it needs about 20 KiB to saturate the memory.
# Rules for the beginning of a kernel's name; the first that fits counts.
MOST_REGISTERS = [
    ("run_tiles<ColumnPartials", 128),  # 16 loads under way in each thread
    ("run_tiles<UpdateKernel", 88),  # 8 loads
    ("run_tiles<AdafactorKernel", 88),  # the same
    ("run_tiles<SwigluBackwardKernel<float, ClampedGate>", 88),
    ("run_tiles<SwigluBackwardKernel", 80),
    ("run_heads<RotaryKernel<float, false>", 96),  # 32 KiB of loads in 512 threads
    ("run_heads<RotaryKernel", 80),
    ("run_wide_heads<RotaryKernel", 80),
    ("run_rows<SoftmaxBackward<", 80),
    ("run_rows<ConvolutionKernel", 112),  # 8 loads
    ("run_rows<DeltaRule", 128),  # a block for each key head of a sequence: few on all
    ("run_rows<RouteBackwardKernel", 72),  # three rows of loads under way
    ("run_rows<DivergenceTermsKernel", 72),  # two rows of loads, three exponentials an element
    ("run_rows<DivergenceBackwardKernel", 72),  # the same, beside the tail
    ("run_rows<PolicyLogProbabilityKernel", 80),  # both ends of a bisection, in doubles
    ("run_", 64),
    ("norm_backward<bf16, bf16, 3>", 184),  # NormShape counts with these
    ("norm_backward<bf16, bf16, 4>", 216),
    ("", 255),
]
# Kernels of attention keep results in registers, as many as a thread may have, and load operands of
# products as matrices. A multiprocessor has two blocks of 128 threads, or one of 256.
FLASH = [
    f"run_{what}<{width}>"
    for what in ("forward", "backward_queries", "backward_keys")
    for width in (64, 128)
]


def faults(name, kernel):
    """What is wrong with a kernel."""
    if kernel.frame or kernel.local:
        yield f"uses {kernel.frame} bytes of local memory (registers do not suffice)"
    rules = [("", 255)] if name in FLASH else MOST_REGISTERS
    most = next(m for begin, m in rules if name.startswith(begin))
    if kernel.registers > most:
        yield f"has {kernel.registers} registers, at most {most} are wanted"
    if kernel.divisions:
        yield f"divides numbers of 64 bits by {kernel.divisions} subroutines, of a hundred cycles"
    if kernel.together < TOGETHER.get(name, 0):
        yield f"has {kernel.together} wide loads under way together, wanted {TOGETHER[name]}"
    if name in WIDE_STORES and not kernel.stores:
        yield "stores no 16 bytes at once"
    if name in FLASH and not kernel.wide:
        yield "copies no 16 bytes at once to shared memory"
    if name in FLASH and kernel.shared >= kernel.matrices:
        yield f"loads {kernel.shared} words from shared memory, and {kernel.matrices} matrices"


def main(arguments):
    check, loops = (arguments[:1] == [option] for option in ("--check", "--loops"))
    kernels = {}
    for path in arguments[1:] if check or loops else arguments:
        for elf in device_code(path):
            if loops:
                print_loops(elf)
            else:
                kernels.update(kernels_of(elf))
    if loops:
        return 0
    table = dict(sorted(zip(plain(kernels), kernels.values())))
    if not check:
        columns = (
            "registers frame local instructions loads 16-byte stores together divisions shared matrices "
            "products"
        ).split()
        print("| kernel |", " | ".join(columns), "|\n|---|" + "---:|" * len(columns))
        for name, kernel in table.items():
            print(f"| `{name}` | " + " | ".join(str(x) for x in kernel) + " |")
        return 0
    found = [f"{name} {fault}" for name, kernel in table.items() for fault in faults(name, kernel)]
    named = (*TOGETHER, *WIDE_STORES, *FLASH)
    found += [f"{name} is not there" for name in named if name not in table]
    for fault in found:
        print("FAULT:", fault)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
