"""Files from strangers, requests that cannot be met, and output that cannot be written."""

import json

from harness import Run, byte_level, call, each, unlike


def strangers(attacked):
    yield from each(attacked, TRIES)


def trained(attacked, name="model", **options) -> Run:
    run = Run(attacked, name, steps=2, **options)
    result = run.run()
    if result.code != 0:
        raise RuntimeError(f"training fails: {result.text()}")
    return run


def encoded(attacked, tokenizer, text):
    """Tokenizes a text with at most 1 GB of memory and 20 seconds."""
    (attacked.folder / "text.txt").write_text(text)
    return call(attacked, "data", "tokenize", "--tokenizer", tokenizer, "--text",
                attacked.folder / "text.txt", "--out", attacked.folder / "tokens.bin",
                prefix=["prlimit", "--as=2000000000"], seconds=20)  # fmt: skip


def growing_normalizer(attacked):
    """A tokenizer.json doubles each letter thirty times."""
    doubling = {"type": "Replace", "pattern": {"String": "a"}, "content": "aa"}
    file = byte_level(attacked.folder / "tokenizer.json",
                      normalizer={"type": "Sequence", "normalizers": [doubling] * 30})  # fmt: skip
    return unlike(encoded(attacked, file, "aaaa"), 2, "normalizer")


def quadratic_pattern(attacked):
    """A regular expression looks ahead to the end of the text at each letter."""
    file = byte_level(attacked.folder / "tokenizer.json", split=r"a(?=a*b)|.|\s")
    return unlike(encoded(attacked, file, "a" * 400_000), (0, 2))


def many_added_tokens(attacked):
    """60,000 added tokens that begin alike, and a text of their beginnings."""
    words = [{"id": 305 + i, "content": "<" * 20 + f"{i}>", "single_word": False, "lstrip": False,
              "rstrip": False, "normalized": False, "special": False}
             for i in range(60_000)]  # fmt: skip
    file = byte_level(attacked.folder / "tokenizer.json", added_tokens=words)
    return unlike(encoded(attacked, file, "<" * 100_000), 0)


def piece(text: bytes, kind=1) -> bytes:
    """A SentencePiece of a model, as its protobuf has it."""
    body = b"\x0a" + varint(len(text)) + text + b"\x15\0\0\0\0\x18" + bytes([kind])
    return b"\x0a" + varint(len(body)) + body


def varint(number: int) -> bytes:
    return bytes([number]) if number < 128 else bytes([number % 128 + 128]) + varint(number >> 7)


def long_pieces(attacked):
    """SentencePiece models with a piece of megabytes, or with many that share a long beginning."""
    special = piece(b"<unk>", 2) + piece(b"<s>", 3) + piece(b"</s>", 3) + piece(b"a")
    shared = b"".join(piece(b"a" * 1000 + b"%d" % i) for i in range(10_000))
    steps = b"".join(piece(b"a" * n) for n in range(2, 1024))
    path = attacked.folder / "tokenizer.model"
    for name, pieces, codes in (("long", piece(b"a" * 5_000_000), (2,)),
                                ("alike", shared, (0, 2)), ("steps", steps, (0, 2))):  # fmt: skip
        path.write_bytes(special + pieces)
        fault = unlike(encoded(attacked, path, "a" * 10_000), codes)
        if fault:
            return f"{name}: {fault}"
    return None


def no_tokenizer(attacked):
    """The tokenizer of a model is not known: generate says so and does not take bytes."""
    run = trained(attacked, keys={"model.vocab": 1000})
    made = attacked.folder / "made"
    fault = unlike(call(attacked, "convert", "--model", run.out / "checkpoints", "--out", made), 0)
    for file in made.glob("*token*"):
        file.unlink()
    return fault or unlike(call(attacked, "generate", "--model", made), 2, "--tokenizer")


def beyond_positions(attacked):
    """A Llama is trained further with sequences that are longer than its positions."""
    run = trained(attacked, keys={"model.family": "llama"})
    made = attacked.folder / "made"
    fault = unlike(call(attacked, "convert", "--model", run.out / "checkpoints", "--out", made), 0)
    config = attacked.folder / "tune.toml"
    config.write_text(f'[model]\npath = "{made}"\n[data]\nsynthetic = 20000\ntokenizer = "bytes"\n'
                      "[training]\nsteps = 2\nseq_len = 64\nglobal_batch = 4\n"
                      "[optimizer]\nlr = 1e-3\n"
                      f'[output]\ndir = "{attacked.folder / "tuned"}"\n')  # fmt: skip
    return fault or unlike(call(attacked, "train", config), 2, "positions")


