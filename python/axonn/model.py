"""Models and tokenizers, computed by `axonn worker` in a process of its own."""
from __future__ import annotations

import contextlib
import json
import os
import pathlib
import signal
import subprocess
import tempfile
import threading
from dataclasses import dataclass, field
from typing import IO, Any, Dict, Iterable, List, Mapping, Optional, Sequence, Tuple, Union, cast

import numpy as np
import numpy.typing as npt

from . import _program
from ._program import Error, PathLike, UsageError
from .checkpoint import CheckpointError, Checkpoint, find_checkpoint, safetensors

Floats = npt.NDArray[np.float32]
#: A text, or tokens: a list, a numpy array, or an array of another library, such as torch's.
Text = Union[str, Sequence[int], npt.NDArray[Any], Any]
Message = Mapping[str, Any]


class _Worker:
    """`axonn worker`: answers calls one after the other. It is started again if it has ended, and
    ends with its standard input, so also when this object or the interpreter does."""

    def __init__(self, words: List[str]) -> None:
        self._words = ["worker", *words]
        self._process: Optional["subprocess.Popen[bytes]"] = None
        self._errors: Optional[IO[bytes]] = None
        self._shown = 0
        self._closed = False
        self._lock = threading.Lock()

    def call(self, name: str, body: Mapping[str, Any]) -> Tuple[Dict[str, Any], List[Floats]]:
        """The result of a call and its arrays. Raises UsageError for a call that is refused, and
        Error if the worker fails or crashes. Other threads run meanwhile."""
        with self._lock:
            if self._closed:
                raise UsageError("the model is closed")
            if self._process is None:
                self._errors, self._shown = tempfile.TemporaryFile(), 0
                self._process = _program.start(self._words, stdin=subprocess.PIPE,
                                               stdout=subprocess.PIPE, stderr=self._errors)
            try:
                return self._ask(self._process, f"{name} {json.dumps(body)}\n".encode())
            except UsageError:
                raise
            except BaseException:  # the rest of the answer would be taken for the next one
                self._end(signal.SIGKILL)
                raise

    def _ask(self, process: "subprocess.Popen[bytes]",
             call: bytes) -> Tuple[Dict[str, Any], List[Floats]]:
        assert process.stdin is not None and process.stdout is not None
        try:
            process.stdin.write(call)
            process.stdin.flush()
        except BrokenPipeError:
            pass  # the worker has ended, and says why
        line = process.stdout.readline()
        if not line.endswith(b"\n"):
            self._raise_fault(process)
        answer = json.loads(line)
        if "error" in answer:
            raise UsageError(answer["error"])
        arrays: List[Floats] = []
        for shape in answer["arrays"]:
            array = np.empty(shape, np.float32)
            view = array.reshape(-1).view(np.uint8).data
            read = process.stdout.readinto(view) if len(view) else 0  # type: ignore[attr-defined]
            if read != len(view):
                self._raise_fault(process)
            arrays.append(array)
        _program.show(self._new_errors())
        return answer["result"], arrays

    def _new_errors(self) -> str:
        assert self._errors is not None
        self._errors.seek(self._shown)
        text = self._errors.read()
        self._shown += len(text)
        return text.decode(errors="replace")

    def _raise_fault(self, process: "subprocess.Popen[bytes]") -> None:
        code = process.wait()
        fault = _program.fault(self._words, code, self._new_errors())
        self._end(signal.SIGKILL)
        raise fault

    def _end(self, number: int) -> None:
        process, self._process = self._process, None
        if process is not None:
            _program.end(process, number)
            for pipe in (process.stdin, process.stdout, self._errors):
                with contextlib.suppress(BrokenPipeError):
                    cast(IO[bytes], pipe).close()

    def close(self) -> None:
        with self._lock:
            self._closed = True
            self._end(signal.SIGTERM)


def _list(ids: Any) -> List[int]:
    only_dlpack = hasattr(ids, "__dlpack__") and not hasattr(ids, "__array__")
    array = np.from_dlpack(ids) if only_dlpack else np.asarray(ids)
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
        raise UsageError(f"wanted a text or a list of tokens, got an array of {array.dtype} with "
                         f"the shape {array.shape}")
    return cast(List[int], array.tolist())


def _texts(texts: Iterable[Any]) -> List[Union[str, List[int]]]:
    return [each if isinstance(each, str) else _list(each) for each in texts]


def _is_one(text: Text) -> bool:
    """Whether this is one text or one sequence of tokens, not several."""
    if isinstance(text, str):
        return True
    if hasattr(text, "ndim"):
        return int(text.ndim) == 1
    return len(text) > 0 and isinstance(text[0], (int, np.integer))


