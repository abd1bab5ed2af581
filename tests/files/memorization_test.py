"""The figures of axonn memorize --audit against their definitions, in double: a forward pass, the
records of tokens, probabilities of suffixes, and scores of documents, written here anew."""
import bisect
import json
import math
import os
import sys
import zlib

import numpy as np

from program import RunTest, axonn, main, mpirun

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "..", "python"))
from axonn import checkpoint as reader  # noqa: E402

SUFFIX = 20
POLICIES = {"t=1,k=40": (1, 40, 1), "t=1": (1, 0, 1), "t=0.7,p=0.9": (0.7, 0, 0.9),
            "t=1.5,k=20,p=0.8": (1.5, 20, 0.8), "greedy": (0, 0, 1)}
NEAR_POLICY, NEAR_SUFFIX = (0.7, 16, 1), 4
HEADS, EPS, BASE = 4, 1e-5, 10000.0
CONFIG = """
[model]
family = "llama"
layers = 2
hidden = 32
heads = 4
kv_heads = 4
ffn = 64
positions = 192
[data]
text = ["records.jsonl"]
tokenizer = "bytes"
[training]
steps = 60
seq_len = 192
global_batch = 4
threads = 1
[optimizer]
lr = 1e-2
"""


STUDY = """
[memorize]
losses = ["standard"]
trials = 1
[[memorize.bucket]]
name = "none"
kind = "canary"
digits = 2
size = 3
[[memorize.bucket]]
name = "learned"
kind = "canary"
digits = 2
size = 4
times = 40
[[memorize.bucket]]
name = "records"
size = 2
[[memorize.bucket]]
name = "uniform"
kind = "uniform"
tokens = 60
size = 2
"""


def norm(x, weight):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + EPS) * weight


def rotated(x):
    """Rotary positions of (T, H, D), in halves."""
    half = x.shape[-1] // 2
    angles = np.outer(np.arange(len(x)), BASE ** (-np.arange(half) / half))[:, None]
    a, b = x[..., :half], x[..., half:]
    return np.concatenate([a * np.cos(angles) - b * np.sin(angles),
                           b * np.cos(angles) + a * np.sin(angles)], -1)


def logits_of(weights, tokens):
    """Llama in double: (T, V)."""
    x = weights["model.embed_tokens.weight"][tokens]
    for layer in range(2):
        def w(name):
            return weights[f"model.layers.{layer}.{name}.weight"]
        y = norm(x, w("input_layernorm"))
        q, k, v = (np.reshape(y @ w(f"self_attn.{part}_proj").T, (len(y), HEADS, -1))
                   for part in "qkv")
        scores = np.einsum("thd,shd->hts", rotated(q), rotated(k)) / math.sqrt(q.shape[-1])
        scores[:, np.triu(np.ones((len(y), len(y)), bool), 1)] = -np.inf
        p = np.exp(scores - scores.max(-1, keepdims=True))
        attended = np.einsum("hts,shd->thd", p / p.sum(-1, keepdims=True), v)
        x = x + attended.reshape(len(y), -1) @ w("self_attn.o_proj").T
        y = norm(x, w("post_attention_layernorm"))
        gate = y @ w("mlp.gate_proj").T
        x = x + (gate / (1 + np.exp(-gate)) * (y @ w("mlp.up_proj").T)) @ w("mlp.down_proj").T
    head = weights.get("lm_head.weight", weights["model.embed_tokens.weight"])
    return norm(x, weights["model.norm.weight"]) @ head.T


def log_q(u, target, policy):
    """Log-probability of the target by a policy, and whether rounding could change what is kept."""
    temperature, top_k, top_p = policy
    order = sorted(range(len(u)), key=lambda token: (-u[token], token))
    place, sure = order.index(target), True
    if temperature == 0:
        top_k = 1
    if 0 < top_k < len(order):
        sure = abs(u[target] - u[order[top_k if place < top_k else top_k - 1]]) > 1e-3
        order = order[:top_k]
    weights = [math.exp((u[token] - u[order[0]]) / (temperature or 1)) for token in order]
    if top_p < 1:
        wanted, total, kept = top_p * sum(weights), 0, 0
        while total < wanted:
            total += weights[kept]
            kept += 1
        sure = sure and min(total - wanted, wanted - total + weights[kept - 1]) > 1e-4 * total
        order, weights = order[:kept], weights[:kept]
    if target not in order:
        return -math.inf, sure
    return math.log(weights[order.index(target)] / sum(weights)), sure


