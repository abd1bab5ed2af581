"""axonn export and output.tensorboard, read back without the program."""
import csv
import glob
import json
import math
import os
import struct
import sys

import events
from program import RunTest, axonn, main

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "..", "python"))
from axonn import checkpoint as reader  # noqa: E402


def float32(value):
    return struct.unpack("<f", struct.pack("<f", value))[0]


def metrics_of(run):
    with open(os.path.join(run, "metrics.jsonl")) as file:
        return [json.loads(line) for line in file]


def events_of(folder):
    """The events of a folder's files in the order in which TensorBoard reads them."""
    files = sorted(glob.glob(os.path.join(folder, "events.out.tfevents.*")))
    return [event for file in files for event in events.events(file)]


SERIES = {"loss": "loss/train", "val_loss": "loss/validation", "grad_norm": "optimizer/grad_norm",
          "lr": "optimizer/lr", "tokens": "data/tokens", "step_ms": "speed/step_ms",
          "memory_bytes": "memory/peak_bytes"}


class Events(RunTest):
    def check(self, steps, metrics):
        self.assertEqual([event["step"] for event in steps], [line["step"] for line in metrics])
        for event, line in zip(steps, metrics):
            self.assertAlmostEqual(event["time"], line["time"], places=3)
            for key, series in SERIES.items():
                self.assertEqual(series in event["values"], key in line, key)
                if key in line:
                    self.assertEqual(event["values"][series], float32(line[key]))

    def test_a_run_writes_each_step_once_with_the_values_of_its_metrics_and_its_config(self):
        run = self.train("run", "--output.tensorboard")
        found = events_of(run)
        self.assertEqual(found[0]["version"], "brain.Event:2")
        texts = {tag: text for event in found for tag, text in event["values"].items()
                 if isinstance(text, str)}
        with open(os.path.join(run, "config.toml")) as file:
            want = [line.rstrip("\n") for line in file]
        self.assertEqual([line[4:] for line in texts["config"].splitlines()], want)
        self.assertIn("- grid: x 1, y 1, z 1, data 1", texts["run"])
        steps = [event for event in found if "loss/train" in event["values"]]
        self.check(steps, metrics_of(run))
        self.assertEqual(sum("loss/validation" in event["values"] for event in steps), 3)

    def test_samples_are_texts_that_a_resumed_run_and_an_export_repeat(self):
        flags = ["--output.tensorboard", "--checkpoint.every", "2", "--samples.prompts", "a,bc",
                 "--samples.tokens", "3", "--samples.every", "2"]
        run = self.train("run", *flags)
        os.rename(os.path.join(run, "checkpoints", "step-6"), self.path("gone"))
        self.train("run", *flags, "--checkpoint.resume", "auto")
        out = self.path("events")
        axonn("export", run, "--format", "tensorboard", "--out", out)
        want = [(line["step"], line["prompt"], line["text"]) for line in reader.samples(run)]
        self.assertEqual([(step, prompt) for step, prompt, _ in want],
                         [(step, prompt) for step in (2, 4, 6) for prompt in ("a", "bc")])
        for folder in (run, out):
            texts = [(event["step"], tag, text) for event in events_of(folder)
                     for tag, text in event["values"].items() if tag.startswith("sample/")]
            self.assertEqual([tag for _, tag, _ in texts], 3 * ["sample/1", "sample/2"])
            for (step, prompt, text), event in zip(want, texts):
                self.assertEqual(event[0], step)
                for part in (prompt, text.split("\n")[0]):
                    self.assertIn("    " + part, event[2])
        self.assertEqual(reader.end(run), ("finished", "all steps are done"))

    def test_a_resumed_run_repeats_no_step_and_drops_those_that_run_again(self):
        flags = ["--output.tensorboard", "--checkpoint.every", "2"]
        run = self.train("run", *flags)
        first = events_of(run)
        os.rename(os.path.join(run, "checkpoints", "step-6"), self.path("gone"))
        for file in glob.glob(os.path.join(run, "events.*")):  # a crash within a record
            with open(file, "ab") as out:
                out.write(b"\x20\0\0")
        for _ in range(2):  # resumed at 4, then nothing is left to do
            self.train("run", *flags, "--checkpoint.resume", "auto", "--training.steps", "8")
        found = events_of(run)
        steps = [event for event in found if "loss/train" in event["values"]]
        self.check(steps, metrics_of(run))
        self.assertEqual([event["step"] for event in steps], [1, 2, 3, 4, 5, 6, 7, 8])
        self.assertEqual([e for e in found if e["step"] in range(1, 5)],
                         [e for e in first if e["step"] in range(1, 5)])
        self.assertIn(5, [event["step"] for event in found if event.get("starts")])

    def test_a_run_that_replaces_another_has_no_events_of_it(self):
        self.train("run", "--output.tensorboard")
        run = self.train("run", "--output.tensorboard", "--output.overwrite",
                         "--training.steps", "2")
        self.assertEqual(max(event["step"] for event in events_of(run)), 2)
        run = self.train("run", "--output.overwrite")
        self.assertEqual(events_of(run), [])