class Tokenizer:
    """A tokenizer, and the chat template beside it.

    Has the tokens of `axonn`: those of Hugging Face's tokenizers, or bytes."""

    def __init__(self, path: PathLike, chat_template: str = "auto") -> None:
        """path: a tokenizer's folder or file, or "bytes". chat_template: auto, a .jinja file or a
        name (docs/fine-tuning.md)."""
        self._open(_Worker(["--tokenizer", os.fspath(path), "--chat-template", chat_template]))

    def _open(self, worker: _Worker) -> None:
        self._worker = worker
        facts = worker.call("describe", {})[0].get("tokenizer")
        if facts is None:
            raise UsageError("the model's tokenizer is unknown; name it: Model(..., tokenizer=DIR)")
        self.name: str = facts["name"]
        self.vocab_size: int = facts["vocab_size"]
        #: Tokens that come before a text: none, one or several.
        self.begin: List[int] = facts["begin"]
        #: The token that ends a text, or None.
        self.end: Optional[int] = facts["end"]
        #: Added tokens by their characters, such as "<|im_end|>".
        self.added_tokens: Dict[str, int] = facts["added_tokens"]

    @classmethod
    def _of(cls, worker: _Worker) -> "Tokenizer":
        tokenizer = cls.__new__(cls)
        tokenizer._open(worker)
        return tokenizer

    def encode(self, text: str, *, begin: bool = False, added_tokens: bool = True) -> List[int]:
        """The tokens of a text. begin: put self.begin before them, as before a prompt.
        added_tokens: whether "<|im_end|>" in a text is that token, or text."""
        return self.encode_batch([text], begin=begin, added_tokens=added_tokens)[0]

    def encode_batch(self, texts: Sequence[str], *, begin: bool = False,
                     added_tokens: bool = True) -> List[List[int]]:
        """The tokens of each of several texts."""
        call = {"texts": list(texts), "begin": begin, "added_tokens": added_tokens}
        return cast(List[List[int]], self._worker.call("tokenize", call)[0]["tokens"])

    def decode(self, tokens: Any, *, skip_special: bool = False) -> str:
        """The text of tokens. What is not UTF-8 is U+FFFD."""
        call = {"tokens": [_list(tokens)], "skip_special": skip_special}
        return cast(str, self._worker.call("detokenize", call)[0]["texts"][0])

    def apply_chat_template(self, messages: Sequence[Message], *, tokenize: bool = True,
                            add_generation_prompt: bool = True, **more: Any) -> Any:
        """The tokens of a conversation by the model's template or, with tokenize=False, its text.
        more: tools, documents, and chat_template_kwargs, a dict of the template's variables."""
        found = self._chat(messages, add_generation_prompt, more)
        return found["tokens"] if tokenize else found["text"]

    def learned(self, messages: Sequence[Message], **more: Any) -> Tuple[List[int], List[bool]]:
        """The tokens of a conversation as training has them, and whether each is a target."""
        found = self._chat(messages, False, more)
        return found["tokens"], found["learned"]

    def _chat(self, messages: Sequence[Message], prompt: bool,
              more: Mapping[str, Any]) -> Dict[str, Any]:
        return self._worker.call("chat", {"messages": list(messages), **more, "prompt": prompt})[0]


@dataclass
class Generation:
    """A text that a model wrote after a prompt."""

    text: str
    tokens: List[int]
    #: "max_tokens", "stop_token", "stop_string", "context" and others.
    finish_reason: str
    #: Log-probabilities of the tokens in nats, if they were asked for (logprobs=0 or more).
    logprobs: Optional[Floats] = None
    #: Of each token, the likeliest in its place with their log-probabilities, the likeliest first.
    likeliest: List[List[Tuple[int, float]]] = field(default_factory=list)
    #: Of beam search: the score, and the texts beside the best.
    beam_score: Optional[float] = None
    others: List["Generation"] = field(default_factory=list)

    def __str__(self) -> str:
        return self.text


def _generation(found: Mapping[str, Any]) -> Generation:
    scores = found.get("scores")
    return Generation(
        found["text"], found["tokens"], found["finish_reason"],
        None if scores is None else np.array([each["logprob"] for each in scores], np.float32),
        [[(token, score) for token, score in each.get("likeliest", [])] for each in scores or []],
        found.get("beam_score"), [_generation(each) for each in found.get("others", [])])


