"""Memory of an audit does not grow with the text of its documents, and little with their number."""
import json
import os
import subprocess

import program
from memorization_test import CONFIG
from program import RunTest, axonn, main

MIB = 2**20


class AuditMemory(RunTest):
    def peak_of(self, model, name, documents, size):
        """Bytes of memory that the audit of so many documents of this size needs at most."""
        path = self.path(name + ".jsonl")
        with open(path, "w") as file:
            for n in range(documents):
                file.write(json.dumps({"text": f"{n} ".ljust(size, "abcdefgh "[n % 9])}) + "\n")
        command = [program.PROGRAM, "memorize", "--audit", "--model", model, "--documents", path,
                   "--suffix", "4", "--seq-len", "24", "--json", self.path(name + ".json")]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
        self.assertEqual(process.returncode, 0)
        with open(self.path(name + ".json")) as file:
            report = json.load(file)
        self.assertEqual(len(report["runs"][0]["recitations"]), documents)
        self.assertEqual(len(report["document_names"]), documents)
        left = [one for one in os.listdir(self.folder) if ".work" in one or ".part" in one]
        self.assertEqual(left, [], "tokens and recitations are kept no longer than the audit")
        return usage.ru_maxrss * 1024

    def test_grows_by_less_than_a_kilobyte_a_document(self):
        axonn("data", "synthetic", "--records", 100, "--out", self.path("records.jsonl"))
        config = CONFIG.replace("records.jsonl", self.path("records.jsonl"))
        model = os.path.join(self.train("run", config=config), "checkpoints")
        # The first has enough text for all buffers: the second has 33 MB more, in 19,500 documents.
        few = self.peak_of(model, "few", 500, 32_000)
        many = self.peak_of(model, "many", 20_000, 2_450)
        self.assertLess(many - few, 20_000 * 1_000, f"{few / MIB:.0f} and {many / MIB:.0f} MiB")


if __name__ == "__main__":
    main()
