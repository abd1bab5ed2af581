"""A Trainer with the words of transformers' one, on axonn: what its arguments are called here, and
callbacks that log elsewhere.

    python3 trainer.py MODEL CHATS.jsonl OUT
"""
import sys
from dataclasses import dataclass

import axonn


@dataclass
class TrainingArguments:
    """Some of transformers' arguments, by their names there."""

    output_dir: str
    max_steps: int = 20
    per_device_train_batch_size: int = 1
    gradient_accumulation_steps: int = 8
    learning_rate: float = 1e-4
    weight_decay: float = 0.0
    warmup_steps: int = 0
    max_grad_norm: float = 1.0
    seed: int = 1
    bf16: bool = False

    def keys(self, ranks):
        """The keys of a configuration: the batch of all ranks together is one number there."""
        batch = self.per_device_train_batch_size * self.gradient_accumulation_steps * ranks
        return {
            "output": {"dir": self.output_dir},
            "training": {"steps": self.max_steps, "global_batch": batch, "seed": self.seed,
                         "micro_batch": self.per_device_train_batch_size,
                         "max_norm": self.max_grad_norm, "dtype": "bf16" if self.bf16 else "f32"},
            "optimizer": {"lr": self.learning_rate, "weight_decay": self.weight_decay},
            "lr_scheduler": {"warmup_steps": self.warmup_steps},
        }


class Trainer:
    """Trains adapters, or with full=True all weights, of a folder on examples.

    callbacks are called with the metrics of each step, for example
    lambda step: wandb.log(step, step=step["step"]), or
    lambda step: mlflow.log_metrics({"loss": step["loss"]}, step=step["step"])."""

    def __init__(self, model, args, train_dataset, callbacks=(), full=False, data_ranks=1):
        self.model, self.args, self.train_dataset = model, args, train_dataset
        self.callbacks, self.full, self.data_ranks = callbacks, full, data_ranks

    def train(self):
        run = axonn.finetune(self.model, self.train_dataset, full=self.full, progress=False,
                             **self.args.keys(self.data_ranks),
                             parallelism={"data": self.data_ranks})
        for step in run:
            for callback in self.callbacks:
                callback(step)
        return run

    def evaluate(self, texts):
        """The mean loss of texts after the training."""
        adapter = None if self.full else self.args.output_dir
        folder = self.args.output_dir if self.full else self.model
        with axonn.Model(folder, adapter=adapter) as model:
            return {"eval_loss": model.loss(texts)}


if __name__ == "__main__":
    folder, chats, out = sys.argv[1:]
    trainer = Trainer(folder, TrainingArguments(out), chats,
                      callbacks=[lambda step: print(step["step"], step["loss"])])
    trainer.train()
