"""Does it help to put related documents into one row? Two small pretrainings side by side, and their curves.

10,033 lead sections of English Wikipedia, 5 % of them held out, are concatenated at random and linked by similarity.
A small model is trained on each of the two corpora, and both are measured on both held-out corpora. BART-LS reports a
training perplexity of 10.5 on linked and 12.2 on random text, and no gain downstream (Xiong et al. 2022, section 3.3).

    python examples/random_or_linked.py OUTPUT [--steps N]

What is finished stays: after an interruption the same call goes on where it stopped.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path

from demo import SEQUENCE_LENGTH, farspan
from wikipedia_text import encoder, lead_sections, write_json_lines

from pipelines.figures.style import grid, label_lines, save, thousands, use_style

KINDS = ("random", "linked")
SPLITS = ("train", "held-out")
EVALUATIONS = 12
TICKS = (200, 500, 1000, 2000, 5000)  # of perplexity
SPANS = '{name="span", options={density=0.3, mean_span_lengths=[5]}}'
SETTINGS = {
    "data.target_length": 1536,
    "model.decoder.positions.count": 1536,
    "model.norm.placement": "pre",
    "run.batch_size": 2,
    "run.micro_batch_size": 1,
    "schedule.warmup_steps": 100,
}
"""Over the recipe ``tiny``: a third of the tokens hidden, so that a short run is asked for many."""


def make_corpora(out: Path) -> None:
    """``random-train``, ``random-held-out``, ``linked-train`` and ``linked-held-out`` in ``out``."""
    text = out / "text" / "lead-sections.jsonl"
    if not text.exists():
        write_json_lines(text, lead_sections())
    tokenizer, documents = out / "tokenizer", out / "documents"
    make(
        tokenizer / "tokenizer.json",
        *("tokenizer", "train", "--kind", "byte-level-bpe", "--vocab-size", "8000"),
        *("--input", text.parent, "--output", tokenizer),
    )
    source = ("--input", f"wikipedia={text}", "--tokenizer", tokenizer, "--held-out", "0.05")
    make(documents / "manifest.json", "documents", *source, "--output", documents)
    length = ("--sequence-length", str(SEQUENCE_LENGTH))
    for split in SPLITS:
        common = ("--documents", documents, *length, "--split", split, "--output")
        random, linked = out / f"random-{split}", out / f"linked-{split}"
        make(random / "manifest.json", "corpus", "random", *common, random)
        # each document once, as in the random corpus, so that only the company differs
        links = ("--encoder", encoder(), "--max-length", "128", "--max-uses", "1")
        make(linked / "manifest.json", "corpus", "linked", *common, linked, *links)


def make(finished: Path, *command: str | Path) -> None:
    """Run a ``farspan`` command unless the file that it ends with is there."""
    if not finished.exists():
        farspan(*command)()


def train(out: Path, kind: str, steps: int) -> None:
    """Train on one corpus, measured on both held-out ones."""
    held_out = ", ".join(f'{{name="{each}", corpus="{out / f"{each}-held-out"}", objective={SPANS}}}' for each in KINDS)
    settings = {
        **SETTINGS,
        "data.corpus": out / f"{kind}-train",
        "data.objective": SPANS,
        "evaluation.mixture": f"[{held_out}]",
        "evaluation.every": max(steps // EVALUATIONS, 1),
        "run.steps": steps,
        "run.directory": out / f"run-{kind}",
    }
    farspan("train", "tiny", *(word for item in settings.items() for word in ("--set", f"{item[0]}={item[1]}")))()


def curves(metrics: Path) -> dict[str, list[tuple[int, float]]]:
    """``train`` and each held-out corpus -> (step, perplexity); the training loss is a mean over some steps."""
    found: dict[str, list[tuple[int, float]]] = {kind: [] for kind in ("train", *KINDS)}
    lines = [json.loads(line) for line in metrics.read_text("utf-8").splitlines()]
    losses = [(line["step"], line["loss"]) for line in lines if line.get("loss") is not None]
    edges = range(0, len(losses) + 1, max(len(losses) // 40, 1))
    for first, last in pairwise(edges):
        some = losses[first:last]
        found["train"].append((some[-1][0], math.exp(sum(loss for _, loss in some) / len(some))))
    for line in lines:
        for kind in KINDS:
            if f"held_out_loss/{kind}" in line:
                found[kind].append((line["step"], math.exp(line[f"held_out_loss/{kind}"])))
    return found


def draw(runs: Mapping[str, Mapping[str, Sequence[tuple[int, float]]]], path: Path) -> None:
    """A panel a measure, a line a training corpus."""
    titles = {"train": "own training rows", "random": "held-out, random rows", "linked": "held-out, linked rows"}
    with use_style() as plt:
        figure, axes = grid(plt, len(titles), shared=True)
        for (measure, title), axis in zip(titles.items(), axes, strict=True):
            ends = []
            for number, kind in enumerate(KINDS):
                points = runs[kind][measure]
                marker = "" if measure == "train" else "."
                axis.plot(*zip(*points, strict=True), marker=marker, color=f"C{number}")
                ends.append((*points[-1], f"on {kind}", f"C{number}"))
            axis.set_title(title)
            axis.set_yscale("log", subs=[])
            axis.set_yticks(TICKS, map(thousands, TICKS))
            label_lines(axis, ends)
        axes[0].set_ylabel("perplexity of hidden tokens")
        figure.supxlabel("training steps")
        save(plt, figure, str(path))


def main() -> None:
    parser = argparse.ArgumentParser(description="Train on random and on linked rows of the same documents.")
    parser.add_argument("output", type=Path, help="folder")
    parser.add_argument("--steps", type=int, default=1200)
    given = parser.parse_args()
    make_corpora(given.output)
    for kind in KINDS:
        train(given.output, kind, given.steps)
    runs = {kind: curves(given.output / f"run-{kind}" / "metrics.jsonl") for kind in KINDS}
    print(f"{'trained on':12}{'own rows':>12}{'held-out random':>18}{'held-out linked':>18}")
    for kind, found in runs.items():
        own, *held_out = (found[measure][-1][1] for measure in ("train", *KINDS))
        print(f"{kind:12}{own:12.1f}{held_out[0]:18.1f}{held_out[1]:18.1f}")
    draw(runs, given.output / "random_or_linked.svg")
    print(given.output / "random_or_linked.svg")


if __name__ == "__main__":
    main()
