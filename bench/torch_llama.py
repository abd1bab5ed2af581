#!/usr/bin/env python3
"""The training step of configs/llama-like.toml in plain PyTorch, as a careful user writes it.

  bench/alternate.sh 3 "axonn bench configs/llama-like.toml" "python3 bench/torch_llama.py --dtype bf16"

For PyTorch 1.13 and later on a CPU (Debian: python3-torch, and libopenblas0-pthread for f32). bf16 is
autocast: weights, moments and gradients in f32, products in bf16. Freed memory is kept for the next
step, which is what jemalloc is recommended for, unless --plain-malloc. Prints tokens/s: ten steps, the
mean of the last eight.
"""
import argparse
import math
import os
import resource
import sys
import time

KEEP = {"MALLOC_MMAP_THRESHOLD_": str(1 << 32), "MALLOC_TRIM_THRESHOLD_": str(1 << 33)}


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dtype", choices=["f32", "bf16"], default="f32")
    sizes = dict(layers=4, hidden=2048, heads=16, kv_heads=8, ffn=5504, vocab=32000, batch=4,
                 seq=1024, steps=10)
    for name, default in sizes.items():
        parser.add_argument("--" + name.replace("_", "-"), type=int, default=default)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--plain-malloc", action="store_true", help="freed memory goes back")
    return parser.parse_args()


ARGS = parse()
if not ARGS.plain_malloc and "MALLOC_MMAP_THRESHOLD_" not in os.environ:  # read at start alone
    os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **KEEP})

import torch  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402


class RmsNorm(nn.Module):
    def __init__(self, width, eps=1e-5):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.eps = eps

    def forward(self, x):
        scale = torch.rsqrt(x.float().square().mean(-1, keepdim=True) + self.eps)
        return (x * scale).type_as(x) * self.weight


def rotate(x, cos, sin):
    """x (B, H, T, D), its halves paired."""
    a, b = x.chunk(2, -1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1).type_as(x)


def attend(q, k, v, hidden_keys):
    """Causal attention, (B, H, T, D) each."""
    if hasattr(F, "scaled_dot_product_attention"):
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)
    scores = (q @ k.transpose(-2, -1)) / math.sqrt(q.size(-1))
    return scores.masked_fill(hidden_keys, -math.inf).softmax(-1).type_as(v) @ v


class Block(nn.Module):
    def __init__(self, a):
        super().__init__()
        self.heads, self.kv_heads, self.dim = a.heads, a.kv_heads, a.hidden // a.heads
        self.norm1, self.norm2 = RmsNorm(a.hidden), RmsNorm(a.hidden)
        self.split = [a.heads * self.dim, a.kv_heads * self.dim, a.kv_heads * self.dim]
        self.qkv = nn.Linear(a.hidden, sum(self.split), bias=False)
        self.project = nn.Linear(a.hidden, a.hidden, bias=False)
        self.gate_up = nn.Linear(a.hidden, 2 * a.ffn, bias=False)
        self.down = nn.Linear(a.ffn, a.hidden, bias=False)

    def forward(self, x, cos, sin, hidden_keys):
        batch, length, _ = x.shape
        q, k, v = (part.view(batch, length, -1, self.dim).transpose(1, 2)
                   for part in self.qkv(self.norm1(x)).split(self.split, -1))
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        group = self.heads // self.kv_heads
        k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
        y = attend(q, k, v, hidden_keys).transpose(1, 2).reshape(batch, length, -1)
        x = x + self.project(y)
        gate, up = self.gate_up(self.norm2(x)).chunk(2, -1)
        return x + self.down(F.silu(gate) * up)


class Llama(nn.Module):
    def __init__(self, a):
        super().__init__()
        self.embedding = nn.Embedding(a.vocab, a.hidden)
        self.blocks = nn.ModuleList(Block(a) for _ in range(a.layers))
        self.norm = RmsNorm(a.hidden)
        self.head = nn.Linear(a.hidden, a.vocab, bias=False)
        for weight in self.parameters():
            if weight.dim() > 1:
                nn.init.normal_(weight, std=0.02)
        dim = a.hidden // a.heads
        frequencies = 1e4 ** (-torch.arange(0, dim, 2).double() / dim)
        angles = torch.outer(torch.arange(a.seq).double(), frequencies)
        self.register_buffer("cos", angles.cos().float())
        self.register_buffer("sin", angles.sin().float())
        self.register_buffer("hidden_keys", torch.ones(a.seq, a.seq, dtype=torch.bool).triu(1))

    def forward(self, ids, targets):
        x = self.embedding(ids)
        for block in self.blocks:
            x = block(x, self.cos, self.sin, self.hidden_keys)
        logits = self.head(self.norm(x))
        return F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())


def main():
    a = ARGS
    torch.manual_seed(1)
    torch.set_num_threads(a.threads)
    model = Llama(a)
    matrices = [w for w in model.parameters() if w.dim() > 1]
    vectors = [w for w in model.parameters() if w.dim() <= 1]
    optimizer = torch.optim.AdamW([{"params": matrices, "weight_decay": 0.1},
                                   {"params": vectors, "weight_decay": 0.0}],
                                  lr=3e-4, betas=(0.9, 0.95), foreach=True)
    seconds = []
    for _ in range(a.steps):
        ids = torch.randint(0, a.vocab, (a.batch, a.seq))
        targets = torch.randint(0, a.vocab, (a.batch, a.seq))
        start = time.perf_counter()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=a.dtype == "bf16"):
            loss = model(ids, targets)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        seconds.append(time.perf_counter() - start)
    timed = seconds[min(2, len(seconds) - 1):]
    step = sum(timed) / len(timed)
    tokens = a.batch * a.seq
    multiplied = sum(w.numel() for w in model.parameters()) - model.embedding.weight.numel()
    flops = (6 * multiplied + 6 * a.layers * a.hidden * a.seq) * tokens
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"torch {torch.__version__} {a.dtype}, {torch.get_num_threads()} threads: "
          f"{step * 1e3:.0f} ms a step, {tokens / step:.1f} tokens/s, "
          f"{flops / step * 1e-12:.3f} model Tflop/s, {memory:.2f} GiB, loss {loss.item():.3f}")


if __name__ == "__main__":
    main()