class Export(RunTest):
    def test_csv_has_a_row_a_step_and_a_column_a_series(self):
        run = self.train("run")
        axonn("export", run, "--format", "csv", "--out", self.path("run.csv"))
        with open(self.path("run.csv")) as file:
            rows = list(csv.DictReader(file))
        metrics = metrics_of(run)
        self.assertEqual(len(rows), len(metrics))
        for row, line in zip(rows, metrics):
            self.assertEqual(int(row["step"]), line["step"])
            self.assertEqual(float(row["time"]), line["time"])
            for key, series in SERIES.items():
                self.assertEqual(row[series], "" if key not in line else row[series])
                if key in line:
                    self.assertEqual(float(row[series]), line[key])

    def test_tensorboard_equals_what_the_run_itself_writes(self):
        run = self.train("run", "--output.tensorboard")
        out = self.path("events")
        axonn("export", run, "--format", "tensorboard", "--out", out)
        steps = [[e for e in events_of(folder) if "loss/train" in e["values"]]
                 for folder in (run, out)]
        self.assertEqual(*steps)
        error = axonn("export", run, "--format", "tensorboard", "--out", out, code=2)
        self.assertIn("has files of events", error)

    def test_values_that_are_not_finite_old_lines_and_damaged_ones(self):
        self.write("old/metrics.jsonl", '{"step": 1, "loss": null, "step_ms": 500.0, "mfu": null}\n'
                   'garbage\n{"step": 2, "loss": 2.5, "step_ms": 250.0, "new": 7}\n{"step": 3, "lo')
        axonn("export", self.path("old"), "--format", "csv", "--out", self.path("old.csv"))
        with open(self.path("old.csv")) as file:
            rows = list(csv.DictReader(file))
        self.assertEqual([row["step"] for row in rows], ["1", "2"])
        self.assertTrue(math.isnan(float(rows[0]["loss/train"])))
        self.assertEqual([float(row["time"]) for row in rows], [0.5, 0.75])
        self.assertEqual([row["other/new"] for row in rows], ["", "7"])
        self.assertNotIn("speed/mfu", rows[0])
        self.write("other/a.txt", "")
        self.assertIn("other holds no run; name a run's output.dir", axonn(
            "export", self.path("other"), "--format", "csv", "--out", "x.csv", code=2))

    def test_several_runs_are_one_table_with_the_run_in_front(self):
        self.write("sweep/b/metrics.jsonl", '{"step": 1, "time": 2.0, "loss": 3.0}\n')
        self.write("sweep/a,1/metrics.jsonl",
                   '{"step": 1, "time": 1.0, "loss": 4.0, "val_loss": 5.0}\n'
                   '{"step": 2, "time": 1.5, "loss": 3.5}\n')
        self.write("sweep/a,1/checkpoints/config.toml", "")
        for number, words in enumerate((["sweep"], ["sweep/b", "sweep/a,1", "sweep/b"])):
            out = self.path(f"{number}.csv")
            said = axonn("export", *(self.path(word) for word in words), "--format", "csv",
                         "--out", out)
            self.assertIn("3 steps of 2 runs", said)
            with open(out) as file:
                rows = list(csv.DictReader(file))
            found = {(os.path.relpath(row["run"], self.folder), row["step"]):
                     (row["loss/train"], row["loss/validation"]) for row in rows}
            self.assertEqual({key: tuple(float(x) if x else None for x in value)
                              for key, value in found.items()},
                             {("sweep/a,1", "1"): (4, 5), ("sweep/a,1", "2"): (3.5, None),
                              ("sweep/b", "1"): (3, None)})
        axonn("export", self.path("sweep"), "--format", "tensorboard", "--out", self.path("all"))
        folders = {os.path.basename(folder) for folder, _, files in os.walk(self.path("all"))
                   if files}
        self.assertEqual(folders, {"a,1", "b"})


if __name__ == "__main__":
    main()
