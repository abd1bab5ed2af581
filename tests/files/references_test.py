"""The scores of membership that references give, against their definitions, from the losses of tokens
that a study stores."""
import json
import math
import os

import numpy as np

from memorization_test import CONFIG, auc
from program import RunTest, axonn, main, mpirun

REFERENCES = """
[memorize]
losses = ["standard"]
trials = 1
suffix_tokens = 20
references = 6
[[memorize.bucket]]
name = "none"
size = 12
[[memorize.bucket]]
name = "often"
size = 6
times = 8
[[memorize.bucket]]
name = "seldom"
size = 6
times = 2
"""


def confidence(losses):
    p = math.exp(-np.mean(losses))
    return math.log(p) - math.log1p(-p)


def reference_scores(own, references):
    """ratio, windows, offline and online LiRA of every document, from the losses of its targets.
    references: of each [learned, losses]."""
    spread, spread_out = [0, 0], [0, 0]  # squares and degrees of freedom, pooled
    found = []
    for d in range(len(own)):
        sides = [[confidence(losses[d]) for learned, losses in references if learned[d] == inside]
                 for inside in (False, True)]
        found.append(sides)
        for side in sides:
            spread[0] += sum((one - np.mean(side)) ** 2 for one in side)
            spread[1] += len(side) - 1
        spread_out[0] += sum((one - np.mean(sides[0])) ** 2 for one in sides[0])
        spread_out[1] += len(sides[0]) - 1
    scores = []
    for d, (out, inside) in enumerate(found):
        others = np.mean([losses[d] for learned, losses in references if not learned[d]], 0)
        votes = []
        for width in (2, 3, 4, 6, 9, 13, 18, 25, 32, 40):
            width = min(width, len(others))
            places = range(len(others) - width + 1)
            votes.append(np.mean([sum(others[i:i + width]) > sum(own[d][i:i + width])
                                  for i in places]))
        phi, variance = confidence(own[d]), spread[0] / spread[1]
        scores.append({"ratio": np.mean(others) - np.mean(own[d]), "windows": np.mean(votes),
                       "lira_offline": (phi - np.mean(out)) / math.sqrt(spread_out[0]
                                                                        / spread_out[1]),
                       "lira_online": ((phi - np.mean(out)) ** 2 - (phi - np.mean(inside)) ** 2)
                       / (2 * variance)})
    return scores


def differences(inside, log_p):
    """Of each pair of documents: the mean of log_p of the second by references that have learned the
    first, less that by the others, and its standard error. inside, log_p: [reference, document]."""
    count = [inside.sum(0), (1 - inside).sum(0)]  # by document
    means = [inside.T @ log_p / count[0][:, None], (1 - inside).T @ log_p / count[1][:, None]]
    error = np.zeros_like(means[0])
    for of in range(inside.shape[1]):
        for side in (0, 1):
            own = log_p[inside[:, of] == 1 - side]
            error[of] += own.var(0, ddof=1) / len(own)
    return means[0] - means[1], np.sqrt(error)


def decisions(references):
    """Online LiRA of every document for each reference by the others: [reference, document]."""
    return np.array([[one["lira_online"] for one in
                      reference_scores(losses, references[:r] + references[r + 1:])]
                     for r, (_, losses) in enumerate(references)])


