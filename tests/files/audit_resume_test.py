"""An audit that is killed goes on where it was."""
import json
import os
import subprocess

import program
from memorization_test import CONFIG
from program import RunTest, axonn, main


class AuditResume(RunTest):
    @staticmethod
    def lines_of(path):
        if not os.path.exists(path):
            return 0
        with open(path) as file:
            return file.read().count("\n")

    def test_audits_go_on_after_a_kill_with_the_same_result(self):
        axonn("data", "synthetic", "--records", 400, "--out", self.path("records.jsonl"))
        run = self.train("run", config=CONFIG.replace("records.jsonl", self.path("records.jsonl")))
        def arguments(out):
            return ["memorize", "--audit", "--model", os.path.join(run, "checkpoints"),
                    "--documents", self.path("records.jsonl"), "--suffix", "20", "--seq-len", "193",
                    "--batch", "2", "--json", self.path(out)]
        axonn(*arguments("whole.json"))
        part = self.path("killed.json.part")
        with subprocess.Popen([program.PROGRAM, *arguments("killed.json")],
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
            while process.poll() is None:  # until it has made some
                if self.lines_of(part) > 1:
                    process.kill()
            process.wait()
        made = self.lines_of(part) - 1
        done = subprocess.run([program.PROGRAM, *arguments("killed.json")], capture_output=True,
                              text=True, check=True)
        if made >= 64:
            self.assertIn("goes on after", done.stderr)
        self.assertFalse(os.path.exists(part))
        reports = []
        for name in ("whole.json", "killed.json"):
            with open(self.path(name)) as file:
                reports.append(json.load(file))
        self.assertEqual(*[one["runs"][0]["recitations"] for one in reports])
        self.assertEqual(len(reports[0]["runs"][0]["recitations"]), 400)

    def killed(self, command, part, wanted):
        """Kills a command once so many lines of its part begin with '['; returns their number."""
        made = 0
        with subprocess.Popen(command, stdout=subprocess.DEVNULL,
                              stderr=subprocess.DEVNULL) as process:
            while process.poll() is None and made < wanted:
                if os.path.exists(part):
                    with open(part) as file:
                        made = sum(line.startswith("[") for line in file)
            process.kill()
        return made

    def test_searches_near_a_text_and_reference_scores_go_on_too(self):
        axonn("data", "synthetic", "--records", 200, "--out", self.path("records.jsonl"))
        axonn("data", "synthetic", "--records", 150, "--seed", 7, "--out", self.path("new.jsonl"))
        config = CONFIG.replace("records.jsonl", self.path("records.jsonl"))
        run = self.train("run", config=config)
        other = self.train("other", "--training.seed", "5", config=config)
        part = self.path("killed.json.part")

        def command(out):
            return [program.PROGRAM, "memorize", "--audit",
                    "--model", os.path.join(run, "checkpoints"),
                    "--reference", os.path.join(other, "checkpoints"),
                    "--documents", self.path("records.jsonl"),
                    "--control", self.path("new.jsonl"), "--suffix", "4", "--seq-len", "193",
                    "--near", "0,1", "--near-beams", "4", "--near-samples", "20",
                    "--policies", "t=1,k=5",
                    "--batch", "8", "--json", self.path(out)]
        subprocess.run(command("whole.json"), capture_output=True, check=True)
        # In the search of the first distance, of the second, in samples, and in the losses by the
        # reference.
        for wanted in (20, 500, 900, 3 * 350 + 320):
            self.assertGreaterEqual(self.killed(command("killed.json"), part, wanted), wanted)
        with open(part) as file:
            lines = file.readlines()
        with open(part, "w") as file:  # as if killed in a later round of documents
            file.writelines(lines[:1 + 350 + 3 * 350 + 330] + ["[0.5, "])
        done = subprocess.run(command("killed.json"), capture_output=True, text=True, check=True)
        self.assertIn("goes on after 350 recitations and 1,380 further values", done.stderr)
        reports = []
        for name in ("whole.json", "killed.json"):
            with open(self.path(name)) as file:
                reports.append(json.load(file))
        for of in ("runs", "origin", "variants"):  # which have seconds, dates and commands
            for report in reports:
                kept = report.pop(of)
                if of == "runs":
                    report["recitations"] = kept[0]["recitations"]
        self.assertEqual(*reports)
        recitations = reports[0]["recitations"]
        self.assertEqual(len(recitations), 350)
        for one in recitations:
            self.assertEqual([near["epsilon"] for near in one["near"]], [0, 1])
            self.assertEqual([near["samples"] for near in one["near"]], [20, 20])
            self.assertIn("score_ratio", one)

    def test_recitations_of_another_file_of_the_same_name_do_not_count(self):
        axonn("data", "synthetic", "--records", 400, "--out", self.path("records.jsonl"))
        run = self.train("run", config=CONFIG.replace("records.jsonl", self.path("records.jsonl")))
        model = self.path("model.gguf")
        axonn("convert", "--model", run, "--to", "gguf", "--out", model)
        command = [program.PROGRAM, "memorize", "--audit", "--model", model, "--documents",
                   self.path("records.jsonl"), "--suffix", "20", "--seq-len", "193", "--batch", "2",
                   "--json", self.path("killed.json")]
        part = self.path("killed.json.part")

        with subprocess.Popen(command, stdout=subprocess.DEVNULL,
                              stderr=subprocess.DEVNULL) as process:
            while process.poll() is None and self.lines_of(part) < 66:  # a round and the first
                pass
            process.kill()
        self.assertGreaterEqual(self.lines_of(part), 66)
        os.utime(model, (1, 1))  # as if it had been replaced
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        self.assertNotIn("goes on after", done.stderr)


if __name__ == "__main__":
    main()