class Document:
    """A document's figures, from the tokens' logits."""

    def __init__(self, weights, text, part=slice(193), suffix=SUFFIX):
        tokens = np.frombuffer(text.encode(), np.uint8)[part].astype(int)
        text = bytes(tokens.astype(np.uint8).tolist())
        u, targets = logits_of(weights, tokens[:-1]), tokens[1:]
        each = np.arange(len(targets))
        top = u.max(1, keepdims=True)
        log_p = u - top - np.log(np.exp(u - top).sum(1, keepdims=True))
        p, own = np.exp(log_p), log_p[each, targets]
        mean = (p * log_p).sum(1)
        deviation = np.sqrt(np.maximum((p * (log_p - mean[:, None]) ** 2).sum(1), 1e-6))
        self.ranks = [1 + sum(u[i] > u[i, t]) + sum(u[i, :t] == u[i, t])
                      for i, t in enumerate(targets)][-suffix:]
        gaps = np.sort(np.abs(u - u[each, targets][:, None]), 1)[:, 1]
        self.ranks_are_sure = gaps[-suffix:].min() > 1e-3
        fifth = max(len(targets) * 20 // 100, 1)
        self.scores = {"loss": own.mean(), "zlib": own.mean() / len(zlib.compress(text, 6)),
                       "min_k": np.sort(own)[:fifth].mean(),
                       "min_k_pp": np.sort((own - mean) / deviation)[:fifth].mean()}
        self.loss = -own[-suffix:].mean()
        self.log10_p = {}
        for name, policy in POLICIES.items():
            found = [log_q(u[i], targets[i], policy) for i in each[-suffix:]]
            if all(sure for _, sure in found):
                self.log10_p[name] = sum(one for one, _ in found) / math.log(10)


def near_mass(weights, text, policy):
    """log10 of the probability of all texts in which at most one token of the suffix differs, and
    whether rounding could change which tokens are drawn."""
    tokens = np.frombuffer(text.encode(), np.uint8)[:193].astype(int)
    begin, sure = len(tokens) - NEAR_SUFFIX, True

    def rest(changed, first):  # log-probability of the tokens from `first` on
        nonlocal sure
        u, total = logits_of(weights, changed[:-1]), 0
        for i in range(first, len(changed)):
            one, certain = log_q(u[i - 1], changed[i], policy)
            total, sure = total + one, sure and certain
        return total

    u, before = logits_of(weights, tokens[:-1]), 0
    mass = math.exp(rest(tokens, begin))
    for i in range(begin, len(tokens)):
        for token in range(256):
            if token != tokens[i] and log_q(u[i - 1], token, policy)[0] > -math.inf:
                changed = np.concatenate([tokens[:i], [token], tokens[i + 1:]])
                mass += math.exp(before + rest(changed, i))
        before += log_q(u[i - 1], tokens[i], policy)[0]
        if before == -math.inf:
            break
    return math.log10(mass) if mass > 0 else -math.inf, sure


def blind_scores(members, others):
    """Naive Bayes on bytes, ten folds."""
    size = len(set(b"".join(members + others)))
    scores = []
    for kind, index, document in [*((0, i, d) for i, d in enumerate(members)),
                                  *((1, i, d) for i, d in enumerate(others))]:
        left = [[d for i, d in enumerate(all) if i % 10 != index % 10] for all in (members, others)]
        score = math.log(len(left[0])) - math.log(len(left[1]))
        joined = [b"".join(all) for all in left]
        for byte in document:
            shares = [(text.count(byte) + 1) / (len(text) + size) for text in joined]
            score += math.log(shares[0] / shares[1])
        scores.append(score)
    return scores


def auc(members, others):
    wins = [[(a > b) + (a == b) / 2 for b in others] for a in members]
    of_members, of_others = np.mean(wins, 1), np.mean(wins, 0)
    return np.mean(wins), math.sqrt(of_members.var(ddof=1) / len(members)
                                    + of_others.var(ddof=1) / len(others))


def kolmogorov_smirnov(one, other):
    """The distance of two samples of equal size without ties, and the share of the orders of both in
    which it is as large."""
    n = len(one)
    place = [np.searchsorted(np.sort(of), np.sort(np.concatenate([one, other])), "right")
             for of in (one, other)]
    most = abs(place[0] - place[1]).max()
    paths = {0: 1}  # nearer ones, by how many more of the first sample than of the other
    for _ in range(2 * n):
        after = {}
        for ahead, count in paths.items():
            for step in (-1, 1):
                if abs(ahead + step) < most:
                    after[ahead + step] = after.get(ahead + step, 0) + count
        paths = after
    return most / n, 1 - paths.get(0, 0) / math.comb(2 * n, n)


def wilson(k, n, z=1.959963984540054):
    centre, half = k / n + z * z / (2 * n), z * math.sqrt(k / n * (1 - k / n) / n
                                                          + z * z / (4 * n * n))
    return [(centre + sign * half) / (1 + z * z / n) for sign in (-1, 1)]


class Memorization(RunTest):
    def documents(self, name, seed, count):
        axonn("data", "synthetic", "--records", count, "--seed", seed, "--out", self.path(name))
        with open(self.path(name)) as file:
            return [json.loads(line)["text"] for line in file]

    def audit(self, run, grid, *more, policies=";".join(POLICIES), suffix=SUFFIX, processes=0):
        out = self.path(f"audit-{grid}.json")
        axonn("memorize", "--audit", "--model", os.path.join(run, "checkpoints"), "--documents",
              self.path("records.jsonl"), "--control", self.path("control.jsonl"), "--suffix",
              suffix, "--seq-len", 193, "--policies", policies, "--json", out,
              "--grid", grid, *more, processes=processes)
        with open(out) as file:
            return json.load(file)

    def check_documents(self, report, documents):
        recitations = report["runs"][0]["recitations"]
        self.assertEqual(len(recitations), len(documents))
        compared = 0
        for got, want in zip(recitations, documents):
            self.assertAlmostEqual(got["loss"], want.loss, delta=2e-5)
            for name, value in want.scores.items():
                self.assertAlmostEqual(got["score_" + name], value, delta=3e-5 * (1 + abs(value)))
            for name, value in want.log10_p.items():
                found = got["log10_p"][list(POLICIES).index(name)]
                if value == -math.inf:
                    self.assertIsNone(found)
                else:
                    self.assertAlmostEqual(found, value, delta=3e-5 * (1 + abs(value)))
                compared += 1
            if want.ranks_are_sure:
                wrong = [i + 1 for i, rank in enumerate(want.ranks) if rank > 1]
                self.assertEqual(got["greedy_exact"], not wrong)
                self.assertAlmostEqual(got["greedy_accuracy"], 1 - len(wrong) / SUFFIX, 12)
                self.assertAlmostEqual(got["extraction_strength"],
                                       1 - max([0, *wrong]) / SUFFIX, 12)
        self.assertGreater(compared, len(documents) * len(POLICIES) // 2)

    def check_rates(self, report):
        group_of = [group["name"] for group in report["groups"]]
        recitations = report["runs"][0]["recitations"]
        self.assertEqual(len(report["extraction"]), 2 * len(POLICIES) * 7 * 4)
        for rate in report["extraction"]:
            policy = list(POLICIES).index(rate["policy"])
            log10_p = [r["log10_p"][policy] for r in recitations
                       if group_of[r["group"]] == rate["group"]]
            found = sum(one is not None and
                        -math.expm1(rate["n"] * math.log1p(-min(10 ** one, 1 - 1e-16)))
                        >= rate["p"] for one in log10_p)
            self.assertEqual(rate["extractable"], found, rate)
            self.assertEqual(rate["suffixes"], len(log10_p))
            low, high = wilson(found, len(log10_p))
            self.assertAlmostEqual(rate["percent_low"], 100 * low, delta=1e-6)
            self.assertAlmostEqual(rate["percent_high"], 100 * high, delta=1e-6)

    def check_matched(self, report):
        recitations = report["runs"][0]["recitations"]
        self.assertEqual(len(report["matched"]), len(POLICIES) * 2)
        for rate in report["matched"]:
            policy = list(POLICIES).index(rate["policy"])
            found = [[-math.inf if r["log10_p"][policy] is None else r["log10_p"][policy]
                      for r in recitations if r["group"] == group] for group in (0, 1)]
            self.assertEqual([rate["suffixes"], rate["controls"]], [len(one) for one in found])
            if rate["alpha"] == 0.001:  # needs 999 controls
                self.assertIsNone(rate["memorized"])
                continue
            flagged = [s for s in found[0]
                       if (1 + sum(c >= s for c in found[1])) / (1 + len(found[1])) <= 0.01]
            self.assertEqual(rate["memorized"], len(flagged))
            least = math.log10(1 - 0.5 ** (1 / 1000))
            self.assertEqual(rate["memorized_and_extractable"], sum(s >= least for s in flagged))
            for got, want in zip([rate["memorized_percent_low"], rate["memorized_percent_high"]],
                                 wilson(len(flagged), len(found[0]))):
                self.assertAlmostEqual(got, 100 * want, delta=1e-6)

    def check_membership(self, report, texts, control):
        recitations = report["runs"][0]["recitations"]
        cut = [[text.encode()[:193] for text in all] for all in (texts, control)]
        blind = blind_scores(*cut)
        for got, want in zip(recitations, blind):
            self.assertAlmostEqual(got["score_blind"], want, delta=1e-6 * (1 + abs(want)))
        self.assertEqual([one["score"] for one in report["membership"]],
                         ["loss", "zlib", "min_k", "min_k_pp", "blind"])
        for result in report["membership"]:
            all = [r["score_" + result["score"]] for r in recitations]
            members, others = all[:len(texts)], all[len(texts):]
            area, error = auc(members, others)
            self.assertAlmostEqual(result["auc"], area, delta=1e-6)
            self.assertAlmostEqual(result["auc_error"], error, delta=1e-6)
            [at] = result["at_false_positive_rates"]  # 0.1 % is not measurable
            self.assertEqual(at["false_positive_rate"], 0.01)
            ranked = sorted(others)
            found = len(members) - bisect.bisect_right(sorted(members),
                                                       ranked[-1 - len(others) // 100])
            self.assertEqual(at["true_positives"], found)
            self.assertLessEqual(at["bootstrap_low"], at["true_positive_rate"])
            self.assertGreaterEqual(at["bootstrap_high"], at["true_positive_rate"])
            self.check_clopper_pearson(at, len(members))

    def check_one_reference(self, run, texts, weights):
        """Another seed's model as the reference of an audit."""
        def tokens_losses(of, text):
            tokens = np.frombuffer(text.encode(), np.uint8)[:193].astype(int)
            u = logits_of(of, tokens[:-1])
            top = u.max(1, keepdims=True)
            log_p = u - top - np.log(np.exp(u - top).sum(1, keepdims=True))
            return -log_p[np.arange(len(tokens) - 1), tokens[1:]]
        config = CONFIG.replace("records.jsonl", self.path("records.jsonl"))
        other = self.train("other", "--training.seed", 9, "--training.steps", 20, config=config)
        axonn("convert", "--model", os.path.join(other, "checkpoints"), "--out",
              self.path("other-folder"), "--dtype", "f32")
        theirs = {name: np.asarray(value, float) for name, value in
                  reader.safetensors(self.path("other-folder", "model.safetensors")).items()}
        report = self.audit(run, "2,1,1,1", "--limit", 6, "--reference",
                            os.path.join(other, "checkpoints"))
        for got in report["runs"][0]["recitations"]:
            text = texts[got["document"]]
            own, others = (tokens_losses(of, text) for of in (weights, theirs))
            self.assertAlmostEqual(got["score_ratio"], (others - own).mean(), delta=2e-5)
            votes = []
            for width in (2, 3, 4, 6, 9, 13, 18, 25, 32, 40):
                sums = np.convolve(others - own, np.ones(width), "valid")
                votes.append([(sums > edge).mean() for edge in (1e-3, 0, -1e-3)])
            low, _, high = np.mean(votes, 0)
            self.assertLessEqual(low, got["score_windows"] + 1e-9)
            self.assertGreaterEqual(high, got["score_windows"] - 1e-9)
            self.assertNotIn("score_lira_online", got)
        self.assertEqual([one["score"] for one in report["membership"]][-2:], ["ratio", "windows"])
        self.check_distances(report)

    def check_distances(self, report):
        """Of the losses of a group's documents under the model and under the reference."""
        groups = [group["name"] for group in report["groups"]]
        self.assertEqual([row["group"] for row in report["against_reference"]], groups)
        for row in report["against_reference"]:
            both = [[-got["score_loss"], got["score_ratio"] - got["score_loss"]]
                    for got in report["runs"][0]["recitations"]
                    if groups[got["group"]] == row["group"]]
            own, theirs = np.array(both).T
            self.assertEqual(row["documents"], len(own))
            self.assertAlmostEqual(row["loss"], own.mean(), delta=1e-6)
            self.assertAlmostEqual(row["reference_loss"], theirs.mean(), delta=1e-6)
            distance, p = kolmogorov_smirnov(own, theirs)
            self.assertAlmostEqual(row["ks_distance"], distance, delta=1e-9)
            self.assertAlmostEqual(row["ks_p"], p, delta=1e-9)

    def check_near(self, report, texts, weights):
        compared = 0
        for got, text in zip(report["runs"][0]["recitations"], texts):
            want, sure = near_mass(weights, text, NEAR_POLICY)
            [near] = got["near"]
            if sure and want > -math.inf:
                for end in ("log10_low", "log10_high"):  # 64 beams hold all prefixes
                    self.assertAlmostEqual(near[end], want, delta=3e-5 * (1 + abs(want)))
                compared += 1
            elif sure:
                self.assertIsNone(near["log10_high"])
            self.check_samples(near, 10 ** want)
        self.assertGreater(compared, 1)
        for rate in report["near"]:
            least = math.log10(-math.expm1(math.log1p(-rate["p"]) / rate["n"]))
            found = sum(r["near"][0]["log10_low"] is not None
                        and r["near"][0]["log10_low"] >= least
                        for r in report["runs"][0]["recitations"]
                        if report["groups"][r["group"]]["name"] == rate["group"])
            self.assertEqual([rate["extractable_at_least"], rate["extractable_at_most"]], [found] * 2)

    def check_readings(self, report, texts, weights):
        """Every token of the documents, and spans of NEAR_SUFFIX tokens that 1,000 samples hold."""
        readings = report["runs"][0]["readings"]
        least, marked = math.log10(-math.expm1(math.log1p(-0.5) / 1000)), 0
        self.assertEqual({one["document"] for one in readings}, set(range(len(texts))))
        for got in readings:
            tokens = np.frombuffer(texts[got["document"]].encode(), np.uint8)[:193].astype(int)
            self.assertEqual("".join(got["tokens"]), bytes(tokens.tolist()).decode())
            u, targets, log10_q, sure = logits_of(weights, tokens[:-1]), tokens[1:], [], True
            for i, target in enumerate(targets):
                log_p = u[i, target] - u[i].max() - np.log(np.exp(u[i] - u[i].max()).sum())
                self.assertAlmostEqual(got["log_p"][i], log_p, delta=3e-5 * (1 + abs(log_p)))
                if np.sort(abs(u[i] - u[i, target]))[1] > 1e-3:
                    self.assertEqual(got["rank"][i], 1 + sum(u[i] > u[i, target]))
                value, certain = log_q(u[i], target, NEAR_POLICY)
                sure = sure and certain
                log10_q.append(value / math.log(10))
            covered = np.zeros(len(tokens), bool)
            for first in range(len(targets) - NEAR_SUFFIX + 1):
                total = sum(log10_q[first:first + NEAR_SUFFIX])
                sure = sure and abs(total - least) > 1e-3
                if total >= least:
                    covered[1 + first:1 + first + NEAR_SUFFIX] = True
            found = np.zeros(len(tokens), bool)
            for first, end in got["extracted"]:
                found[first:end] = True
            if sure:
                self.assertEqual(found.tolist(), covered.tolist())
                marked += covered.sum()
        self.assertGreater(marked, 0)

    def check_errors(self, report):
        """Standard errors of the means in the summary."""
        for row in report["summary"]:
            of = [got for got in report["runs"][0]["recitations"]
                  if report["groups"][got["group"]]["name"] == row["group"]]
            for key in ("loss", "longest_run"):
                values = [one[key] for one in of]
                self.assertAlmostEqual(row[key], np.mean(values), delta=1e-6)
                self.assertAlmostEqual(row[key + "_error"],
                                       np.std(values, ddof=1) / math.sqrt(len(values)), delta=1e-6)

    def check_samples(self, near, mass):
        """How many of 500 samples are near, 5 standard deviations at most from what is expected."""
        self.assertEqual(near["samples"], 500)
        spread = math.sqrt(500 * mass * max(1 - mass, 0))
        self.assertLessEqual(abs(near["found"] - 500 * mass), 5 * spread + 0.5)
        self.check_clopper_pearson({"true_positives": near["found"], "low": near["sampled_low"],
                                    "high": near["sampled_high"]}, 500)

    def check_masses(self, report):
        """The means of groups."""
        names = [group["name"] for group in report["groups"]]
        self.assertEqual([row["group"] for row in report["near_mass"]], names)
        for row in report["near_mass"]:
            near = [got["near"][0] for got in report["runs"][0]["recitations"]
                    if names[got["group"]] == row["group"]]
            for mean, end in (("mean_low", "log10_low"), ("mean_high", "log10_high")):
                want = np.mean([0 if one[end] is None else 10 ** one[end] for one in near])
                self.assertAlmostEqual(row[mean], want, delta=1e-9)
            found, samples = (sum(one[key] for one in near) for key in ("found", "samples"))
            self.assertEqual([row["found"], row["samples"]], [found, samples])
            self.assertAlmostEqual(row["sampled"], found / samples, delta=1e-9)
            self.check_clopper_pearson({"true_positives": found, "low": row["sampled_low"],
                                        "high": row["sampled_high"]}, samples)

    def check_sweep(self, run, grid, texts, weights):
        report = self.audit(run, grid, "--limit", 4, "--prompt-lengths", 30, "--offsets", "0,25",
                            "--suffix-lengths", "1,40", "--n", "3,50", "--p", "0.25,0.75",
                            policies="t=1")
        self.assertEqual([report["n"], report["p"]], [[3, 50], [0.25, 0.75]])
        lengths, offsets = report["prompt_lengths"], report["prompt_offsets"]
        self.assertEqual(offsets, [-1, -1, 0, 25] * 3)
        suffixes = report["prompt_suffixes"]
        self.assertEqual(suffixes, [SUFFIX] * 4 + [1] * 4 + [40] * 4)
        found = {}
        for got in report["runs"][0]["recitations"]:
            length, offset, suffix = (of[got["prompt"]] for of in (lengths, offsets, suffixes))
            if offset >= 0 or length == 0:
                part = slice(offset, offset + length + suffix) if offset >= 0 else slice(193)
                want = Document(weights, texts[got["document"]], part, suffix)
                self.assertAlmostEqual(got["loss"], want.loss, delta=2e-5)
                [log10_p] = got["log10_p"]
                self.assertAlmostEqual(log10_p, want.log10_p["t=1"], delta=1e-4)
                if want.ranks_are_sure:
                    right = sum(rank == 1 for rank in want.ranks)
                    self.assertAlmostEqual(got["greedy_accuracy"], right / suffix, 12)
                    self.assertEqual(got["exact"], right == suffix)
                found.setdefault((got["group"], length, offset, suffix), []).append(log10_p)
        self.assertEqual([len(one) for one in found.values()], [4] * 2 * 3 * 3)
        names = [group["name"] for group in report["groups"]]
        rates = [rate for rate in report["extraction"]
                 if "offset" in rate or rate["prompt_tokens"] == 0]
        self.assertEqual(len(rates), 2 * 3 * 3 * 4)
        for rate in rates:
            least = math.log10(-math.expm1(math.log1p(-rate["p"]) / rate["n"]))
            of = found[names.index(rate["group"]), rate["prompt_tokens"], rate.get("offset", -1),
                       rate.get("suffix_tokens", SUFFIX)]
            self.assertEqual(rate["extractable"], sum(one >= least for one in of))

    def check_exposure(self, report, weights):
        groups, recitations = report["groups"], report["runs"][0]["recitations"]
        found = {}
        for got in recitations:
            if groups[got["group"]]["name"] in ("records", "uniform"):
                self.assertNotIn("canary_rank", got)
                continue
            text = got["before"] + got["truth"]
            losses = []
            for secret in range(100):
                tokens = np.frombuffer((text[:-3] + f"{secret:02}.").encode(), np.uint8).astype(int)
                u = logits_of(weights, tokens[:-1])[-3:]
                losses.append(sum(np.log(np.exp(row - row.max()).sum()) + row.max() - row[target]
                                  for row, target in zip(u, tokens[-3:])))
            own, others = losses.pop(int(text[-3:-1])), np.array(losses)
            ranks = [1 + sum(others < own - 1e-4), 1 + sum(others < own + 1e-4)]
            self.assertLessEqual(ranks[0], got["canary_rank"])
            self.assertGreaterEqual(ranks[1], got["canary_rank"])
            self.assertEqual(got["canary_candidates"], 100)
            self.assertAlmostEqual(got["exposure"], math.log2(100 / got["canary_rank"]), delta=1e-6)
            found.setdefault(groups[got["group"]]["name"], []).append(got["exposure"])
        self.assertEqual([len(one) for one in found.values()], [3, 4])
        self.assertEqual([one["group"] for one in report["exposure"]], list(found))
        for row, bits in zip(report["exposure"], found.values()):
            self.assertAlmostEqual(row["mean_bits"], np.mean(bits), delta=1e-6)
            self.assertAlmostEqual(row["median_bits"], np.median(bits), delta=1e-6)
            self.assertAlmostEqual(row["most_bits"], math.log2(100), delta=1e-6)
            self.assertEqual(row["rank_1"], sum(one > math.log2(100) - 1e-9 for one in bits))
        self.assertGreater(np.mean(found["learned"]), np.mean(found["none"]))

    def check_capacity(self, report, weights):
        """Of uniform documents all tokens but the first, of records the suffix."""
        groups, run = report["groups"], report["runs"][0]
        parameters = sum(value.size for value in weights.values())
        self.assertEqual(report["parameters"], parameters)
        found = {}
        for got in run["recitations"]:
            name = groups[got["group"]]["name"]
            size = 59 if name.startswith("uniform") else 50
            if name.startswith("uniform"):
                self.assertAlmostEqual(got["random_bits"], size * 8, delta=1e-6)
                want = -got["score_loss"] * size / math.log(2)
            else:
                text = (got["before"] + got["truth"]).encode()
                tokens = np.frombuffer(text, np.uint8).astype(int)
                u = logits_of(weights, tokens[:-1])[-size:]
                top = u.max(1, keepdims=True)
                log_p = u - top - np.log(np.exp(u - top).sum(1, keepdims=True))
                want = -log_p[np.arange(size), tokens[-size:]].sum() / math.log(2)
                self.assertGreaterEqual(got["random_bits"], 60)
            self.assertAlmostEqual(got["coded_bits"], want, delta=1e-4 * size)
            found.setdefault(name, []).append((got["random_bits"], got["coded_bits"]))
        learned = [name for name in found if not groups[
            [group["name"] for group in groups].index(name)]["control"]]
        rows = [*([name, found[name]] for name in found),
                [None, [one for name in learned for one in found[name]]]]
        self.assertEqual([row["group"] for row in report["capacity"]], [name for name, _ in rows])
        for row, (_, all) in zip(report["capacity"], rows):
            memorized = sum(max(bits - coded, 0) for bits, coded in all)
            self.assertEqual(row["documents"], len(all))
            self.assertAlmostEqual(row["memorized_bits"], memorized, delta=1e-6)
            self.assertAlmostEqual(row["bits_per_parameter"], memorized / parameters, delta=1e-6)

    def test_exposures_and_bits_of_studies_on_grids_follow_from_their_definitions(self):
        self.documents("records.jsonl", 1, 30)
        for grid in ("1,1,1,1", "2,1,2,1"):
            with self.subTest(grid=grid):
                with open(self.path("study.toml"), "w") as file:
                    file.write(CONFIG.replace("records.jsonl", self.path("records.jsonl")) + STUDY)
                out = self.path("study-" + grid)
                axonn("memorize", self.path("study.toml"), "--output.dir", out,
                      "--parallelism.grid", grid)
                with open(os.path.join(out, "report.json")) as file:
                    report = json.load(file)
                folder = self.path("folder-" + grid)
                axonn("convert", "--model", os.path.join(out, "trial-1-standard", "checkpoints"),
                      "--out", folder, "--dtype", "f32")
                weights = {name: np.asarray(value, float) for name, value in
                           reader.safetensors(os.path.join(folder, "model.safetensors")).items()}
                self.check_exposure(report, weights)
                self.check_capacity(report, weights)

    def check_clopper_pearson(self, at, count):
        def tail(k, p):  # at least k of count
            choices = [math.lgamma(count + 1) - math.lgamma(i + 1) - math.lgamma(count - i + 1)
                       for i in range(k, count + 1)]
            return sum(math.exp(ways + i * math.log(p) + (count - i) * math.log1p(-p))
                       for i, ways in enumerate(choices, k))
        if at["true_positives"] > 0:
            self.assertAlmostEqual(tail(at["true_positives"], at["low"]), 0.025, delta=1e-6)
        else:
            self.assertEqual(at["low"], 0)
        if at["true_positives"] < count:
            self.assertAlmostEqual(tail(at["true_positives"] + 1, at["high"]), 0.975, delta=1e-6)
        else:
            self.assertEqual(at["high"], 1)

    def test_figures_of_audits_on_grids_follow_from_their_definitions(self):
        texts = self.documents("records.jsonl", 1, 30)
        control = self.documents("control.jsonl", 2, 110)
        config = CONFIG.replace("records.jsonl", self.path("records.jsonl"))
        run = self.train("run", config=config)
        axonn("convert", "--model", os.path.join(run, "checkpoints"), "--out", self.path("folder"),
              "--dtype", "f32")
        weights = {name: np.asarray(value, float) for name, value in
                   reader.safetensors(self.path("folder", "model.safetensors")).items()}
        documents = [Document(weights, text) for text in texts + control]
        self.check_one_reference(run, texts[:6] + control[:6], weights)
        for grid in ("1,1,1,1", "2,1,2,1"):
            with self.subTest(grid=grid):
                report = self.audit(run, grid)
                self.check_documents(report, documents)
                self.check_rates(report)
                self.check_matched(report)
                self.check_membership(report, texts, control)
                self.check_errors(report)
                few = self.audit(run, grid, "--limit", 4, "--near", 1, "--near-beams", 64,
                                 "--near-samples", 500, policies="t=0.7,k=16", suffix=NEAR_SUFFIX)
                self.check_near(few, texts[:4] + control[:4], weights)
                self.check_masses(few)
                self.check_readings(few, texts[:4] + control[:4], weights)
                self.check_sweep(run, grid, texts[:4] + control[:4], weights)
        if mpirun():
            self.check_documents(self.audit(run, "1,1,2,1", processes=2), documents)


if __name__ == "__main__":
    main()
