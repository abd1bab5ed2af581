"""The examples, as they stand."""
import importlib.util
import json
import pathlib
import re

import pytest

from conftest import CONFIG

PROJECT = pathlib.Path(__file__).parents[2]
EXAMPLES = PROJECT / "examples" / "python"


def test_the_cells_of_the_notebook_run(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    cells = json.loads((EXAMPLES / "first_steps.ipynb").read_text())["cells"]
    names = {}
    for number, cell in enumerate(each for each in cells if each["cell_type"] == "code"):
        exec(compile("".join(cell["source"]), f"cell {number}", "exec"), names)
    assert names["losses"][-1] < names["losses"][0] and names["run"].status == "finished"
    assert "largest relative difference of 60 losses" in capsys.readouterr().out


@pytest.mark.parametrize("page", ["README.md", "docs/python.md"])
def test_the_first_lines_of_a_page_run_as_they_stand(page, tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "configs").symlink_to(PROJECT / "configs")
    text = (PROJECT / page).read_text()
    exec(compile(re.search(r"```python\n(.*?)```", text, re.S)[1], page, "exec"), {})
    assert "step 50/50" in capfd.readouterr().out


def test_the_trainer_tunes_logs_and_evaluates(run, tmp_path):
    spec = importlib.util.spec_from_file_location("trainer", EXAMPLES / "trainer.py")
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    chats = [{"messages": [{"role": "user", "content": "a"},
                           {"role": "assistant", "content": "b"}]}] * 40
    logged = []
    args = example.TrainingArguments(str(tmp_path / "out"), max_steps=3,
                                     gradient_accumulation_steps=2)
    trainer = example.Trainer(run.folder, args, chats, callbacks=[logged.append], data_ranks=2)
    trained = trainer.train()
    assert [step["step"] for step in logged] == [1, 2, 3]
    assert "global_batch = 4" in trained.checkpoint().text("config.toml")
    assert trainer.evaluate(["The town"])["eval_loss"] > 0


def test_the_harness_scores_as_the_command_does(run, tmp_path):
    pytest.importorskip("lm_eval", reason="lm-eval is not installed")
    import axonn
    from axonn.lm_eval import AxonnLM

    lines = [{"question": f"The town of {name}", "choices": ["lies", "is not"], "answer": 0}
             for name in ("Hawbridge", "Aldergate", "Yew")]
    questions = tmp_path / "questions.jsonl"
    questions.write_text("".join(json.dumps(line) + "\n" for line in lines))
    want = axonn.evaluate(run.folder, choices=questions)["questions"]

    class Request:
        def __init__(self, *args):
            self.args = args

    asked = [Request(line["question"], " " + choice)
             for line in lines for choice in line["choices"]]
    got = AxonnLM(str(run.folder)).loglikelihood(asked)
    scores = [each for question in want for each in question["log_likelihoods"]]
    # Batches of other lengths: products of other shapes, whose f32 round by about 1e-6.
    assert [score for score, _ in got] == pytest.approx(scores, abs=1e-4)
    assert [greedy for _, greedy in got] == [each for one in want for each in one["greedy"]]
