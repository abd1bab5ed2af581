"""axonn from Python: trainings, models, plans and studies of the program axonn (docs/python.md).

    import axonn
    run = axonn.train("configs/tiny.toml", training={"steps": 50}, output={"dir": "out/tiny"})
    losses = [step["loss"] for step in run]
    model = axonn.Model("out/tiny")
    print(model.generate("The town of", max_tokens=50))

Names are imported when they are used, so that the console script starts at once.
"""
from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # with "as", which makes them names of this module
    from . import checkpoint as checkpoint
    from ._program import Error as Error, UsageError as UsageError
    from .checkpoint import Checkpoint as Checkpoint, CheckpointError as CheckpointError
    from .commands import Memorization as Memorization, audit as audit, convert as convert
    from .commands import evaluate as evaluate, memorize as memorize, plan as plan
    from .model import Generation as Generation, Model as Model, Tokenizer as Tokenizer
    from .runs import Run as Run, distill as distill, finetune as finetune, prefer as prefer
    from .runs import reinforce as reinforce
    from .runs import train as train

_PLACES = {"_program": ("Error", "UsageError"),
           "checkpoint": ("Checkpoint", "CheckpointError"),
           "commands": ("Memorization", "audit", "convert", "evaluate", "memorize", "plan"),
           "model": ("Generation", "Model", "Tokenizer"),
           "runs": ("Run", "distill", "finetune", "prefer", "reinforce", "train")}
__all__ = sorted(name for names in _PLACES.values() for name in names)


def __getattr__(name: str) -> Any:
    if name == "checkpoint":
        return importlib.import_module(".checkpoint", __name__)
    for place, names in _PLACES.items():
        if name in names:
            return getattr(importlib.import_module("." + place, __name__), name)
    raise AttributeError(f"module 'axonn' has no attribute {name!r}")
