"""axonn.train and its relatives against the commands of the program."""
import json
import os
import signal
import subprocess
import sys

import numpy as np
import pytest

import axonn
from axonn import _program
from conftest import CONFIG, command, command_json


#: conftest.CONFIG as a file.
TOML = """
[model]
layers = 2
hidden = 32
heads = 4
vocab = 256
positions = 80
[data]
synthetic = 20000
validation = "0.1"
[training]
steps = 6
seq_len = 16
global_batch = 8
threads = 1
[optimizer]
lr = 1e-2
"""


def losses(lines):
    return [line["loss"] for line in lines]


def test_a_runs_metrics_are_those_of_the_command_to_the_bit(tmp_path):
    config = tmp_path / "config.toml"
    config.write_text(TOML)
    command("train", config, "--output.dir", tmp_path / "command", "--parallelism.x", 2)
    want = losses(axonn.checkpoint.metrics(tmp_path / "command"))
    by_file = axonn.train(config, progress=False, output={"dir": tmp_path / "file"},
                          **{"parallelism.x": 2})
    assert losses(by_file) == want and len(want) == 6
    assert by_file.status == "finished"
    by_dict = axonn.train({**CONFIG, "parallelism": {"x": 2}, "output": {"dir": tmp_path / "dict"}},
                          progress=False)
    assert by_dict.folder == tmp_path / "dict"
    assert losses(by_dict) == want
    assert by_dict.checkpoint().step == 6


def test_values_of_every_kind_reach_the_program(tmp_path):
    run = axonn.train(CONFIG, progress=False, training={"goldfish": {"k": 2, "h": 2}},
                      output={"dir": tmp_path / 'a "folder"', "tensorboard": True},
                      samples={"every": 2, "prompts": ["é", "="]}).wait()
    assert run.folder == tmp_path / 'a "folder"'
    text = run.checkpoint().text("config.toml")
    for line in ("lr = 0.01", "tensorboard = true", 'prompts = ["é", "="]', "k = 2"):
        assert line in text, text


def test_a_stopped_run_resumes_with_the_losses_of_one_that_was_not(tmp_path):
    keys = {"training": {"steps": 400, "threads": 1}}
    want = losses(axonn.train(CONFIG, progress=False, output={"dir": tmp_path / "whole"}, **keys))
    run = axonn.train(CONFIG, progress=False, output={"dir": tmp_path / "run"}, **keys)
    for line in run:
        if line["step"] == 3:
            break
    run.stop()
    if run.status == "finished":
        pytest.fail("400 steps ended before the signal came")
    assert run.status == "stopped"
    again = run.resume()
    steps = [line["step"] for line in again]
    assert steps[-1] == 400 and steps == list(range(steps[0], 401)) and steps[0] > 1
    assert losses(again.metrics()) == want


def texts(count):
    """Texts of Python, the same in each pass."""
    return (f"Text {i} of {count}, whose length is {'long, ' * (i % 5)}so.\n" for i in range(count))


FED = {**CONFIG, "data": {"validation": ""}}


def test_data_of_an_iterable_are_trained_on_as_a_file_of_their_tokens(tmp_path):
    tokens = np.frombuffer("".join(texts(100)).encode(), np.uint8)
    np.save(tmp_path / "tokens.npy", tokens[: 6 * 8 * 16 + 1])
    want = losses(axonn.train(FED, progress=False, output={"dir": tmp_path / "file"},
                              **{"data.tokens": tmp_path / "tokens.npy", "data.shuffle": False}))
    forms = {"texts": texts(100), "dicts": [{"text": each} for each in texts(100)],
             "arrays": (np.frombuffer(each.encode(), np.uint8) for each in texts(100)),
             "ids": ({"input_ids": list(each.encode())} for each in texts(100))}
    for name, data in forms.items():
        run = axonn.train(FED, data, progress=False, output={"dir": tmp_path / name})
        assert losses(run) == want, name


