#!/usr/bin/env python3
"""A training step on one GPU in plain PyTorch, compiled, as a careful user writes it.

  python3 bench/torch_cuda.py --layers 12 --hidden 768 --heads 12 --batch 32 --seq 1024
  python3 bench/torch_cuda.py --family llama --layers 16 --hidden 4096 --heads 32 --kv-heads 8 --ffn 14336

Weights, moments and gradients in f32, products in bf16 by autocast, attention by the library's fused
kernels, fused AdamW. Blocks, and head with loss, are compiled, which takes a fraction of the time of
the whole model. Ten steps; prints the mean of the last eight and the peak of memory.
"""
import argparse
import time

import torch
from torch import nn
from torch.nn import functional as F


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--family", choices=["gpt", "llama"], default="gpt")
    sizes = dict(layers=12, hidden=768, heads=12, kv_heads=0, ffn=0, vocab=50304, batch=32, seq=1024,
                 steps=10, micro_batches=1)
    for name, default in sizes.items():
        parser.add_argument("--" + name.replace("_", "-"), type=int, default=default)
    parser.add_argument("--eager", action="store_true", help="not compiled")
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda",
                        help="cpu: only to test this program")
    args = parser.parse_args()
    args.kv_heads = args.kv_heads or args.heads
    args.ffn = args.ffn or 4 * args.hidden
    return args


class Attention(nn.Module):
    def __init__(self, a, bias, rotary):
        super().__init__()
        self.heads, self.kv_heads, self.width = a.heads, a.kv_heads, a.hidden // a.heads
        self.qkv = nn.Linear(a.hidden, (a.heads + 2 * a.kv_heads) * self.width, bias=bias)
        self.out = nn.Linear(a.hidden, a.hidden, bias=bias)
        self.rotary = rotary

    def forward(self, x):
        B, T, _ = x.shape
        sizes = [self.heads * self.width, self.kv_heads * self.width, self.kv_heads * self.width]
        q, k, v = (part.view(B, T, -1, self.width).transpose(1, 2)
                   for part in self.qkv(x).split(sizes, dim=-1))
        if self.rotary:
            q, k = rotate(q), rotate(k)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True,
                                           enable_gqa=self.heads != self.kv_heads)
        return self.out(y.transpose(1, 2).reshape(B, T, -1))


def rotate(x):
    """The halves of a head turned by its position's angles."""
    half = x.shape[-1] // 2
    position = torch.arange(x.shape[-2], device=x.device, dtype=torch.float32)
    rate = 10000.0 ** (-torch.arange(half, device=x.device, dtype=torch.float32) / half)
    angle = position[:, None] * rate
    cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
    a, b = x[..., :half], x[..., half:]
    return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1)


class GptBlock(nn.Module):
    def __init__(self, a):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(a.hidden), nn.LayerNorm(a.hidden)
        self.attention = Attention(a, bias=True, rotary=False)
        self.up, self.down = nn.Linear(a.hidden, a.ffn), nn.Linear(a.ffn, a.hidden)

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


class LlamaBlock(nn.Module):
    def __init__(self, a):
        super().__init__()
        self.norm1, self.norm2 = nn.RMSNorm(a.hidden), nn.RMSNorm(a.hidden)
        self.attention = Attention(a, bias=False, rotary=True)
        self.gate = nn.Linear(a.hidden, a.ffn, bias=False)
        self.up = nn.Linear(a.hidden, a.ffn, bias=False)
        self.down = nn.Linear(a.ffn, a.hidden, bias=False)

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        y = self.norm2(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Model(nn.Module):
    def __init__(self, a):
        super().__init__()
        llama = a.family == "llama"
        self.tokens = nn.Embedding(a.vocab, a.hidden)
        self.positions = None if llama else nn.Embedding(a.seq, a.hidden)
        self.blocks = nn.ModuleList((LlamaBlock if llama else GptBlock)(a) for _ in range(a.layers))
        self.norm = nn.RMSNorm(a.hidden) if llama else nn.LayerNorm(a.hidden)
        self.head = nn.Linear(a.hidden, a.vocab, bias=False)
        if not llama:
            self.head.weight = self.tokens.weight
        for parameter in self.parameters():
            if parameter.dim() > 1:
                nn.init.normal_(parameter, std=0.02)

    def forward(self, ids, targets):
        x = self.tokens(ids)
        if self.positions is not None:
            x = x + self.positions.weight[: ids.shape[1]]
        for block in self.blocks:
            x = block(x)
        return self.loss(x, targets)

    def loss(self, x, targets):
        logits = self.head(self.norm(x))
        return F.cross_entropy(logits.view(-1, logits.shape[-1]), targets.reshape(-1))


def main():
    args = parse()
    torch.manual_seed(1)
    torch.set_float32_matmul_precision("high")
    gpu = args.device == "cuda"
    wait = torch.cuda.synchronize if gpu else lambda: None
    model = Model(args).to(args.device)
    if not args.eager:
        for block in model.blocks:
            block.compile()
        model.loss = torch.compile(model.loss)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, betas=(0.9, 0.95), weight_decay=0.1,
                                  fused=gpu)
    ids = torch.randint(args.vocab, (args.batch, args.seq + 1), device=args.device)
    seconds = []
    for _ in range(args.steps):
        wait()
        begin = time.perf_counter()
        for part in ids.chunk(args.micro_batches):
            with torch.autocast(args.device, dtype=torch.bfloat16):
                loss = model(part[:, :-1], part[:, 1:]) / args.micro_batches
            loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        wait()
        seconds.append(time.perf_counter() - begin)
    mean = sum(seconds[2:]) / len(seconds[2:])
    memory = torch.cuda.max_memory_allocated() if gpu else 0
    print(f"{1e3 * mean:.1f} ms a step, {args.batch * args.seq / mean:.0f} tokens/s, "
          f"{memory / 2**30:.1f} GiB")


if __name__ == "__main__":
    main()