class References(RunTest):
    def check_references(self, out, report):
        run, groups = report["runs"][0], [group["name"] for group in report["groups"]]
        own = [group for group in run["recitations"] if group["prompt"] == 0]
        with open(os.path.join(out, "trial-1-standard", "recitations.json")) as file:
            losses = json.load(file)["losses"]
        references = []
        for number in range(6):
            with open(os.path.join(out, f"trial-1-reference-{number + 1}", "losses.json")) as file:
                one = json.load(file)
            references.append([one["learned"], one["losses"]])
        for first, second in zip(references[::2], references[1::2]):
            self.assertEqual(first[0], [not one for one in second[0]])
        self.check_counterfactual(report, references)
        want = reference_scores(losses, references)
        for got, scores, tokens in zip(own, want, losses):
            self.assertAlmostEqual(got["score_loss"], -np.mean(tokens), delta=1e-5)
            for name, value in scores.items():
                self.assertAlmostEqual(got["score_" + name], value, delta=1e-6 * (1 + abs(value)))
        rows = [row for row in report["membership"] if row["score"] in want[0]]
        self.assertEqual(len(rows), 2 * 4)
        for row in rows:
            kinds = [[scores[row["score"]] for got, scores in zip(own, want)
                      if groups[got["group"]] == group] for group in (row["group"], "none")]
            if row["score"] == "lira_online":  # the control in turn
                kinds[1] = kinds[1][0 if row["group"] == "often" else 1::2]
            self.assertEqual([row["members"], row["non_members"]], [len(one) for one in kinds])
            area, error = auc(*kinds)
            self.assertAlmostEqual(row["auc"], area, delta=1e-6)
            self.assertAlmostEqual(row["auc_error"], error, delta=1e-6)
        return {(row["group"], row["score"]): row["auc"] for row in rows}

    def check_counterfactual(self, report, references):
        inside = np.array([learned for learned, _ in references], float)
        log_p = np.array([[-np.mean(one) for one in losses] for _, losses in references])
        gain, error = differences(inside, log_p)
        for row in report["counterfactual"]:
            d = row["document"]
            self.assertAlmostEqual(row["memorized_nats"], gain[d, d], delta=1e-6)
            self.assertAlmostEqual(row["memorized_error"], error[d, d], delta=1e-6)
        pairs = ~np.eye(len(gain), dtype=bool)
        rows, largest = report["influences"], -np.sort(-gain[pairs])
        self.assertEqual(len(rows), 20)
        for row, nats in zip(rows, largest):
            at = row["document"], row["on"]
            self.assertNotEqual(*at)
            self.assertAlmostEqual(row["nats"], nats, delta=1e-6)
            self.assertAlmostEqual(row["nats"], gain[at], delta=1e-6)
            self.assertAlmostEqual(row["error"], error[at], delta=1e-6)
            self.assertAlmostEqual(row["deviations"], nats / gain[pairs].std(ddof=1), delta=1e-5)
            self.assertEqual(row["on_name"], report["document_names"][row["on"]])
        self.check_decisions(report, references, inside, gain)

    def check_decisions(self, report, references, inside, gain):
        scores, groups = decisions(references), {}
        for row in report["counterfactual"]:
            groups.setdefault(row["group"], []).append(row["document"])
        self.assertEqual([row["group"] for row in report["references"]], ["often", "seldom"])
        for row in report["references"]:
            own = groups[row["group"]]
            self.assertEqual((row["documents"], row["references"]), (6, 6))
            values = gain[own, own]
            self.assertAlmostEqual(row["memorized_nats"], values.mean(), delta=1e-6)
            self.assertAlmostEqual(row["memorized_error"], values.std(ddof=1) / math.sqrt(6),
                                   delta=1e-6)
            above, flips, areas = scores[:, own] > 0, [], []
            for d in range(6):
                for side in (0, 1):
                    found = above[inside[:, own[d]] == side, d]
                    flips.append(np.mean([a != b for i, a in enumerate(found)
                                          for b in found[:i]]))
            for r in range(6):
                sides = [scores[r, own][inside[r, own] == side] for side in (1, 0)]
                if min(map(len, sides)) >= 2:
                    areas.append(auc(*map(list, sides))[0])
            self.assertAlmostEqual(row["lira_flips"], np.mean(flips), delta=1e-9)
            self.assertAlmostEqual(row["lira_right"], (above == inside[:, own]).mean(), delta=1e-9)
            for key, value in (("mean", np.mean(areas)), ("min", min(areas)), ("max", max(areas))):
                self.assertAlmostEqual(row["lira_auc_" + key], value, delta=1e-9)

    def test_scores_by_references_on_grids_follow_from_their_definitions(self):
        axonn("data", "synthetic", "--records", 30, "--out", self.path("records.jsonl"))
        with open(self.path("study.toml"), "w") as file:
            file.write(CONFIG.replace("records.jsonl", self.path("records.jsonl")) + REFERENCES)
        apart = "--memorize.references_apart", "--parallelism.device", "cpu"
        runs = [("1,1,1,1", 0, ()), ("2,1,2,1", 0, ()), ("1,1,1,2", 0, apart)]
        if mpirun():
            runs += [("2,1,1,1", 2, ()), ("1,1,2,1", 2, apart)]
        for number, (grid, processes, more) in enumerate(runs):
            with self.subTest(grid=grid, processes=processes, more=more):
                out = self.path(f"references-{number}")
                axonn("memorize", self.path("study.toml"), "--output.dir", out,
                      "--parallelism.grid", grid, *more, processes=processes)
                with open(os.path.join(out, "report.json")) as file:
                    areas = self.check_references(out, json.load(file))
                self.assertGreater(areas["often", "ratio"], 0.6)


if __name__ == "__main__":
    main()
