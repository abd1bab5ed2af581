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
