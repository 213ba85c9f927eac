"""Updates of an encoder-decoder on a processor against Hugging Face's Trainer and against a loop over Accelerate.

Theirs train LED, ours the same model: equal weights at the start, equal batches, AdamW, clipping, float32, no dropout.
An update is forward and backward of each micro-batch, clipping, and the optimiser's step. Losses are compared before
the first update and after it. All sides have their batches in memory and write nothing; what Trainer does before its
first and after its last step is not counted. The sizes are those of ``attention_models.py``.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import transformers
from attention_models import (
    CASES,
    FIRST_TOKEN,
    VOCAB,
    Batch,
    check,
    loss_of,
    make_ours,
    make_peer,
    our_config,
    their_config,
)
from in_memory import InMemory
from report import HEADINGS, Comparison, arguments, comparison_rows, machine, publish
from torch import nn
from torch.utils.data import DataLoader
from transformers import PrinterCallback, TrainerCallback, TrainingArguments

from trainer.data import batch as trainer_batch
from trainer.data.config import DataConfig
from trainer.model.seq2seq import Seq2Seq
from trainer.optim.optimizer import OptimizerConfig
from trainer.optim.schedule import ScheduleConfig
from trainer.parallel.distributed import World
from trainer.recipe import Recipe
from trainer.run.step import Trainer
from trainer.run.units.single import Seq2SeqUnit
from trainer.run_config import RunConfig

LED = CASES[0]
OPTIMIZER = OptimizerConfig(learning_rate=1e-4, weight_decay=0.01, clip_norm=1.0)
Run = Callable[[int], float]
"""Makes so many updates; returns the seconds."""


def main() -> None:
    parser = arguments(__doc__.partition("\n")[0], rounds=5)
    parser.add_argument("--length", type=int, default=4096, help="tokens of the source")
    parser.add_argument("--target", type=int, default=256, help="tokens of the target")
    parser.add_argument("--accumulation", type=int, default=2, help="micro-batches of an update")
    parser.add_argument("--batch", type=int, default=1, help="sequences of a micro-batch")
    parser.add_argument("--steps", type=int, default=1, help="updates of a round")
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    try:
        import accelerate  # noqa: F401
    except ImportError:
        raise SystemExit(
            "train_step.py compares with accelerate, which is not installed: pip install accelerate"
        ) from None
    transformers.logging.set_verbosity_error()
    torch.set_num_threads(options.threads)
    batches = make_batches(options.accumulation, options.batch, options.length, options.target)
    ours, theirs = make_ours(LED, options.length, options.target), make_peer(LED, options.length, options.target)
    check(LED, ours, theirs, batches[0])
    bare = make_peer(LED, options.length, options.target)
    bare.load_state_dict(theirs.state_dict())
    models = {"farspan": ours, "trainer": theirs, "accelerate": bare}
    with tempfile.TemporaryDirectory(prefix="farspan-step-") as folder:
        runs = {
            "farspan": our_run(ours, batches, options.length, options.target),
            "trainer": trainer_run(theirs, batches, folder),
            "accelerate": accelerate_run(bare, batches),
        }
        before = loss_of(ours, batches[0]).item()
        for run in runs.values():
            run(1)
        compare(models, batches[0], before)
        seconds: dict[str, list[float]] = {name: [] for name in runs}
        for _ in range(options.rounds):
            for name, run in runs.items():
                seconds[name].append(run(options.steps))
    tokens = options.steps * options.accumulation * options.batch * options.length
    rates = {name: [tokens / second for second in values] for name, values in seconds.items()}
    peers = {"trainer": "Hugging Face Trainer, LED", "accelerate": "Accelerate, LED"}
    compared = [
        Comparison("Trainer.update", peer, "source tokens/s", rates["farspan"], rates[name], 1.0)
        for name, peer in peers.items()
    ]
    publish(
        f"Updates of {options.accumulation} x {options.batch} sequences of {options.length:,} source and "
        f"{options.target:,} target tokens, float32, {options.threads} threads",
        HEADINGS,
        comparison_rows(compared),
        machine("torch", "transformers", "accelerate"),
        options.json,
        {"options": vars(options), "seconds": seconds, "ratios": [row.ratio for row in compared]},
    )


def make_batches(count: int, size: int, length: int, target: int) -> list[Batch]:
    generator = torch.Generator().manual_seed(0)
    draw = partial(torch.randint, FIRST_TOKEN, VOCAB, generator=generator)
    found = []
    for _ in range(count):
        written = draw((size, target + 1))
        first = (torch.arange(length) == 0).expand(size, length)
        found.append(Batch(draw((size, length)), written[:, :-1], written[:, 1:], first))
    return found


def our_run(model: Seq2Seq, batches: list[Batch], length: int, target: int) -> Run:
    recipe = Recipe(
        model=our_config(LED, their_config(LED, length, target)),
        data=DataConfig(source_length=length, target_length=target),
        run=RunConfig(directory="unused", steps=1_000_000, batch_size=1, device="cpu"),
        optimizer=OPTIMIZER,
        schedule=ScheduleConfig(shape="constant", warmup_steps=0),
    )
    sections = recipe.run, recipe.parallel, recipe.optimizer, recipe.loss
    trainer = Trainer(Seq2SeqUnit(recipe), model, World.alone(), *sections)
    data = InMemory([trainer_batch.Batch.full(source, labels, decoder) for source, decoder, labels, _ in batches])

    def run(steps: int) -> float:
        start = time.perf_counter()
        for _ in range(steps):
            update = trainer.update(data)
            assert update
            trainer.record(update)
        return time.perf_counter() - start

    return run


class Stopwatch(TrainerCallback):
    """Seconds from the beginning of each step to its end."""

    def __init__(self) -> None:
        self.seconds = self.begin = 0.0

    def on_step_begin(self, *args: Any, **kwargs: Any) -> None:
        self.begin = time.perf_counter()

    def on_step_end(self, *args: Any, **kwargs: Any) -> None:
        self.seconds += time.perf_counter() - self.begin


def their_rows(batches: list[Batch]) -> Any:
    """Sequence by sequence, as their data loaders collate them."""
    columns = [
        {
            "input_ids": batch.source,
            "decoder_input_ids": batch.decoder,
            "labels": batch.labels,
            "global_attention_mask": batch.globals.long(),
        }
        for batch in batches
        if batch.globals is not None
    ]
    return [{name: ids[row] for name, ids in batch.items()} for batch in columns for row in range(len(batch["labels"]))]


def trainer_run(model: nn.Module, batches: list[Batch], folder: str) -> Run:
    settings = TrainingArguments(
        output_dir=folder, use_cpu=True, max_steps=1, per_device_train_batch_size=len(batches[0].source),
        gradient_accumulation_steps=len(batches), learning_rate=OPTIMIZER.learning_rate,
        adam_beta1=OPTIMIZER.betas[0], adam_beta2=OPTIMIZER.betas[1], adam_epsilon=OPTIMIZER.eps,
        weight_decay=OPTIMIZER.weight_decay, max_grad_norm=OPTIMIZER.clip_norm, optim="adamw_torch_fused",
        lr_scheduler_type="constant", logging_strategy="no", save_strategy="no", report_to=[], disable_tqdm=True,
    )  # fmt: skip
    watch = Stopwatch()
    trainer = transformers.Trainer(model, settings, train_dataset=their_rows(batches), callbacks=[watch])
    trainer.remove_callback(PrinterCallback)

    def run(steps: int) -> float:
        watch.seconds, settings.max_steps = 0.0, steps
        trainer.train()
        return watch.seconds

    return run


def accelerate_run(model: nn.Module, batches: list[Batch]) -> Run:
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=len(batches))
    groups = [
        {"params": [p for p in model.parameters() if p.dim() > 1], "weight_decay": OPTIMIZER.weight_decay},
        {"params": [p for p in model.parameters() if p.dim() <= 1], "weight_decay": 0.0},
    ]
    adam = torch.optim.AdamW(groups, lr=OPTIMIZER.learning_rate, betas=OPTIMIZER.betas, eps=OPTIMIZER.eps, fused=True)
    rows: DataLoader[Any] = DataLoader(their_rows(batches), batch_size=len(batches[0].source))
    prepared, optimizer, loader = accelerator.prepare(model, adam, rows)

    def run(steps: int) -> float:
        start = time.perf_counter()
        for _ in range(steps):
            for batch in loader:
                with accelerator.accumulate(prepared):
                    accelerator.backward(prepared(**batch).loss)
                    if accelerator.sync_gradients:
                        accelerator.clip_grad_norm_(prepared.parameters(), OPTIMIZER.clip_norm)
                    optimizer.step()
                    optimizer.zero_grad()
        return time.perf_counter() - start

    return run


def compare(models: dict[str, nn.Module], batch: Batch, before: float) -> None:
    """Equal losses after equal updates, below the loss before them."""
    with torch.no_grad():
        losses = {name: loss_of(model, batch).item() for name, model in models.items()}
    assert all(abs(loss - losses["farspan"]) < 1e-3 for loss in losses.values()), f"the sides differ: {losses}"
    assert losses["farspan"] < before - 1e-2, f"nothing was learnt: {before} before the update, {losses} after it"


if __name__ == "__main__":
    main()
