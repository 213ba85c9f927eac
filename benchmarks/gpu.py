"""All that a GPU can show, by one command: ``python -m benchmarks.gpu --json measured.json``, about half an hour.

Parts: the kernels against the patterns' own attention (the tests that need a device); updates of the recipes' trainer
in bfloat16 at two lengths, as a share of the ceiling, which is that of large matrix products in the same run, and their
peak memory against the estimate, with the least activation checkpointing that fits; beam search; a thousand updates;
forward and backward against transformers with equal weights. At the larger length, layers run compiled too.

A part that fails does not stop the others: it is listed at the end, and the exit status is 1 if a part failed or a goal
was missed. ``--device cpu`` runs every part at small size, to show that they work; its figures mean nothing.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))  # the modules that benchmarks share, with ``-m`` too

import attention_models
import torch
import transformers
from attention_models import CASES, Case
from in_memory import random_batches
from report import machine, publish

from trainer.data.batch import Batch
from trainer.generation.config import DecoderIds, GenerationConfig, Sources
from trainer.generation.generate import generate
from trainer.model.build import build_model
from trainer.model.seq2seq import Seq2Seq
from trainer.options import Checkpointing
from trainer.parallel.device import measure_tflops, memory_capacity, memory_in_use
from trainer.parallel.distributed import World
from trainer.recipe import Recipe, load_recipe
from trainer.run.memory import Setting, step_memory
from trainer.run.step import Trainer
from trainer.run.units.single import Seq2SeqUnit

ROOT = Path(__file__).parents[1]
KERNEL_TESTS = "tests/trainer/model/kernels/test_kernels_cuda.py"
HEADINGS = ("part", "measure", "value", "goal", "met")
LEVELS: tuple[Checkpointing, ...] = ("none", "selective", "layer")


@dataclass(frozen=True)
class Scale:
    """Sizes of all parts."""

    recipes: tuple[str, ...]  # models of the updates
    lengths: tuple[int, ...]  # source tokens, the last of them also compiled
    target: int
    vocab: int  # rows of the token table
    rounds: int  # measured updates, after three to warm up
    updates: int  # updates of the long run, of `run_length` source tokens
    run_length: int
    tokens: int  # generated
    # width, heads, feed-forward width, layers and rows of the models beside transformers'
    peers: tuple[int, int, int, int, int]


RELEASED = ("bart_ls_base", "bart_ls_large", "led_base", "pegasus_x_base", "longt5_tglobal_base")
SCALES = {
    "cuda": Scale(RELEASED, (4096, 16_384), 1024, 50_368, 10, 1000, 2048, 256, (768, 12, 3072, 6, 50_368)),
    "cpu": Scale(("tiny", "tiny_led"), (64, 128), 16, 300, 2, 20, 64, 4, (32, 2, 48, 1, 64)),
}


@dataclass(frozen=True)
class Row:
    """A line of the table; ``met`` is None without a goal, ``numbers`` are for the JSON file."""

    measure: str
    value: str
    goal: str
    met: bool | None
    numbers: dict[str, Any]


class Turns:
    """Micro-batches in turn, one for each update."""

    def __init__(self, batches: Sequence[Batch]) -> None:
        self.batches = batches

    def step(self, step: int) -> list[Batch]:
        return [self.batches[step % len(self.batches)]]


class Parts:
    """The parts on a device; each returns its rows."""

    def __init__(self, device: torch.device) -> None:
        self.device, self.scale = device, SCALES[device.type]
        self.cuda = device.type == "cuda"
        self.ceiling = 0.0

    def all(self, compiled: bool) -> Iterator[tuple[str, Callable[[], list[Row]]]]:
        """Names and functions."""
        yield "kernels", self.kernels
        yield "ceiling", self.measure_ceiling
        for recipe, length in itertools.product(self.scale.recipes, self.scale.lengths):
            yield f"{recipe}, {length:,}", partial(self.steps, recipe, length, False)
            if compiled and length == self.scale.lengths[-1]:
                yield f"{recipe}, {length:,}, compiled", partial(self.steps, recipe, length, True)
        yield "generation", self.generation
        yield f"{self.scale.updates:,} updates", self.long_run
        for case, length in itertools.product(CASES[:3], self.scale.lengths):
            yield f"{case.peer}, {length:,}", partial(self.beside_peer, case, length)

    def goal(self, met: bool) -> bool | None:
        """Whether a goal of speed is met; at small size there is none."""
        return met if self.cuda else None

    def kernels(self) -> list[Row]:
        command = [sys.executable, "-m", "pytest", "-q", "-n0", KERNEL_TESTS]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        passed = done.returncode == 0 and ("passed" in done.stdout or not self.cuda)
        last = (done.stdout.strip().splitlines() or [done.stderr.strip()[-200:]])[-1]
        return [Row("fast kernels equal plain ones", last, "all pass", passed, {"output": last})]

    def measure_ceiling(self) -> list[Row]:
        self.ceiling = measure_tflops(self.device, torch.bfloat16)
        return [Row("bfloat16 matrix products", f"{self.ceiling:,.2f} TFLOP/s", "", None, {"tflops": self.ceiling})]

    def trainer(self, name: str, length: int, *settings: str, compiled: bool = False) -> tuple[Trainer, Recipe]:
        """Make the trainer of a recipe at a length, with the least activation checkpointing that fits."""
        sizes = [f"data.source_length={length}", f"data.target_length={self.scale.target}", "run.precision=bf16"]
        sizes += ["data.source_multiple=1", "data.target_multiple=1"]
        only = ["run.batch_size=1", "run.micro_batch_size=1", f"run.compile={str(compiled).lower()}"]
        room = 0.9 * memory_capacity(self.device)
        for level in LEVELS:
            chosen = f"run.activation_checkpointing={level}"
            recipe = load_recipe(name, [*sizes, *only, chosen, *settings])
            if self.estimate(recipe) < room:
                break
        model = build_model(recipe.model, self.scale.vocab, seed=0)
        sections = recipe.run, recipe.parallel, recipe.optimizer, recipe.loss
        world, unit = World.alone(self.device), Seq2SeqUnit(recipe)
        return Trainer(unit, model, world, *sections, self.ceiling or None), recipe

    def estimate(self, recipe: Recipe) -> int:
        return step_memory(recipe, self.scale.vocab, Setting(device=self.device.type)).total

    def batches(self, count: int, recipe: Recipe) -> list[Batch]:
        data, takes_globals = recipe.data, recipe.model.encoder.attention.takes_global_positions
        made = random_batches(count, 1, data.source_length, data.target_length, self.scale.vocab)
        return [Batch.full(each.source_ids, each.labels, each.decoder_ids, takes_globals) for each in made]

    def steps(self, name: str, length: int, compiled: bool) -> list[Row]:
        """Time, share and memory of updates."""
        self.clear()
        trainer, recipe = self.trainer(name, length, compiled=compiled)
        records = self.update(trainer, self.batches(1, recipe), 3 + self.scale.rounds)[3:]
        seconds = statistics.median(record["seconds"] for record in records)
        tflops = statistics.median(record["model_tflops_per_second"] for record in records)
        share, peak = tflops / max(self.ceiling, 1e-9), max(record["memory_gib"] for record in records)
        estimate, level = self.estimate(recipe) / 2**30, recipe.run.activation_checkpointing
        numbers = {"seconds": seconds, "tflops": tflops, "share": share, "checkpointing": level}
        rows = [
            Row("update", f"{seconds * 1e3:,.1f} ms, {length / seconds:,.0f} source tokens/s", "", None, numbers),
            Row("share of the ceiling", f"{share:.1%} (checkpointing {level})", "50 %", self.goal(share >= 0.5), {}),
        ]
        if self.cuda:  # the peak of a process on a CPU is not that of the step alone
            value, met = f"{peak:.1f} GiB of {estimate:.1f} ({peak / estimate:.2f}x)", abs(peak / estimate - 1) <= 0.2
            rows.append(Row("peak of the estimate", value, "within 20 %", met, {"peak": peak, "estimate": estimate}))
        return rows

    def update(self, trainer: Trainer, batches: Sequence[Batch], count: int) -> list[dict[str, Any]]:
        data, records = Turns(batches), []
        for _ in range(count):
            update = trainer.update(data)
            assert update is not None
            records.append(trainer.record(update))
        return records

    def generation(self) -> list[Row]:
        """Seconds of a token by beam search, of the first recipe's model at the largest length."""
        self.clear()
        length, tokens = self.scale.lengths[-1], self.scale.tokens
        model = build_model(load_recipe(self.scale.recipes[0]).model, self.scale.vocab, seed=0).to(self.device)
        assert isinstance(model, Seq2Seq)
        ids = torch.randint(3, self.scale.vocab, (1, length), generator=torch.Generator().manual_seed(0))
        sources, special = Sources(source_ids=ids.to(self.device)), DecoderIds(start=2, end=2, pad=1)
        seconds = {}
        for count in (1, 1 + tokens):  # the first run's part is the encoder's
            config = GenerationConfig(beams=4, min_tokens=count, max_tokens=count)
            for _ in range(2):
                begin = time.perf_counter()
                with torch.autocast(self.device.type, torch.bfloat16):
                    generate(model, sources, config, special)
                seconds[count] = time.perf_counter() - begin
        each = (seconds[1 + tokens] - seconds[1]) / tokens
        return [Row("4 beams", f"{each * 1e3:.1f} ms a token", "", None, {"seconds": each})]

    def long_run(self) -> list[Row]:
        """Updates on eight sequences of noise, which the model learns by heart."""
        self.clear()
        rates = ["optimizer.learning_rate=3e-4", "schedule.warmup_steps=10", "run.steps=1000000", "schedule.steps=none"]
        trainer, recipe = self.trainer(self.scale.recipes[0], self.scale.run_length, *rates)
        records = self.update(trainer, self.batches(8, recipe), self.scale.updates)
        losses = [record["loss"] for record in records if record["loss"] is not None]
        skipped, first, last = len(records) - len(losses), losses[0], statistics.mean(losses[-8:])
        return [
            Row("updates with NaN", f"{skipped}", "0", skipped == 0, {"losses": losses}),
            Row("loss", f"{first:.2f} to {last:.2f}", "falls", self.goal(last < first), {}),
        ]

    def beside_peer(self, case: Case, length: int) -> list[Row]:
        """Forward and backward in bfloat16 against transformers, with equal weights and losses."""
        self.clear()
        names = ("WIDTH", "HEADS", "INNER", "LAYERS", "VOCAB")
        vars(attention_models).update(zip(names, self.scale.peers, strict=True))  # its models have these sizes
        target = self.scale.target
        sides = {"ours": attention_models.make_ours(case, length, target)}
        sides["peer"] = attention_models.make_peer(case, length, target)
        short = attention_models.make_batch(case, min(length, 512), min(target, 64))
        attention_models.check(case, sides["ours"], sides["peer"], short)
        batch = attention_models.make_batch(case, length, target)
        batch = batch._replace(**{name: x.to(self.device) for name, x in batch._asdict().items() if x is not None})
        seconds, peaks = {}, {}
        for side, model in sides.items():
            model.to(self.device)
            self.clear()
            before = memory_in_use(self.device)
            seconds[side] = self.seconds(partial(attention_models.run, model, batch))
            peaks[side] = memory_in_use(self.device) - before
            model.cpu()
        faster = seconds["peer"] / seconds["ours"]
        times = " and ".join(f"{seconds[side] * 1e3:,.1f}" for side in sides)
        rows = [
            Row(
                "forward and backward",
                f"{faster:.2f}x ({times} ms)",
                "2x",
                self.goal(faster >= 2),
                {"seconds": seconds},
            )
        ]
        if self.cuda:
            part = peaks["ours"] / peaks["peer"]
            gib = " and ".join(f"{peaks[side] / 2**30:.1f}" for side in sides)
            rows.append(Row("memory beside weights", f"{part:.2f}x ({gib} GiB)", "0.5x", part <= 0.5, {"bytes": peaks}))
        return rows

    def seconds(self, work: Callable[[], None]) -> float:
        """Median over rounds, in bfloat16."""
        found = []
        for turn in range(1 + self.scale.rounds):
            begin = time.perf_counter()
            with torch.autocast(self.device.type, torch.bfloat16):
                work()
            if self.cuda:
                torch.cuda.synchronize()
            if turn:
                found.append(time.perf_counter() - begin)
        return statistics.median(found)

    def clear(self) -> None:
        torch.compiler.reset()
        if self.cuda:
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()


