"""Extractive baselines for summaries: sentences of the source itself, scored like any system.

About 100 whole articles of English Wikipedia lose their first three sentences, which become the reference. Three
systems then answer with three sentences of what is left: the first ones, random ones, and those with the highest
ROUGE-1 against the rest (the principal sentences of PEGASUS). They are written as prediction files of SCROLLS's layout,
evaluated together, and drawn.

    python examples/extractive_baselines.py demo-output/baselines --figure docs/figures/evaluation.svg
"""

from __future__ import annotations

import argparse
import json
from itertools import pairwise
from pathlib import Path

import numpy as np
from wikipedia_text import articles, write_json_lines

import farspan
from corpora.keyed import id_keys, make_key
from corpora.storage.ragged import Ragged
from corpora.text.sentences import load_splitter
from objectives.rouge.sentence_scores import sentence_scores
from objectives.rouge.words import split_words
from pipelines.evaluation.report import draw, print_table

SENTENCES = 3  # of a reference, and of a prediction
METRIC = "rouge:pegasus_x"


def pairs() -> dict[str, tuple[list[str], list[str]]]:
    """Title -> sentences of the reference and of the source, without line ends."""
    splitter = load_splitter()
    made = {}
    for article in articles():
        text = " ".join(article["text"].split())
        edges = [*splitter.boundaries(text).tolist(), len(text)]
        sentences = [text[begin:end].strip() for begin, end in pairwise(edges)]
        if len(sentences) > 10 * SENTENCES:
            made[article["title"]] = sentences[:SENTENCES], sentences[SENTENCES:]
    return made


def first(sources: dict[str, list[str]]) -> dict[str, list[int]]:
    return {title: list(range(SENTENCES)) for title in sources}


def at_random(sources: dict[str, list[str]]) -> dict[str, list[int]]:
    """Sentences that depend on the title alone."""
    keys = id_keys(make_key(0, "random sentences"), sources)
    draws = (np.random.Generator(np.random.Philox(key=key)) for key in keys)
    return {
        title: draw.choice(len(own), SENTENCES, replace=False).tolist()
        for (title, own), draw in zip(sources.items(), draws, strict=True)
    }


def principal(sources: dict[str, list[str]]) -> dict[str, list[int]]:
    """The sentences with the highest ROUGE-1 F1 against the rest of their source."""
    starts = [np.cumsum([0, *(len(sentence) + 1 for sentence in own)])[:-1] for own in sources.values()]
    texts = ["".join(sentence + "\n" for sentence in own) for own in sources.values()]
    scores = sentence_scores(split_words(texts, Ragged.from_rows(starts, np.int64)))
    return {title: np.argsort(-scores[row], kind="stable")[:SENTENCES].tolist() for row, title in enumerate(sources)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("output", type=Path, help="folder for everything that is made")
    parser.add_argument("--figure", type=Path, help="file to draw (default: evaluation.svg in the folder)")
    options = parser.parse_args()
    out: Path = options.output
    made = pairs()
    raw, tokenizer, documents = out / "articles" / "validation.jsonl", out / "tokenizer", out / "documents"
    texts = ((title, " ".join(source), "\n".join(reference)) for title, (reference, source) in made.items())
    write_json_lines(raw, ({"id": title, "document": text, "reference": summary} for title, text, summary in texts))
    if not tokenizer.exists():
        farspan.tokenizer_train(vocab_size=8_000, input=raw, text_field="document", output=tokenizer)
    farspan.documents(input=f"wiki={raw}", format="pairs", tokenizer=tokenizer, output=documents)
    farspan.pairs(input=f"wiki={raw}", documents=documents, output=out / "pairs")
    sources = {title: source for title, (_, source) in made.items()}
    systems = {"first": first(sources), "principal": principal(sources), "random": at_random(sources)}
    for name, chosen in systems.items():
        answers = {title: "\n".join(sources[title][i] for i in sorted(rows)) for title, rows in chosen.items()}
        (out / f"{name}.json").write_text(json.dumps(answers, ensure_ascii=False, indent=1), "utf-8")
    files = [out / f"{name}.json" for name in systems]
    table = farspan.evaluate(files, METRIC, pairs=out / "pairs", split="validation")
    print_table(table)
    draw(table, str(options.figure or out / "evaluation.svg"))


if __name__ == "__main__":
    main()