class Model:
    """A model on a grid of ranks, ready to compute: a checkpoint of any grid, a run's folder or a
    Hugging Face folder.

    It lives in a process of its own, with a rank for each thread: the interpreter goes on if that
    process crashes (which raises Error), computes beside it, and ends it with Ctrl-C; the next call
    loads the model again. Close it with close(), or use it in a with statement."""

    def __init__(self, folder: PathLike, grid: Union[str, Sequence[int]] = "1,1,1,1", *,
                 dtype: Optional[str] = None, device: Optional[str] = None,
                 adapter: Optional[PathLike] = None, tokenizer: Optional[PathLike] = None,
                 chat_template: str = "auto", **options: Any) -> None:
        """grid: x, y, z, data. dtype: f32 or bf16; default: that of the training. Other options are
        the flags of `axonn worker`, such as ema=True. Raises UsageError and Error as it fails."""
        self.folder = pathlib.Path(folder)
        words = {"model": folder, "grid": grid, "dtype": dtype, "device": device,
                 "adapter": adapter, "tokenizer": tokenizer, "chat_template": chat_template}
        self._worker = _Worker(_program.option_flags({**words, **options}))
        #: description, vocab, positions, hidden, dtype, grid, seq_len.
        self.facts: Dict[str, Any] = self._worker.call("describe", {})[0]["model"]
        self._tokenizer: Optional[Tokenizer] = None

    def __repr__(self) -> str:
        facts = f"{self.facts['description']}, grid {self.facts['grid']}"
        return f"Model({str(self.folder)!r}: {facts})"

    def __enter__(self) -> "Model":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def close(self) -> None:
        """Ends the model's process."""
        self._worker.close()

    @property
    def tokenizer(self) -> Tokenizer:
        """The model's tokenizer. Raises UsageError if it is not known."""
        if self._tokenizer is None:
            self._tokenizer = Tokenizer._of(self._worker)
        return self._tokenizer

    def _tokens(self, text: Text) -> List[int]:
        return self.tokenizer.encode(text, begin=True) if isinstance(text, str) else _list(text)

    def _targets(self, ids: Any, batch: int) -> List[Tuple[Floats, npt.NDArray[np.bool_]]]:
        """For each sequence the losses of its targets, and whether each is the likeliest token."""
        lists = [self._tokens(each) for each in ([ids] if _is_one(ids) else ids)]
        if not lists:
            return []
        _, (losses, greedy) = self._worker.call("losses", {"tokens": lists, "batch": batch})
        ends = np.cumsum([len(each) - 1 for each in lists])[:-1]
        return list(zip(np.split(losses[0], ends), np.split(greedy[0] != 0, ends)))

    def logprobs(self, ids: Any, *, batch: int = 0) -> Any:
        """Log-probabilities in nats of each token but the first, given those before it: (T - 1)
        f32. ids: a text, which gets the tokenizer's beginning, or T tokens; or several, for a list.
        batch: sequences computed at a time by each (z, data) coordinate; 0: as `axonn eval` has it,
        whose losses these are to the bit, if sequences are its windows."""
        found = [-losses for losses, _ in self._targets(ids, batch)]
        return found[0] if _is_one(ids) else found

    def loss(self, ids: Any, *, batch: int = 0) -> float:
        """The mean loss of all tokens but the first of each sequence, in nats. ids as for
        logprobs(), summed as `axonn eval` does."""
        losses = [each.astype(np.float64) for each, _ in self._targets(ids, batch)]
        sums = [np.cumsum(each)[-1] for each in losses if len(each)]
        if not sums:
            raise UsageError("no sequence has a second token, so there is no loss")
        return float(np.cumsum(sums)[-1] / sum(map(len, losses)))

    def logits(self, ids: Text) -> Floats:
        """Logits (T, V) of the token after each of T tokens: V floats for each, so ask for few."""
        return self._worker.call("logits", {"tokens": self._tokens(ids)})[1][0]

    def embed(self, texts: Any, *, pooling: str = "mean") -> Floats:
        """Embeddings (n, H) of several texts or sequences, or (H) of one: the hidden states after
        the last norm, their mean or those of the "last" token. Not scaled to length 1."""
        one = _is_one(texts)
        asked = _texts([texts] if one else texts)
        found = self._worker.call("embed", {"input": asked, "pooling": pooling})[1][0]
        return cast(Floats, found[0]) if one else found

    def generate(self, prompts: Any, *, max_tokens: int = 200, temperature: float = 0.8,
                 seed: int = 1, **options: Any) -> Any:
        """Continues a text or tokens, or each of several: a Generation, or a list of them, those
        that `axonn generate --stop-when-full` writes. options: top_k, top_p, min_p, stop, logprobs,
        repetition_penalty, n, use_beam_search, ... as in docs/serving.md. With n texts a prompt,
        those of a prompt follow each other."""
        one = _is_one(prompts)
        asked = _texts([prompts] if one else prompts)
        found = self._generated("generate", {"prompt": asked, "max_tokens": max_tokens,
                                             "temperature": temperature, "seed": seed, **options})
        return found[0] if one and len(found) == 1 else found

    def chat(self, messages: Sequence[Message], *, temperature: float = 0.8, seed: int = 1,
             **options: Any) -> Generation:
        """The assistant's answer to a conversation, by the model's chat template. options:
        max_tokens, tools, chat_template_kwargs and those of generate()."""
        return self._generated("answer", {"messages": list(messages), "temperature": temperature,
                                          "seed": seed, **options})[0]

    def _generated(self, call: str, body: Mapping[str, Any]) -> List[Generation]:
        return [_generation(each) for each in self._worker.call(call, body)[0]["generations"]]

    def weights(self) -> Mapping[str, npt.NDArray[Any]]:
        """The parameters as stored, by name: of a checkpoint in f32 with the names of Hugging Face,
        (out, in); of a Hugging Face folder as its files have them, bf16 as f32. Views of the mapped
        files without a copy, where one file has a parameter as a whole."""
        try:
            return Checkpoint(find_checkpoint(self.folder))
        except CheckpointError:
            files = sorted(self.folder.glob("*.safetensors"))
            if not files:
                raise
            return {name: array for file in files for name, array in safetensors(file).items()}
