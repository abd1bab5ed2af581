"""The scores of membership that references give, against their definitions, from the losses of tokens
that a study stores."""
import json
import math
import os

import numpy as np

from memorization_test import CONFIG, auc
from program import RunTest, axonn, main

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

    def test_scores_by_references_on_grids_follow_from_their_definitions(self):
        axonn("data", "synthetic", "--records", 30, "--out", self.path("records.jsonl"))
        with open(self.path("study.toml"), "w") as file:
            file.write(CONFIG.replace("records.jsonl", self.path("records.jsonl")) + REFERENCES)
        for grid in ("1,1,1,1", "2,1,2,1"):
            with self.subTest(grid=grid):
                out = self.path("references-" + grid)
                axonn("memorize", self.path("study.toml"), "--output.dir", out,
                      "--parallelism.grid", grid)
                with open(os.path.join(out, "report.json")) as file:
                    areas = self.check_references(out, json.load(file))
                self.assertGreater(areas["often", "ratio"], 0.6)


if __name__ == "__main__":
    main()