def measure(name: str, part: Callable[[], list[Row]]) -> list[Row]:
    """The rows of a part; one with the error if it fails."""
    print(f"{name} ...", file=sys.stderr, flush=True)
    try:
        return part()
    except Exception as error:  # whatever fails, the other parts are still worth measuring
        line = f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"[:120]
        return [Row("failed", line, "no error", False, {"traceback": traceback.format_exc()})]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--device", choices=SCALES, default="cuda")
    parser.add_argument("--json", help="file for all figures")
    parser.add_argument("--only", default="", help="measure only parts whose names contain this")
    parser.add_argument("--no-compile", action="store_true", help="leave out compiled layers")
    options = parser.parse_args(arguments)
    if options.device == "cuda" and not torch.cuda.is_available():
        raise SystemExit("PyTorch finds no CUDA device here; --device cpu shows that the parts work")
    transformers.logging.set_verbosity_error()
    parts = Parts(torch.device(options.device))
    chosen = [(name, part) for name, part in parts.all(not options.no_compile) if options.only in name]
    results = {name: measure(name, part) for name, part in chosen}
    marks = {True: "yes", False: "NO", None: ""}
    table = [(name, row.measure, row.value, row.goal, marks[row.met]) for name in results for row in results[name]]
    device = torch.cuda.get_device_name() if parts.cuda else "cpu, at small size"
    figures = {name: [asdict(row) for row in rows] for name, rows in results.items()}
    environment = {"device": device, **machine("torch", "transformers")}
    publish("farspan on a GPU", HEADINGS, table, environment, options.json, figures)
    missed = [
        f"{name}: {row.measure}: {row.value}" for name, rows in results.items() for row in rows if row.met is False
    ]
    print("\n".join(["\nfailed or missed:", *missed]) if missed else "\nnothing failed")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
