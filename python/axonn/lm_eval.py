"""EleutherAI's lm-evaluation-harness on axonn's models (pip install lm-eval):

    python3 -m axonn.lm_eval run --model axonn --model_args folder=out/tiny,grid=2/1/1/1 --tasks ...

In scripts, importing this module registers the model "axonn".
"""
from typing import Any, Dict, List, Sequence, Tuple

import numpy as np
from lm_eval.api.model import TemplateLM
from lm_eval.api.registry import register_model
from lm_eval.utils import get_rolling_token_windows, make_disjoint_window

from .model import Model

_AT_ONCE = 256  # sequences of a call


@register_model("axonn")
class AxonnLM(TemplateLM):  # type: ignore[misc]
    """A model of the harness. Arguments are those of axonn.Model; the grid is 2/1/1/1 here, since
    the harness splits arguments at commas."""

    def __init__(self, folder: str, grid: str = "1/1/1/1", batch_size: Any = 0,
                 max_batch_size: Any = None, device: Any = None, **more: Any) -> None:
        super().__init__()
        self.model = Model(folder, str(grid).replace("/", ","), device=device, **more)
        self._batch = int(batch_size) if str(batch_size).isdigit() else 0
        self._positions: int = self.model.facts["positions"]

    eot_token_id = property(lambda self: self.model.tokenizer.end)
    tokenizer_name = property(lambda self: self.model.tokenizer.name)

    @property
    def prefix_token_id(self) -> int:
        text = self.model.tokenizer
        line_end = 10  # of bytes
        return next(each for each in (*text.begin, text.end, line_end) if each is not None)

    def tok_encode(self, string: str, add_special_tokens: Any = None, **_: Any) -> List[int]:
        return self.model.tokenizer.encode(string, begin=add_special_tokens is not False)

    def apply_chat_template(self, chat_history: Any, add_generation_prompt: bool = True) -> str:
        return str(self.model.tokenizer.apply_chat_template(
            chat_history, tokenize=False, add_generation_prompt=add_generation_prompt))

    def _loglikelihood_tokens(self, requests: Sequence[Any], **_: Any) -> List[Tuple[float, bool]]:
        texts = [(context + wanted)[-self._positions - 1:] for _, context, wanted in requests]
        order = sorted(range(len(texts)), key=lambda i: -len(texts[i]))  # alike, so little padding
        found: Dict[int, Tuple[float, bool]] = {}
        for at in range(0, len(order), _AT_ONCE):
            some = order[at : at + _AT_ONCE]
            for i, (losses, greedy) in zip(some, self.model._targets([texts[i] for i in some],
                                                                     self._batch)):
                count = len(requests[i][2])
                found[i] = (-float(losses[-count:].astype(np.float64).sum()),
                            bool(greedy[-count:].all()))
                self.cache_hook.add_partial("loglikelihood", requests[i][0], found[i])
        return [found[i] for i in range(len(texts))]

    def loglikelihood_rolling(self, requests: Any, disable_tqdm: bool = False) -> List[float]:
        sums = []
        for (text,) in (request.args for request in requests):
            windows = get_rolling_token_windows(self.tok_encode(text, False), self.prefix_token_id,
                                                self._positions, 1)
            pairs = [("", *make_disjoint_window(window)) for window in windows]
            sums.append(sum(score for score, _ in self._loglikelihood_tokens(pairs)))
        return sums

    def generate_until(self, requests: Any, disable_tqdm: bool = False) -> List[str]:
        texts = []
        for context, asked in (request.args for request in requests):
            stops, most = asked.get("until") or [], int(asked.get("max_gen_toks", 256))
            prompt = self.tok_encode(context)[-max(self._positions - most, 1):]
            texts.append(self.model.generate(
                prompt, max_tokens=most, stop=[stops] if isinstance(stops, str) else list(stops),
                temperature=asked.get("temperature", 0) if asked.get("do_sample") else 0).text)
        return texts


if __name__ == "__main__":
    from lm_eval.__main__ import cli_evaluate

    cli_evaluate()
