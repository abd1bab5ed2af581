#!/usr/bin/env python3
"""Predicts the share of time that a run spends on steps it keeps, while its nodes fail.

    bench/failures.py [--hours 50675] [--per-node 8] [--trials 20]

A GPU fails after --hours on average, at random times: 419 unexpected interruptions in 54 days of
16,384 GPUs (Llama 3, 2407.21783, section 3.3.4) are one in 50,675 hours of a GPU. Each failure ends
the run, which starts again after `restart` seconds from its newest state; a failure may also come
during the restart. The state is saved each `every` seconds, for which training waits `stall`.
"""
import argparse
import random


def effective_share(gpus, hours, every, stall, restart, rng, days=30.0):
    """Of simulated days, the share of seconds in steps that no failure undid."""
    rate, end = gpus / (3600 * hours), 86400 * days
    now, kept = 0.0, 0.0
    failure = rng.expovariate(rate)
    while now < end:
        saved_at = now + every + stall
        if saved_at <= failure:
            kept += every
            now = saved_at
            continue
        now = failure
        while True:  # until a restart is through
            failure = now + rng.expovariate(rate)
            if failure > now + restart:
                now += restart
                break
            now = failure
    return kept / now


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--hours", type=float, default=50675)
    parser.add_argument("--per-node", type=int, default=8)
    parser.add_argument("--trials", type=int, default=20)
    args = parser.parse_args()
    cases = [("30 min, 180 s", 1800, 5, 180), ("5 min, 180 s", 300, 5, 180),
             ("5 min, 30 s", 300, 5, 30), ("1 min, 30 s", 60, 1, 30), ("10 s, 10 s", 10, 0.1, 10)]
    nodes = [128, 1000, 2048, 10000]
    print("| state every, restart | " + " | ".join(f"{n:,} nodes" for n in nodes) + " |")
    print("| --- " * (len(nodes) + 1) + "|")
    for name, every, stall, restart in cases:
        shares = []
        for n in nodes:
            rng = random.Random(1)
            trials = [effective_share(n * args.per_node, args.hours, every, stall, restart, rng)
                      for _ in range(args.trials)]
            shares.append(f"{100 * sum(trials) / len(trials):.1f} %")
        print(f"| {name} | " + " | ".join(shares) + " |")


if __name__ == "__main__":
    main()
