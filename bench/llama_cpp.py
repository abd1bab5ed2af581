#!/usr/bin/env python3
"""Generation by `axonn serve` and by llama.cpp's llama-server, from the same GGUF files.

    bench/llama_cpp.py --llama-server FILE [--axonn FILE] [--work FOLDER] [--models gpt2-124m ...]
                       [--types f32 bf16 q8_0 q4_0 q4_k] [--integer-products] [--rounds 3]
                       [--json FILE]

Models have sizes by name (model.name), and are trained for eight steps, so that they write ASCII.
First both must continue prompts by the same tokens, and in f32 with log-probabilities that differ
by less than 1e-3. Then each round starts both servers in turn, on all processors of the machine,
and measures over HTTP: until the server is ready; a prompt of 512 tokens, whose time is also that
to the first token; 128 tokens after prompts of 32, for 1, 4 and 16 requests at a time; and 8
clients, each with four requests of 64 tokens after 64. Prints medians of all rounds, the ratios of
axonn to llama.cpp, and what each reads of the weights per second beside a stream of memory. With
--integer-products axonn rounds what one or two rows of codes are multiplied by to 8 bits, too.
Needs numpy for the latter.
"""
import argparse
import importlib.util
import json
import os
import pathlib
import random
import socket
import statistics
import subprocess
import sys
import threading
import time
import urllib.request

CONTEXT, SLOTS = 1024, 16
TRAIN = """[model]
name = "{name}"
[data]
text = ["{text}"]
tokenizer = "bytes"
[training]
steps = 8
seq_len = 64
global_batch = 2
[optimizer]
kind = "lion"
lr = 3e-4
[checkpoint]
every = 0
"""


def run(*command):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"error: {' '.join(map(str, command))}\n{done.stderr}")


def make_files(axonn, work, name, types):
    """The GGUF file of each type."""
    files = {kind: work / f"{name}-{kind}.gguf" for kind in types}
    if all(file.exists() for file in files.values()):
        return files
    config = work / f"{name}.toml"
    config.write_text(TRAIN.format(name=name, text=pathlib.Path(__file__).resolve()))
    run(axonn, "train", config, "--output.dir", work / name, "--output.overwrite", "true")
    for kind, file in files.items():
        run(axonn, "convert", "--model", work / name, "--to", "gguf", "--dtype", kind,
            "--out", file, "--overwrite")
    return files


class Server:
    """A server that answers OpenAI's completions, from its start until the end of a `with`."""

    def __init__(self, command):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        began = time.monotonic()
        self.process = subprocess.Popen([*map(str, command), "--port", str(self.port)],
                                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while True:
            if self.process.poll() is not None:
                sys.exit(f"error: {command[0]} ended with {self.process.returncode}")
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{self.port}/health", timeout=1).close()
                break
            except OSError:
                time.sleep(0.002)
        self.ready_s = time.monotonic() - began

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()

    def peak_mib(self):
        status = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.split("VmHWM:")[1].split()[0]) / 1024

    def complete(self, prompt, tokens, **more):
        body = {"prompt": prompt, "max_tokens": tokens, "temperature": 0, "ignore_eos": True}
        body.update(more)
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}/v1/completions", json.dumps(body).encode(),
            {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=3600) as answer:
            return json.load(answer)


def at_once(count, work):
    """Seconds for so many threads that call work(i)."""
    threads = [threading.Thread(target=work, args=(i,)) for i in range(count)]
    began = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return time.monotonic() - began


def prompt_of(rng, length):
    return [rng.randrange(32, 127) for _ in range(length)]


def measure(server, rng):
    """Tokens per second of each kind of work; seconds until ready, and MiB."""
    server.complete(prompt_of(rng, 16), 4)
    found = {"ready s": server.ready_s}
    prompts = []
    for _ in range(3):
        began = time.monotonic()
        server.complete(prompt_of(rng, 512), 1)
        prompts.append(512 / (time.monotonic() - began))
    found["prompt"] = statistics.median(prompts)
    for count in (1, 4, SLOTS):
        inputs = [prompt_of(rng, 32) for _ in range(count)]
        seconds = at_once(count, lambda i: server.complete(inputs[i], 128))
        found[f"{count} at a time"] = 128 * count / seconds
    inputs = [[prompt_of(rng, 64) for _ in range(4)] for _ in range(8)]
    seconds = at_once(8, lambda i: [server.complete(one, 64) for one in inputs[i]])
    found["8 clients"] = 8 * 4 * 64 / seconds
    found["peak MiB"] = server.peak_mib()
    return found


def next_tokens(server, prompt):
    """Log-probabilities of the five likeliest next tokens, by their texts."""
    found = server.complete(prompt, 1, logprobs=5)["choices"][0]["logprobs"]
    if "top_logprobs" in found:  # OpenAI's older form
        return found["top_logprobs"][0]
    return {one["token"]: one["logprob"] for one in found["content"][0]["top_logprobs"]}


