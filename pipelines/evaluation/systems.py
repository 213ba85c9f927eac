"""Predictions of one or several systems for the same pairs, read and checked."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from corpora.errors import FarspanError, first_few
from corpora.printing import format_count
from corpora.schemas.pairs import PairSet
from corpora.schemas.predictions import TEXTS, PredictionSet, open_predictions
from corpora.storage.files import read_user_json
from corpora.storage.manifest_file import NAME
from corpora.storage.ragged import Ragged
from corpora.tokenizers.load import load_tokenizer_of
from objectives.metrics.metrics import COPIED_NGRAM, compute_copied_shares, option_texts
from pipelines.inspect.distributions import pair_lengths


@dataclass(frozen=True)
class System:
    """The predictions of one system."""

    name: str  # folder or file from which they were read
    texts: Sequence[str]  # prediction for each pair of the split, in stored order
    config: Mapping[str, Any]  # model and options of generation from the manifest; empty for a JSON file


@dataclass(frozen=True)
class Questions:
    """The pairs of a split, with those of all splits."""

    pairs: PairSet
    split: str

    @cached_property
    def table(self) -> pa.Table:
        """The rows of the split, in stored order."""
        return self.pairs.table(self.pairs.rows_of(self.split)).combine_chunks()

    @cached_property
    def ids(self) -> list[str]:
        return self.table.column("pair_id").to_pylist()

    @cached_property
    def references(self) -> list[list[str]]:
        """The references of each pair."""
        references = self.table.column("references").to_pylist()
        for name, texts in zip(self.ids, references, strict=True):
            if not texts:
                raise FarspanError(
                    f"{self.pairs.folder}: pair {name!r} of split {self.split} has no reference; evaluate a split with "
                    "known references, or make a file for the SCROLLS server with `farspan submit`"
                )
        return references

    @cached_property
    def options(self) -> list[list[str]]:
        """The texts of each question's options."""
        tokenizer = load_tokenizer_of(self.pairs.folder)
        columns = [self.table.column(name).to_pylist() for name in ("pair_id", "options", "targets", "references")]
        texts = []
        for name, options, targets, references in zip(*columns, strict=True):
            if not options:
                raise FarspanError(
                    f"{self.pairs.folder}: pair {name!r} has no options to choose from; take the metric exact_match"
                )
            texts.append(option_texts(options, targets, references, tokenizer.decode))
        return texts

    def attributes(self, name: str, absent: str | None = None) -> list[str]:
        """The value of an attribute for each pair; values that are no texts are written as JSON.

        A pair without it gets ``absent``; None stands for ``none``, and refuses an attribute that no pair has.
        """
        attributes = [json.loads(text) for text in self.table.column("attributes").to_pylist()]
        if absent is None and not any(name in one for one in attributes):
            known = sorted({key for one in attributes for key in one})
            raise FarspanError(
                f"{self.pairs.folder}: no pair of split {self.split} has attribute {name!r}; attributes: "
                f"{', '.join(known) or 'none'}"
            )
        return [
            value if isinstance(value, str) else json.dumps(value)
            for value in (one.get(name, "none" if absent is None else absent) for one in attributes)
        ]

    @cached_property
    def document_rows(self) -> list[tuple[int, ...]]:
        """The documents of each pair, as rows of ``pairs.documents``."""
        return [tuple(rows) for rows in self.table.column("document_rows").to_pylist()]

    @cached_property
    def document_lengths(self) -> np.ndarray:
        """Number of tokens of each pair's documents together, ``(n,)`` int64."""
        return pair_lengths(self.pairs)[1][self.pairs.rows_of(self.split)]


def read_systems(
    predictions: Sequence[str], pairs: str | None = None, split: str | None = None, documents: str | None = None
) -> tuple[Questions, list[System]]:
    """Read the predictions of systems to be compared, and their pairs.

    Predictions are folders made by ``farspan generate``, or JSON files of ``{"id": "text"}``, the format of SCROLLS.
    Where None is given, the predictions name their pairs and split, and the pairs their documents.
    """
    opened = {name: open_predictions(name, verify=True) for name in dict.fromkeys(predictions) if not is_json(name)}
    for name, artefact in opened.items():
        _check_equal(artefact, next(iter(opened.values())), name, next(iter(opened)))
        if split not in (None, artefact.split):
            raise FarspanError(f"{name}: its predictions are of split {artefact.split}, not {split}; leave --split out")
    first = next(iter(opened.values()), None)
    if first is None and (pairs is None or split is None):
        raise FarspanError(
            f"{predictions[0]}: a JSON file does not name the pairs of its predictions; give --pairs DIR and --split "
            "NAME"
        )
    pair_set = first.open_pairs(pairs, documents) if first else PairSet(str(pairs), documents, verify=True)
    questions = Questions(pair_set, first.split if first else str(split))
    systems = []
    for name in predictions:
        source = opened.get(name)
        listed = list(zip(source.pair_ids, source.texts, strict=True)) if source else read_json(name)
        config = {} if source is None else {key: source.manifest.config[key] for key in ("model", "generation")}
        systems.append(System(name, _in_order(name, listed, questions), config))
    return questions, systems