def test_a_run_on_an_iterable_resumes_where_it_was_in_the_data(tmp_path):
    keys = {"training": {"steps": 60, "threads": 1}}
    want = losses(axonn.train(FED, texts(10000), progress=False, output={"dir": tmp_path / "whole"},
                              **keys))
    passed = []
    run = axonn.train(FED, list(texts(10000))[:30], progress=False, **keys,
                      output={"dir": tmp_path / "run"}, checkpoint={"every": 2})
    with pytest.raises(axonn.UsageError, match="ended after 30 items"):
        for line in run:
            passed.append(line["step"])
    class Skips(list):
        def skip(self, count):
            passed.append(f"skip {count}")
            return self[count:]
    again = axonn.train(FED, Skips(texts(10000)), progress=False, **keys,
                        output={"dir": tmp_path / "run"}, checkpoint={"resume": "auto"})
    steps = [line["step"] for line in again]
    assert passed[-1] == "skip 30" and passed[-2] < 60
    assert 1 < steps[0] <= passed[-2] + 1 and steps[-1] == 60
    assert losses(again.metrics()) == want
    more = axonn.train(FED, texts(10000), progress=False, output={"dir": tmp_path / "run"},
                       training={"steps": 62, "threads": 1}, checkpoint={"resume": "auto"})
    assert [line["step"] for line in more] == [61, 62]
    with pytest.raises(axonn.UsageError, match="exists: resume it"):
        axonn.train(FED, texts(10), progress=False, output={"dir": tmp_path / "run"}, **keys)


def test_what_an_iterable_raises_is_raised(tmp_path):
    def broken():
        yield "a text"
        raise ZeroDivisionError("of the data set")
    run = axonn.train(FED, broken(), progress=False, output={"dir": tmp_path / "run"})
    with pytest.raises(ZeroDivisionError, match="of the data set"):
        run.wait()


def test_what_is_wrong_is_said_before_anything_starts(tmp_path):
    for keys, words in (({"training.stepz": 3}, "stepz"), ({"training": {"steps": -1}}, "steps"),
                        ({"data": {"text": ["a,b"]}}, "comma")):
        with pytest.raises(axonn.UsageError, match=words):
            axonn.train(CONFIG, progress=False, output={"dir": tmp_path / "run"}, **keys)
    with pytest.raises(axonn.UsageError, match="is no section"):
        axonn.train({"steps": 3}, progress=False)
    assert not (tmp_path / "run").exists()


def test_a_run_that_fails_raises_the_programs_words(run, tmp_path):
    second = axonn.train(CONFIG, progress=False, output={"dir": run.folder})
    with pytest.raises(axonn.UsageError, match="--output.overwrite"):
        list(second)
    assert second.status == "failed"
    killed = axonn.train(CONFIG, progress=False, output={"dir": tmp_path / "killed"},
                         training={"steps": 100000})
    next(iter(killed))
    killed._process.send_signal(signal.SIGKILL)
    with pytest.raises(axonn.Error, match="SIGKILL"):
        killed.wait()


@pytest.mark.parametrize("end", ["run.wait()", "for line in run: pass", "pass"])
def test_ctrl_c_and_the_interpreters_end_leave_a_checkpoint(tmp_path, end):
    script = (f"import axonn, sys\nrun = axonn.train({CONFIG!r}, progress=False, "
              f"output={{'dir': {str(tmp_path / 'run')!r}}}, training={{'steps': 1000000}})\n"
              f"next(iter(run))\nprint('runs', flush=True)\n{end}\n")
    python = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True)
    assert python.stdout.readline() == "runs\n"
    if end != "pass":
        python.send_signal(signal.SIGINT)
    _, errors = python.communicate()
    assert ("KeyboardInterrupt" in errors) == (end != "pass"), errors
    assert axonn.checkpoint.end(tmp_path / "run")[0] == "stopped"
    assert axonn.Checkpoint(tmp_path / "run").step >= 1


def test_progress_shows_the_programs_lines(tmp_path, capfd, monkeypatch):
    monkeypatch.setitem(sys.modules, "tqdm", None)  # as if it were not installed
    axonn.train(CONFIG, output={"dir": tmp_path / "run"}).wait()
    out = capfd.readouterr().out
    assert "step 6/6" in out and "model: " in out


def test_distill_learns_from_a_teacher(run, tmp_path):
    text = tmp_path / "text.txt"
    text.write_text("The town of Hawbridge has a bridge. " * 40)
    taught = axonn.distill(run.folder, text, run.folder, full=True, progress=False,
                           training={"steps": 2, "seq_len": 16}, **{"data.validation": 0},
                           output={"dir": tmp_path / "taught"})
    first = next(iter(taught))
    taught.wait()
    assert abs(first["loss"]) < 1e-6 and first["teacher_cross_entropy"] > 0