def check_equal(ours, theirs, exact):
    """Returns how far log-probabilities differ; if `exact`, ends the program where texts do."""
    rng, worst = random.Random(7), 0.0
    for length in (3, 17, 60):
        prompt = prompt_of(rng, length)
        one, other = (side.complete(prompt, 24)["choices"][0]["text"] for side in (ours, theirs))
        if one != other and exact:
            sys.exit(f"error: after a prompt of {length} tokens axonn writes {one!r}, "
                     f"llama.cpp {other!r}")
        mine, its = (next_tokens(server, prompt) for server in (ours, theirs))
        for text in set(mine) & set(its):
            worst = max(worst, abs(mine[text] - its[text]))
    if exact and worst > 1e-3:
        sys.exit(f"error: log-probabilities differ by {worst:.2g}")
    return worst


def stream_gb_s():
    """GB/s of as many processes as processors that sum floats."""
    code = ("import numpy, time; a = numpy.ones(1 << 26, numpy.float32); a.sum(); b = time.time()\n"
            "for _ in range(8): a.sum()\n"
            "print(8 * a.nbytes / (time.time() - b) / 1e9)")
    readers = [subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
               for _ in range(os.cpu_count())]
    return sum(float(reader.communicate()[0]) for reader in readers)


def fastest_dtype():
    """The type in which codes are multiplied the fastest by this processor."""
    bf16 = "avx512_bf16" in pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8")
    return "bf16" if bf16 else "f32"


def compare(args, name, kind, file):
    ours = [args.axonn, "serve", "--model", file, "--batch", SLOTS, "--context", CONTEXT,
            "--device", "cpu"]
    if kind == "bf16":
        ours += ["--dtype", "bf16"]
    elif kind != "f32":
        ours += ["--dtype", args.dtype_of_codes, "--quantize", "file"]
        ours += ["--integer-products"] if args.integer_products else []
    theirs = [args.llama_server, "-m", file, "-t", os.cpu_count(), "-tb", os.cpu_count(),
              "-c", SLOTS * CONTEXT, "-np", SLOTS]
    plain = ["-fa", "off", "-ctk", "f32", "-ctv", "f32"] if kind == "f32" else []
    with Server(ours) as one, Server(theirs + plain) as other:
        worst = check_equal(one, other, kind == "f32")
    rounds = {"axonn": [], "llama.cpp": []}
    for number in range(args.rounds):
        sides = [("axonn", ours), ("llama.cpp", theirs)]
        for side, command in sides if number % 2 == 0 else reversed(sides):
            with Server(command) as server:
                rounds[side].append(measure(server, random.Random(number)))
    medians = {side: {key: statistics.median(each[key] for each in found) for key in found[0]}
               for side, found in rounds.items()}
    gigabytes = file.stat().st_size / 1e9
    stream = stream_gb_s()
    mode = ", integers" if "--integer-products" in ours else ""
    print(f"\n{name}, {kind}{mode}: log-probabilities differ by {worst:.1e}; "
          f"memory streams at {stream:.1f} GB/s\n")
    print("| | axonn | llama.cpp | ratio |\n| --- | ---: | ---: | ---: |")
    for key, mine in medians["axonn"].items():
        its = medians["llama.cpp"][key]
        unit = "" if key in ("ready s", "peak MiB") else " tokens/s"
        print(f"| {key}{unit} | {mine:.4g} | {its:.4g} | {mine / its:.2f} |")
    for side, found in medians.items():
        rate = gigabytes * found["1 at a time"]
        print(f"{side} reads {rate:.1f} GB/s of the file at one stream, "
              f"{100 * rate / stream:.0f} % of the memory's")
    sys.stdout.flush()
    return {"model": name, "type": kind, "worst": worst, "stream_gb_s": stream, "rounds": rounds}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--axonn", type=pathlib.Path, default="build/release/bin/axonn")
    parser.add_argument("--llama-server", type=pathlib.Path, required=True)
    parser.add_argument("--work", type=pathlib.Path, default="out/llama_cpp")
    parser.add_argument("--models", nargs="+",
                        default=["gpt2-124m", "qwen2.5-0.5b", "qwen2.5-1.5b"])
    parser.add_argument("--types", nargs="+", default=["f32", "bf16", "q8_0", "q4_0", "q4_k"])
    parser.add_argument("--dtype-of-codes", default=fastest_dtype(), choices=["f32", "bf16"])
    parser.add_argument("--integer-products", action="store_true")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=pathlib.Path)
    args = parser.parse_args()
    if not importlib.util.find_spec("numpy"):
        parser.error(f"{sys.executable} has no numpy, which reads the stream of memory; install it")
    args.work.mkdir(parents=True, exist_ok=True)
    results = []
    for name in args.models:
        for kind, file in make_files(args.axonn, args.work, name, args.types).items():
            results.append(compare(args, name, kind, file))
    if args.json:
        args.json.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
