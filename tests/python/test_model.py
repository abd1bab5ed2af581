"""axonn.Model and axonn.Tokenizer against the commands of the program."""
import json
import re
import signal
import subprocess
import threading
import urllib.request

import numpy as np
import pytest

import axonn
from axonn import _program
from conftest import command_json

TEXT = "The town of Hawbridge lies by the river, and its market is held in the square. " * 3
SEQ_LEN = 16


def windows(tokens):
    """The sequences that `axonn eval` makes of a text: all tokens but the first are targets."""
    return [tokens[at : at + SEQ_LEN + 1] for at in range(0, len(tokens) - 1, SEQ_LEN)]


@pytest.mark.parametrize("grid", ["1,1,1,1", "2,1,1,1", "1,2,2,1", (2, 1, 1, 2)])
def test_losses_are_those_of_eval_to_the_bit_on_every_grid(run, tmp_path, grid):
    text = tmp_path / "text.txt"
    text.write_text(TEXT)
    flag = ",".join(map(str, grid)) if isinstance(grid, tuple) else grid
    want = command_json(tmp_path, "eval", "--model", run.folder, "--data", text, "--seq-len",
                        SEQ_LEN, "--grid", flag)
    with axonn.Model(run.folder, grid) as model:
        sequences = windows(model.tokenizer.encode(TEXT))
        assert model.loss(sequences) == want["loss"]
        assert want["loss"] == axonn.evaluate(run.folder, text, seq_len=SEQ_LEN, grid=flag)["loss"]
        logprobs = model.logprobs(sequences)
    assert [len(each) for each in logprobs] == [len(each) - 1 for each in sequences]
    assert all(each.dtype == np.float32 and (each < 0).all() for each in logprobs)


def test_logprobs_follow_from_the_logits(model):
    tokens = model.tokenizer.encode("The town")
    logits = model.logits(tokens).astype(np.float64)
    assert logits.shape == (len(tokens), 256)
    scores = logits - np.log(np.exp(logits).sum(1, keepdims=True))
    want = scores[np.arange(len(tokens) - 1), tokens[1:]]
    np.testing.assert_allclose(model.logprobs(tokens), want, atol=1e-5)
    with axonn.Model(model.folder, "2,2,1,1") as cut:
        np.testing.assert_allclose(cut.logits(tokens), logits, atol=1e-5)


def test_texts_arrays_and_lists_of_tokens_are_the_same_sequence(model):
    want = model.logprobs("The town")
    tokens = np.array(model.tokenizer.encode("The town", begin=True), np.int16)
    for form in (tokens, tokens.tolist(), tuple(tokens.tolist())):
        np.testing.assert_array_equal(model.logprobs(form), want)
    assert model.logprobs([]) == []
    (first, second) = model.logprobs(np.stack([tokens, tokens]))
    np.testing.assert_allclose(first, want, atol=1e-5)
    np.testing.assert_array_equal(first, second)


def test_generation_is_that_of_the_command_to_the_token(run, model, tmp_path):
    prompts = ["The town of", "He", "In 1889, at"]
    for settings in ({"temperature": 0.0}, {"temperature": 0.7, "seed": 5},
                     {"temperature": 1.0, "top_k": 8, "top_p": 0.9, "repetition_penalty": 1.2}):
        flags = [word for name, value in settings.items()
                 for word in ("--" + name.replace("_", "-"), value)]
        words = [word for prompt in prompts for word in ("--prompt", prompt)]
        want = command_json(tmp_path, "generate", "--model", run.folder, "--tokens", 12,
                            "--stop-when-full", *words, *flags)["generations"]
        got = model.generate(prompts, max_tokens=12, **settings)
        assert [each.tokens for each in got] == [each["tokens"] for each in want]
        assert [each.text for each in got] == [each["text"] for each in want]
        assert [each.finish_reason for each in got] == [each["finish_reason"] for each in want]


def test_ctrl_c_ends_a_call_and_the_next_one_has_a_new_worker(run):
    with axonn.Model(run.folder) as model:
        want = model.logprobs("The town")
        before = model._worker._process
        timer = threading.Timer(0.5, signal.pthread_kill,
                                [threading.main_thread().ident, signal.SIGINT])
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            model.generate(["The"] * 20000, max_tokens=60, temperature=1.0)
        timer.join()
        assert before.returncode == -signal.SIGKILL
        np.testing.assert_array_equal(model.logprobs("The town"), want)


def test_generations_have_scores_copies_and_beams_if_asked(model):
    one = model.generate("The", max_tokens=3, temperature=0, logprobs=2)
    assert one.logprobs.shape == (3,)
    assert [len(each) for each in one.likeliest] == [2, 2, 2]
    assert [each[0][0] for each in one.likeliest] == one.tokens  # the likeliest was taken
    assert str(one) == one.text
    assert len(model.generate("The", max_tokens=3, n=2)) == 2
    beams = model.generate("The", max_tokens=3, temperature=0, n=2, use_beam_search=True)
    assert len(beams.others) == 1 and beams.beam_score >= beams.others[0].beam_score


