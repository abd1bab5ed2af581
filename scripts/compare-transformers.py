#!/usr/bin/env python3
"""Compares axonn with Hugging Face's transformers on tiny random model folders that it writes.

For every family: transformers writes a folder; `axonn convert` converts it to a checkpoint and
back; transformers loads the result. The script checks that

  - every tensor has the same name and the same bits, and config.json describes the same model;
  - the mean loss of `axonn eval` on random tokens equals that of transformers to
    1e-4 relative, in f32;
  - the greedy continuation of `axonn generate` equals that of transformers.

    scripts/compare-transformers.py build/release/bin/axonn

Needs transformers, safetensors and torch. Exits with 1 if something differs.
"""

import json
import pathlib
import subprocess
import sys
import tempfile

import torch
import transformers
from safetensors.torch import load_file

LENGTH = 32  # tokens of a window
VOCAB = 256  # a byte is a token

LLAMA = dict(vocab_size=VOCAB, hidden_size=64, intermediate_size=160, num_hidden_layers=3,
             num_attention_heads=8, num_key_value_heads=2, max_position_embeddings=64,
             bos_token_id=None, eos_token_id=None, pad_token_id=None)
SCALING = dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
               original_max_position_embeddings=16)


def families():
    t = transformers
    yield "gpt2", t.GPT2LMHeadModel(t.GPT2Config(
        vocab_size=VOCAB, n_embd=64, n_layer=3, n_head=8, n_positions=64, bos_token_id=None,
        eos_token_id=None))
    yield "llama", t.LlamaForCausalLM(t.LlamaConfig(**LLAMA))
    yield "llama3.1", t.LlamaForCausalLM(t.LlamaConfig(**LLAMA, rope_scaling=SCALING,
                                                       rope_theta=500000.0))
    yield "llama3.2", t.LlamaForCausalLM(t.LlamaConfig(**LLAMA, tie_word_embeddings=True))
    yield "mistral", t.MistralForCausalLM(t.MistralConfig(**LLAMA, sliding_window=8))
    yield "qwen2", t.Qwen2ForCausalLM(t.Qwen2Config(**LLAMA))
    yield "qwen3", t.Qwen3ForCausalLM(t.Qwen3Config(**LLAMA, head_dim=16))


def tensors_of(folder):
    tensors = {}
    for file in sorted(folder.glob("*.safetensors")):
        tensors.update(load_file(file))
    return tensors


def randomised(model):
    """Adds noise to all parameters, also to biases and norms, which start as zeros and ones."""
    torch.manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    return model.eval()


def window_losses(model, tokens):
    with torch.no_grad():
        inputs = tokens[:-1].reshape(-1, LENGTH)
        targets = tokens[1:].reshape(-1, LENGTH)
        logits = model(inputs).logits
        return torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten()).item()


def greedy(model, prompt, count):
    with torch.no_grad():
        tokens = torch.tensor([list(prompt)])
        for _ in range(count):
            tokens = torch.cat([tokens, model(tokens).logits[:, -1:].argmax(-1)], dim=1)
    return bytes(tokens[0].tolist())


def compare(axonn, name, model, work):
    faults = []

    def run(*arguments):
        return subprocess.run([axonn, *map(str, arguments)], check=True, capture_output=True).stdout

    model = randomised(model)
    here, back = work / name, work / f"{name}-back"
    model.save_pretrained(here, safe_serialization=True)
    run("convert", "--model", here, "--out", work / f"{name}-checkpoint")
    run("convert", "--model", work / f"{name}-checkpoint", "--out", back)
    before, after = tensors_of(here), tensors_of(back)
    if before.keys() != after.keys():
        faults.append(f"tensors {sorted(before.keys() ^ after.keys())[:6]}")
    faults += [f"{key} differs" for key in before.keys() & after.keys()
               if not torch.equal(before[key], after[key])]
    again = transformers.AutoModelForCausalLM.from_pretrained(back).eval()
    tokens = torch.randint(VOCAB, (4 * LENGTH + 1,), generator=torch.Generator().manual_seed(2))
    want = window_losses(model, tokens)
    if window_losses(again, tokens) != want:
        faults.append("transformers computes a different loss for the converted folder")
    data, report = work / "data.txt", work / "report.json"
    data.write_bytes(bytes(tokens.tolist()))
    run("eval", "--model", back, "--data", data, "--seq-len", LENGTH, "--json", report)
    got = json.loads(report.read_text())["loss"]
    if abs(got - want) > 1e-4 * want:
        faults.append(f"loss {got} with axonn, {want} with transformers")
    text = run("generate", "--model", back, "--prompt", "The", "--tokens", 16, "--temperature", 0)
    if text.rstrip(b"\n") != greedy(model, b"The", 16).rstrip(b"\n"):
        faults.append("a different greedy continuation")
    print(f"{name:10} loss {got:.6f} with axonn, {want:.6f} with transformers: "
          f"{'; '.join(faults) or 'equal'}")
    return not faults


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    with tempfile.TemporaryDirectory() as work:
        good = [compare(sys.argv[1], name, model, pathlib.Path(work))
                for name, model in families()]
    sys.exit(0 if all(good) else 1)


if __name__ == "__main__":
    main()