def only_outliers(attacked):
    """Each step is an outlier of the ones before it: the run does not skip them for ever."""
    text = "a" * 8 * 30 + "".join(chr(98 + i * i * 7 % 23) for i in range(8 * 150))
    (attacked.folder / "text.txt").write_text(text)
    run = Run(attacked, "run", steps=170,
              data=f'text = "{attacked.folder / "text.txt"}"\nshuffle = false\nvalidation = 0',
              keys={"training.skip_outliers": 1.001, "training.global_batch": 1})  # fmt: skip
    return unlike(run.run(), 1, "training.skip_outliers")


def flag_over_file(attacked):
    """The flag for one source of data replaces the file's other source."""
    (attacked.folder / "text.txt").write_text("a text of one's own " * 100)
    run = Run(attacked, "run", steps=2, keys={"data.text": attacked.folder / "text.txt"})
    return unlike(run.run(), 0, "data.synthetic")


def full_output(attacked):
    """Standard output takes no byte: every command that prints a result fails and says so."""
    run = trained(attacked)
    text = attacked.folder / "text.txt"
    text.write_text("a text to evaluate " * 20)
    config, model, full = run.folder / "run.toml", run.out / "checkpoints", "/dev/full"
    new = ["--output.dir", attacked.folder / "new"]
    commands = [["--version"], ["help"], ["help", "training.steps"], ["help", "--markdown"],
                ["info"], ["train", "--help"], ["data"], ["train", config, "--print-config"],
                ["train", config, "--dry-run", *new],
                ["plan", config, "--machine", "alps", "--devices", 4],
                ["generate", "--model", model, "--tokens", 4],
                ["eval", "--model", model, "--data", text],
                ["data", "tokenize", "--text", text, "--out", attacked.folder / "tokens.bin"],
                ["data", "show", attacked.folder / "tokens.bin"],
                ["data", "synthetic", "--bytes", 99, "--out", full],
                ["eval", "--model", model, "--data", text, "--json", full],
                ["generate", "--model", model, "--tokens", 4, "--json", full],
                ["convert", "--model", model, "--out", attacked.folder / "made"]]  # fmt: skip
    if attacked.long:
        commands += [["bench", config], ["tune", config],
                     ["probe", "--quick", "--out", attacked.folder / "here.toml"],
                     ["check", config, "--steps", 1, "--grids", "1,1,1,1 1,1,1,1"]]  # fmt: skip
    writing = ["bash", "-c", 'exec "$@" >/dev/full', "bash"]
    for words in commands:
        result = call(attacked, *words, prefix=writing)
        if result.code not in (1, 2) or "error: " not in result.err:
            return f"{words}: {result.text()}"
    return None


def endless_tokens(attacked):
    """The largest number of tokens is no limit."""
    run = trained(attacked)
    cut = ["bash", "-c", 'exec "$@" | head -c 2000', "bash"]
    result = call(attacked, "generate", "--tokens", 2**63 - 1, "--model", run.out / "checkpoints",
                  prefix=cut, seconds=60)  # fmt: skip
    return None if len(result.out) >= 1000 else f"it ends early: {result.text()}"


def failing_json(attacked):
    """generate cannot write its JSON: the file that was there stays as it was."""
    run = trained(attacked)
    answers = attacked.folder / "answers.json"
    earlier = '{"earlier": "answers"}'
    answers.write_text(earlier)
    limited = ["bash", "-c", 'ulimit -f 0; exec "$@" >/dev/null 2>&1', "bash"]
    result = call(attacked, "generate", "--tokens", 4, "--model", run.out / "checkpoints", "--json",
                  answers, prefix=limited)  # fmt: skip
    if answers.read_text() != earlier:
        return f"the file is lost: {result.text()}"
    return unlike(result, 1)


def control_characters(attacked):
    """Names in foreign files cannot command the terminal."""
    config = attacked.folder / "run.toml"
    config.write_text('[model]\n"a\\u001b]0;title\\u0007" = 1\n')
    results = [call(attacked, "train", config)]
    folder = attacked.folder / "model"
    folder.mkdir()
    tensor = {"dtype": "F32", "shape": [9], "data_offsets": [0, 4]}
    header = json.dumps({"\x1b[2J": tensor}).encode()
    (folder / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + b"1234")
    (folder / "config.json").write_text(json.dumps({"model_type": "\x1b[2J"}))
    results.append(call(attacked, "generate", "--model", folder))
    said = "".join(result.err + result.out for result in results)
    return f"control characters reach the terminal: {said!r}" if "\x1b" in said else None


TRIES = (growing_normalizer, quadratic_pattern, many_added_tokens, long_pieces, no_tokenizer,
         beyond_positions, only_outliers, flag_over_file, full_output, endless_tokens,
         failing_json, control_characters)  # fmt: skip