def is_json(name: str) -> bool:
    """True for the name of a JSON file of predictions, False for the folder of an artefact."""
    return name.endswith(".json") and not os.path.isdir(name)


def check_outputs(outputs: Mapping[str, str | None], predictions: Sequence[str]) -> None:
    """Check, before any work, that no output, by its flag, replaces one of the predictions that are read."""
    files = [[name] if is_json(name) else [os.path.join(name, file) for file in (NAME, TEXTS)] for name in predictions]
    read = {os.path.realpath(path) for paths in files for path in paths}
    for flag, path in outputs.items():
        if path is not None and os.path.realpath(path) in read:
            raise FarspanError(f"{flag}: would replace {path}, which is read; give another name")


def _check_equal(second: PredictionSet, first: PredictionSet, name: str, other: str) -> None:
    if second.manifest.parent != first.manifest.parent:
        raise FarspanError(
            f"{name}: predictions for other pairs than those of {other}; only systems with equal questions are "
            "compared: evaluate each by itself"
        )
    if second.split != first.split:
        raise FarspanError(
            f"{name}: predictions of split {second.split}, while those of {other} are of split {first.split}; evaluate "
            "each by itself"
        )


def read_json(path: str) -> list[tuple[str, str]]:
    """Read ids and texts from a JSON file ``{"id": "text"}``, in its order."""
    listed = read_user_json(path, pairs=tuple)
    if not isinstance(listed, tuple):
        raise FarspanError(f'{path}: predictions are one JSON object of ids and texts: {{"id": "text", ...}}')
    for name, text in listed:
        if not isinstance(text, str):
            raise FarspanError(f"{path}: the prediction of {name!r} is {json.dumps(text):.40}; give a text")
        if half := re.search("[\ud800-\udfff]", name + text):
            raise FarspanError(
                f"{path}: the prediction of {name!r} holds {half[0]!r}, half of a surrogate pair, which no UTF-8 file "
                "can hold; leave it out"
            )
    return list(listed)


def _in_order(name: str, listed: Sequence[tuple[str, str]], questions: Questions) -> list[str]:
    """Return the predictions for the pairs of a split, in stored order."""
    texts = dict(listed)
    if len(texts) < len(listed):
        ids = [pair for pair, _ in listed]
        twice = next(pair for number, pair in enumerate(ids) if pair in ids[:number])
        raise FarspanError(f"{name}: pair {twice!r} has two predictions; leave one of them out")
    split = f"split {questions.split} of {questions.pairs.folder}"
    if missing := [pair for pair in questions.ids if pair not in texts]:
        raise FarspanError(
            f"{name}: no prediction for {len(missing):,} of the {len(questions.ids):,} pairs in {split}: "
            f"{first_few(missing)}; generate them too"
        )
    known = set(questions.ids)
    if redundant := [pair for pair in texts if pair not in known]:
        raise FarspanError(
            f"{name}: {format_count(len(redundant), 'prediction')} of ids that {split} does not have: "
            f"{first_few(redundant)}; leave them out"
        )
    return [texts[pair] for pair in questions.ids]


def word_counts(texts: Sequence[str]) -> np.ndarray:
    """Number of words of each text, separated by white space; ``(n,)`` int64."""
    return np.fromiter((len(text.split()) for text in texts), np.int64, len(texts))


def compute_copied(questions: Questions, systems: Sequence[System], n: int = COPIED_NGRAM) -> list[np.ndarray]:
    """Compute ``compute_copied_shares`` of each system's predictions, ``(n,)`` each; each source is decoded once."""
    documents, tokenizer = questions.pairs.documents, load_tokenizer_of(questions.pairs.documents.folder)
    shares = [np.full(len(questions.ids), np.nan) for _ in systems]
    pairs_about: dict[tuple[int, ...], list[int]] = {}
    for number, rows in enumerate(questions.document_rows):
        pairs_about.setdefault(rows, []).append(number)
    for rows, numbers in pairs_about.items():
        texts = [system.texts[number] for system in systems for number in numbers]
        tokens = Ragged.from_arrow(documents.take(rows)["tokens"].combine_chunks())
        of_texts = compute_copied_shares(texts, "\n".join(map(tokenizer.decode, tokens)), n)
        for of_system, part in zip(shares, np.split(of_texts, len(systems)), strict=True):
            of_system[numbers] = part
    return shares
