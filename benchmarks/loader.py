"""Ready batches a second from the loader of a recipe, against what a machine of eight GPUs needs.

A corpus of random tokens stands for the recipe's, with spans stored in a mask set or drawn when a batch is made. All of
the way is measured: the order, reading, rendering, padding, and the threads that make batches ahead. Whoever takes the
batches does nothing with them.

The need is that of eight GPUs that take 34 ms a sequence. With BART-LS's large model no H200 is faster: a step has
26.5 TFLOP of matrix products (``trainer.metrics``), and large ones run at 780 TFLOP/s in bfloat16. Sequences
a core-second are counted by the processor time of all threads, which hardly depends on what else the machine does.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time

import torch
from made_corpus import make_corpus, make_masks
from report import arguments, machine, publish

from objectives.api.protocol import load_objective
from trainer.data.loader import Loader, LoadingConfig, prefetch
from trainer.recipe import Recipe, load_recipe
from trainer.run.sources import open_stages

GPUS, SECONDS_A_SEQUENCE = 8, 0.034
HEADINGS = (
    "masks",
    "micro-batch",
    "sequences/s",
    "lowest..highest",
    "needed",
    "times the need",
    "a core-second",
    "lowest..highest",
)


def main() -> None:
    parser = arguments(__doc__.partition("\n")[0], rounds=5)
    parser.add_argument("--recipe", default="bart_ls_large")
    parser.add_argument("--sequences", type=int, default=2_048, help="of the corpus")
    parser.add_argument("--steps", type=int, default=4, help="of a round")
    parser.add_argument("--micro-batches", type=int, nargs="+", default=[1, 8], help="their sizes")
    parser.add_argument("--ahead", type=int, default=LoadingConfig.ahead, help="threads, each with a step")
    options = parser.parse_args()
    torch.set_num_threads(1)
    rates: dict[tuple[str, int], list[tuple[float, float]]] = {}
    with tempfile.TemporaryDirectory(prefix="farspan-loader-") as folder:
        recipes = {
            (masks, size): recipe
            for masks, data in made_data(folder, options.recipe, options.sequences).items()
            for size in options.micro_batches
            for recipe in [load_recipe(options.recipe, [*data, f"run.micro_batch_size={size}"])]
        }
        loaders = {
            key: Loader(recipe.curriculum, open_stages(recipe.curriculum), recipe.run.seed)
            for key, recipe in recipes.items()
        }
        for turn in range(options.rounds + 1):
            for key, loader in loaders.items():
                rate = sequences_a_second(loader, recipes[key], options.steps, options.ahead)
                if turn:  # the first one reads the files and compiles
                    rates.setdefault(key, []).append(rate)
    need = GPUS / SECONDS_A_SEQUENCE
    rows = []
    for (masks, size), found in rates.items():
        by_clock, by_processor = ([pair[kind] for pair in found] for kind in (0, 1))
        typical = statistics.median(by_clock)
        rows.append(
            (masks, str(size), *spread(by_clock), f"{need:,.0f}", f"{typical / need:.1f}x", *spread(by_processor))
        )
    data = load_recipe(options.recipe).data
    publish(
        f"Ready batches of {options.recipe}: {data.source_length:,} source and {data.target_length:,} target "
        f"positions, {options.ahead} threads",
        HEADINGS,
        rows,
        machine("numpy", "pyarrow", "numba", "torch"),
        options.json,
        {"options": vars(options), "need": need, "rates": {f"{m}, {size}": r for (m, size), r in rates.items()}},
    )


def made_data(folder: str, recipe: str, sequences: int) -> dict[str, list[str]]:
    """Assignments that give the recipe a corpus with stored and with drawn masks."""
    data = load_recipe(recipe).data
    corpus, masks = os.path.join(folder, "corpus"), os.path.join(folder, "masks")
    span = {"target_length": data.target_length, "fit": "reduce"}
    make_corpus(corpus, sequences, data.source_length)
    make_masks(masks, corpus, load_objective("span", "bart_ls", span))
    drawn = {"name": "span", "preset": "bart_ls", **{f"options.{name}": value for name, value in span.items()}}
    return {
        "stored": [f"data.corpus={corpus}", f"data.masks={masks}"],
        "drawn": [f"data.corpus={corpus}", *(f"data.objective.{name}={value}" for name, value in drawn.items())],
    }


def sequences_a_second(loader: Loader, recipe: Recipe, steps: int, ahead: int) -> tuple[float, float]:
    """By the clock, and by processor time."""
    start, processor, found = time.perf_counter(), time.process_time(), 0
    with prefetch(loader, LoadingConfig(ahead=ahead), steps) as batches:
        for step in range(steps):
            found += sum(len(batch.source_ids) for batch in batches.step(step))
    assert found == steps * recipe.run.batch_size
    return found / (time.perf_counter() - start), found / (time.process_time() - processor)


def spread(rates: list[float]) -> tuple[str, str]:
    return f"{statistics.median(rates):,.0f}", f"{min(rates):,.0f}..{max(rates):,.0f}"


if __name__ == "__main__":
    main()