def test_embeddings_are_those_of_the_server_before_scaling(run, model):
    server = subprocess.Popen([_program.program(), "serve", "--model", run.folder, "--port", "0"],
                              stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        address = re.search(r"http://\S+:\d+", server.stdout.readline())
        if address is None:
            pytest.skip("this build has no web server")
        request = urllib.request.Request(
            address[0] + "/v1/embeddings", json.dumps({"input": ["a town", "by"]}).encode(),
            {"Content-Type": "application/json"})
        with urllib.request.urlopen(request) as answer:
            want = [each["embedding"] for each in json.load(answer)["data"]]
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait()
    got = model.embed(["a town", "by"])
    assert got.shape == (2, 32)
    values = got.astype(np.float64)
    lengths = np.sqrt(np.cumsum(values**2, axis=1)[:, -1:])
    np.testing.assert_array_equal(np.float32(want), (values / lengths).astype(np.float32))
    last = [model.embed(form, pooling="last") for form in ("by", [98, 121])]
    np.testing.assert_array_equal(*last)


def test_weights_are_views_of_the_mapped_files(run, model, tmp_path):
    weights = model.weights()
    base = weights["wte.weight"]
    while base.base is not None and not isinstance(base, np.memmap):
        base = base.base
    assert isinstance(base, np.memmap)
    folder = axonn.convert(run.folder, tmp_path / "hf", dtype="f32")
    with axonn.Model(folder) as converted:
        other = converted.weights()
        np.testing.assert_array_equal(other["transformer.wte.weight"
                                            if "wte.weight" not in other else "wte.weight"],
                                      weights["wte.weight"])
        assert converted.loss("The town of") == model.loss("The town of")


def test_a_tokenizer_needs_no_model_and_has_chat_templates():
    tokenizer = axonn.Tokenizer("bytes")
    assert tokenizer.encode("aé") == [97, 195, 169]
    assert tokenizer.encode_batch(["a", ""]) == [[97], []]
    assert tokenizer.decode([97, 195, 169]) == "aé"
    assert tokenizer.decode([]) == ""
    assert tokenizer.vocab_size == 256
    messages = [{"role": "user", "content": "Hi"}]
    text = "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    assert tokenizer.apply_chat_template(messages, tokenize=False) == text
    assert tokenizer.apply_chat_template(messages) == tokenizer.encode(text)
    tokens, learned = tokenizer.learned([*messages, {"role": "assistant", "content": "Yes"}])
    assert tokenizer.decode([token for token, each in zip(tokens, learned) if each]) == (
        "Yes<|im_end|>")


def test_a_chat_is_answered_by_the_models_template(model):
    answer = model.chat([{"role": "user", "content": "?"}], temperature=0, max_tokens=4)
    prompt = model.tokenizer.apply_chat_template([{"role": "user", "content": "?"}])
    assert answer.tokens == model.generate(prompt, temperature=0, max_tokens=4).tokens


def test_a_call_that_is_refused_has_the_programs_words_and_the_model_goes_on(model):
    before = model.loss("The town")
    for call, words in ((lambda: model.logprobs([1, 256]), "token 256, but the model's vocabulary"),
                        (lambda: model.logprobs(np.zeros(0, int)), "no tokens"),
                        (lambda: model.logits(np.zeros((2, 2), int)), "wanted a text or a list"),
                        (lambda: model.generate("The", top_p=2), "top_p: wanted a number"),
                        (lambda: model.generate("The", tempratur=1), "no setting 'tempratur'"),
                        (lambda: model.logits("x" * 1000), "more than 80")):
        with pytest.raises(axonn.UsageError, match=words):
            call()
    assert model.loss("The town") == before


def test_a_crash_of_the_models_process_is_an_error_and_the_next_call_loads_it_again(run):
    with axonn.Model(run.folder, "2,1,1,1") as model:
        before = model.loss("The town")
        model._worker._process.send_signal(signal.SIGSEGV)
        with pytest.raises(axonn.Error, match="ended by the signal SIGSEGV"):
            model.loss("The town")
        assert model.loss("The town") == before
    with pytest.raises(axonn.UsageError, match="is closed"):
        model.loss("The town")


def test_a_wrong_model_or_grid_has_the_programs_words(run, tmp_path):
    with pytest.raises(axonn.UsageError, match=str(tmp_path / "none")):
        axonn.Model(tmp_path / "none")
    with pytest.raises(axonn.UsageError, match="grid"):
        axonn.Model(run.folder, "0,1,1,1")
