"""Commands whose files are attacked, each with the judgement of what it left."""

import hashlib
import shutil
from pathlib import Path

from harness import Attacked, Result, Run, finish, start


def contents(folder: Path) -> dict:
    """The checksum of each file below a folder, by its path; temporary names as they are."""
    if folder.is_file():
        return {folder.name: hashlib.sha256(folder.read_bytes()).hexdigest()}
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


class Scenario:
    """A command that reads `given` and writes `made`, both in its folder. `given` must never
    change, and all `made*` must be what it is without an attack whenever the command says that it
    succeeded, and when it is run again."""

    def __init__(self, attacked: Attacked, name: str):
        self.name = name
        self.folder = attacked.folder / name
        self.folder.mkdir()
        self.given = self.folder / "given"
        self.made = self.folder / "made"
        self.words = []
        self.program = attacked.program

    def product(self):
        """What is compared with the product of a run without an attack."""
        return {path.name: contents(path) for path in self.folder.glob("made*")}

    def ready(self):
        """Records the product without an attack."""
        result = self.execute()
        if result.code != 0:
            raise RuntimeError(f"{self.name} fails without an attack: {result.text()}")
        self.expected = self.product()
        self.untouched = contents(self.given)
        self.clear()
        return self

    def clear(self):
        """Removes what was made, and temporary files beside it."""
        for path in self.folder.glob("made*"):
            shutil.rmtree(path) if path.is_dir() else path.unlink()

    def execute(self, prefix=(), **options) -> Result:
        return finish(start([*prefix, *self.words], self.folder, **options), self.folder)

    def fault(self, result: Result, what: str, killed=False) -> str | None:
        """Judges a run that was attacked, then runs the command again. Clears what was made."""
        fault = self.judge(result, killed)
        self.clear()
        return f"{self.name}: {what}: {fault}" if fault else None

    def judge(self, result, killed):
        if result.code == 0 and self.product() != self.expected:
            return f"the exit code is 0, but the product differs: {result.text()}"
        if result.code != 0 and not killed and "error: " not in result.err:
            return f"it fails without a message: {result.text()}"
        if contents(self.given) != self.untouched:
            return "its input has changed"
        again = self.execute()
        if again.code != 0:
            return f"it fails when run again: {again.text()}\nafter: {result.text()}"
        if self.product() != self.expected:
            return f"the product differs when it is run again, after: {result.text()}"
        left = [path.name for path in self.folder.rglob("*.tmp-*")]
        return f"temporary files stay: {left}" if left else None


class Training(Scenario):
    """Trains with checkpoints. From a given run that was stopped half-way it also loads one."""

    def __init__(self, attacked: Attacked, name: str, half_way: bool):
        super().__init__(attacked, name)
        run = Run(attacked, f"{name}/run", steps=12, every=4)
        self.out = run.out
        self.given.mkdir()
        if half_way:
            run.run()
            checkpoints = run.out / "checkpoints"
            shutil.rmtree(checkpoints / "step-12")
            (checkpoints / "latest").write_text("step-8\n")
            run.out.rename(self.given / "out")
        self.run = run
        self.words = run.command()
        self.restore()

    def restore(self):
        shutil.rmtree(self.out, ignore_errors=True)
        if (self.given / "out").exists():
            shutil.copytree(self.given / "out", self.out)

    def clear(self):
        self.restore()

    def product(self):
        checkpoint = self.out / "checkpoints/step-12"
        return self.run.losses(), [contents(path) for path in checkpoint.glob("*.safetensors")]


def training(attacked):
    return Training(attacked, "save", half_way=False).ready()


def resuming(attacked):
    return Training(attacked, "load", half_way=True).ready()


def tokenizing(attacked):
    scenario = Scenario(attacked, "tokenize")
    scenario.given.mkdir()
    text = "".join(attacked.rng.choice(["so it goes ", "tree\n", "été "]) for _ in range(20000))
    (scenario.given / "a.txt").write_text(text)
    scenario.words = [scenario.program, "data", "tokenize", "--text", scenario.given / "a.txt",
                      "--out", scenario.folder / "made-tokens", "--overwrite"]  # fmt: skip
    return scenario.ready()


def exporting(attacked):
    scenario = Scenario(attacked, "export")
    run = Run(attacked, "export/run", steps=2)
    run.run()
    (run.out / "checkpoints").rename(scenario.given)
    scenario.words = [scenario.program, "convert", "--model", scenario.given, "--out",
                      scenario.made, "--overwrite"]  # fmt: skip
    return scenario.ready()


ALL = (training, resuming, tokenizing, exporting)
