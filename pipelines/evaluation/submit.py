"""``farspan submit``: predictions in the format of the SCROLLS server."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from corpora.errors import FarspanError, nearest
from corpora.readers.tasks.suites import SUBSETS
from corpora.reporting import result
from corpora.schemas.predictions import open_predictions
from corpora.storage.files import is_local, write_bytes
from corpora.storage.manifest_file import find_parent
from pipelines.evaluation.options import Submission
from pipelines.evaluation.systems import check_outputs, is_json, read_json, read_systems

_HEADER = ("Task", "ID", "Prediction")
Answers = dict[str, str]
"""Pair id -> prediction."""


def command(options: Submission) -> None:
    """Run ``farspan submit``."""
    path = submit(options.predictions, options.output, partial=options.partial)
    answers = json.loads(path.with_suffix(".json").read_bytes())
    counts = {name: len(texts) for name, texts in answers.items()}
    listed = ", ".join(f"{name} {count:,}" for name, count in counts.items())
    message = f"{path}: predictions: {listed}; the same as JSON in {path.with_suffix('.json')}"
    result(message, output=str(path), predictions=counts)


def submit(
    predictions: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    output: str | os.PathLike[str],
    *,
    partial: bool = False,
) -> Path:
    """Write predictions for the data sets of SCROLLS as one CSV file, and the same as JSON beside it.

    The bytes of the CSV file are those that SCROLLS's ``evaluator/prepare_submission.py`` writes with pandas, except
    that predictions with a carriage return are quoted, which pandas needs to read them back.

    Args:
        predictions: folders made by ``farspan generate``, whose pairs name the subset of SCROLLS; or ``SUBSET=G`` for
            a folder G whose pairs do not, or for a JSON file G of ``{"id": "text"}``.
        output: the CSV file; the same as JSON, subset -> id -> prediction, has the suffix ``.json``.
        partial: also write what the server does not accept: some subsets only, or another split than ``test``.

    Returns:
        The CSV file.

    Raises:
        FarspanError: a subset is missing, unknown or given twice; or predictions of another split.
    """
    path = os.fspath(output)
    if not path.endswith(".csv"):
        raise FarspanError(f"--output {path}: give a name that ends in .csv; a JSON file is written beside it")
    places = [predictions] if isinstance(predictions, str | os.PathLike) else predictions
    names = [os.fspath(place) for place in places]
    twin = path.removesuffix(".csv") + ".json"
    check_outputs({f"--output {path}": twin}, [_split_name(place)[1] for place in names])
    answers = collect(names, "" if partial else "test")
    missing = [name for name in SUBSETS if name not in answers]
    if missing and not (partial and answers):
        raise FarspanError(
            f"no predictions for {len(missing)} of the {len(SUBSETS)} subsets of SCROLLS: {', '.join(missing)}; its "
            "server accepts only all of them (--partial writes the file nevertheless)"
        )
    write_bytes(path, csv_bytes(answers))
    as_json = json.dumps(answers, ensure_ascii=False, indent=1) + "\n"
    write_bytes(twin, as_json.encode())
    return Path(path)


def collect(predictions: Sequence[str], split: str = "") -> dict[str, Answers]:
    """Read the predictions of each subset, in the order of ``SUBSETS``, and require ``split`` unless it is empty."""
    collected: dict[str, Answers] = {}
    origins: dict[str, str] = {}
    for address in predictions:
        for name, answers in _by_subset(address, split).items():
            if name in collected:
                raise FarspanError(f"{address}: {name} has predictions in {origins[name]} already; leave one out")
            collected[name], origins[name] = answers, address
    return {name: collected[name] for name in SUBSETS if name in collected}


def _by_subset(address: str, split: str) -> dict[str, Answers]:
    """Read the predictions of ``G`` by the subset of each pair, or those of ``SUBSET=G`` as one subset."""
    subset, place = _split_name(address)
    if subset:
        _check_subset(subset, address)
    if is_json(place):
        if not subset:
            raise FarspanError(f"{place}: a JSON file does not name the subset of its predictions; give SUBSET={place}")
        return {subset: dict(read_json(place))}
    predictions = open_predictions(place, verify=True)
    if split and predictions.split != split:
        raise FarspanError(
            f"{place}: predictions of split {predictions.split}, and the SCROLLS server scores {split}; generate those "
            "(--partial writes the file nevertheless)"
        )
    if subset:
        return {subset: dict(zip(predictions.pair_ids, predictions.texts, strict=True))}
    pairs = find_parent(place)
    if pairs is None or (is_local(pairs) and not os.path.exists(pairs)):
        raise FarspanError(f"{place}: its pairs, which name their subset, were moved; give SUBSET={place}")
    questions, (system,) = read_systems([place])
    names = questions.attributes("subset", "")
    by_subset: dict[str, Answers] = {}
    for name, pair, text in zip(names, questions.ids, system.texts, strict=True):
        if not name:
            raise FarspanError(
                f"{place}: its pairs in {questions.pairs.folder} do not name their subset; give SUBSET={place}"
            )
        _check_subset(name, f"{place}: pair {pair!r}")
        by_subset.setdefault(name, {})[pair] = text
    return by_subset


def _split_name(address: str) -> tuple[str, str]:
    """Split ``SUBSET=G`` into subset and place; the subset is empty for a path, whose name may also contain ``=``."""
    name, _, place = address.partition("=")
    return (name, place) if place and "/" not in name and not os.path.exists(address) else ("", address)


def _check_subset(name: str, where: str) -> None:
    if name not in SUBSETS:
        known = ", ".join(SUBSETS)
        raise FarspanError(f"{where}: SCROLLS has no subset {name!r}{nearest(name, SUBSETS)}; subsets: {known}")


def csv_bytes(answers: Mapping[str, Mapping[str, str]]) -> bytes:
    """Return the content of the CSV file for subset -> pair id -> prediction."""
    lines = [_HEADER, *((subset, pair, text) for subset, texts in answers.items() for pair, text in texts.items())]
    return "".join(",".join(map(_quote, line)) + "\n" for line in lines).encode()


def _quote(field: str) -> str:
    return '"' + field.replace('"', '""') + '"' if any(mark in field for mark in ',"\n\r') else field