def test_reinforce_calls_a_function_for_rewards(run, tmp_path, capfd):
    seen = []

    def reward(answer):
        seen.append(answer)
        if len(seen) == 3:
            raise ValueError("no reward of this one")
        return {"short": np.float32(-len(answer["completion_ids"])), "none": None}

    prompts = [{"prompt": f"The town {i}", "number": i} for i in range(4)]
    tuned = axonn.reinforce(run.folder, prompts, reward=reward, full=True, progress=False,
                            training={"steps": 2, "seq_len": 16, "global_batch": 4},
                            rl={"group": 2, "max_tokens": 3}, output={"dir": tmp_path / "tuned"})
    steps = list(tuned)
    assert [step["rewards/missing"] for step in steps] == [1, 0]
    assert steps[1]["reward"] == -np.mean([len(one["completion_ids"]) for one in seen[4:]])
    assert len(seen) == 8 and seen[0]["number"] in range(4) and seen[0]["truncated"] in (0, 1)
    assert "no reward of this one" in capfd.readouterr().err


def test_finetune_trains_adapters_on_conversations(run, tmp_path):
    lines = [{"messages": [{"role": "user", "content": "a"},
                           {"role": "assistant", "content": "b"}]}]
    data = tmp_path / "chats.jsonl"
    data.write_text("".join(json.dumps(line) + "\n" for line in lines * 40))
    tuned = axonn.finetune(run.folder, data, progress=False, output={"dir": tmp_path / "tuned"},
                           training={"steps": 2, "seq_len": 16}, lora={"rank": 2})
    assert len(list(tuned)) == 2
    keys = {"training": {"steps": 2, "seq_len": 16, "threads": 1}, "lora": {"rank": 2}}
    of_dicts = axonn.finetune(run.folder, lines * 40, progress=False, **keys,
                              output={"dir": tmp_path / "dicts"})
    of_file = axonn.finetune(run.folder, data, progress=False, **keys,
                             output={"dir": tmp_path / "file"})
    assert losses(of_dicts) == losses(of_file)
    with axonn.Model(run.folder, adapter=tuned.folder) as model:
        assert "attn" in " ".join(tuned.checkpoint())
        assert np.isfinite(model.loss("The town"))


def test_plans_are_rows_of_the_commands_table(tmp_path):
    words = ["plan", "--model", "gpt2-124m", "--machine", "alps", "--devices", "4",
             "--batch-tokens", "8192", "--seq-len", "1024"]
    options = {"model": "gpt2-124m", "machine": "alps", "batch_tokens": 8192, "seq_len": 1024}
    assert axonn.plan(**options, devices=4) == command_json(tmp_path, *words)["plans"]
    scaling = axonn.plan(**options, devices=[4, 8])
    assert len(scaling) == 2 and all(isinstance(row, dict) for row in scaling)


def test_an_audit_gives_a_row_for_each_document(run, tmp_path):
    documents = tmp_path / "documents.jsonl"
    text = "The town of Hawbridge lies by the river."
    documents.write_text("".join(json.dumps({"text": each}) + "\n" for each in (text, text[::-1])))
    options = {"suffix": 4, "prompt_lengths": [4, 8]}
    found = axonn.audit(run.folder, documents, **options)
    want = command_json(tmp_path, "memorize", "--audit", "--model", run.folder, "--documents",
                        documents, "--suffix", 4, "--prompt-lengths", "4,8")
    assert found.summary == want["summary"]
    assert [row["document"] for row in found.recitations] == [
        row["document"] for row in want["runs"][0]["recitations"]]
    assert {row["trial"] for row in found.recitations} == {want["runs"][0]["trial"]}


def test_a_study_gives_its_report(tmp_path):
    config = {**CONFIG, "training": {**CONFIG["training"], "seq_len": 64},
              "memorize": {"bucket_size": 2, "epochs": [1], "suffix_tokens": 8,
                           "prompt_lengths": [8],
                           "losses": ["standard"]}}
    config["lr_scheduler"] = {"warmup_steps": 1}
    study = axonn.memorize(config, progress=False, output={"dir": tmp_path / "study"})
    assert study.summary == json.loads((tmp_path / "study" / "report.json").read_text())["summary"]
    assert {row["variant"] for row in study.recitations} >= {"standard"}


def test_the_console_script_becomes_the_program():
    script = "from axonn._program import main; import sys; sys.argv = ['axonn', 'version']; main()"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout == command("version")
    assert "numpy" not in subprocess.run(
        [sys.executable, "-X", "importtime", "-c", "import axonn._program"], capture_output=True,
        text=True).stderr


def test_without_a_program_the_message_says_what_to_do(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    if os.path.exists(os.path.join(os.path.dirname(axonn.__file__), "_program")):
        pytest.skip("the package has its own")
    with pytest.raises(axonn.Error, match="neither in the package nor on PATH"):
        axonn.plan(model="gpt2-124m")
