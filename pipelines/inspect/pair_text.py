"""Printing of a pair, its query, its answers and the beginning of each of its documents, and of a prediction."""

from __future__ import annotations

import numpy as np
from rich.console import Console
from rich.text import Text

from corpora.errors import FarspanError
from corpora.printing import counted, printable, row_numbers
from corpora.schemas.pairs import PairSet
from corpora.schemas.predictions import PredictionSet
from corpora.tokenizers.load import load_tokenizer_of
from corpora.tokenizers.protocol import Tokenizer
from pipelines.pieces.titles import named

_BEGINNING = 300  # characters of each document, unless --width is given


def print_pair(console: Console, pairs: PairSet, row: int, width: int) -> None:
    """Print row ``row`` of pairs.

    Args:
        width: maximum characters of each text; 0 for all, but for the beginning of each document only.

    Raises:
        FarspanError: no such row.
    """
    if not 0 <= row < len(pairs):
        raise FarspanError(f"--row {row}: {pairs.folder} has {row_numbers(len(pairs))}")
    tokenizer = load_tokenizer_of(pairs.folder)
    (values,) = pairs.table([row]).to_pylist()
    batch = pairs.take([row])
    console.print(Text.assemble((f"row {row}", "bold"), f" of {printable(pairs.folder)}, pair {values['pair_id']!r}"))
    attributes = f", attributes {printable(values['attributes'])}" if values["attributes"] != "{}" else ""
    console.print(Text(f"split {values['split']}{attributes}", style="dim"))
    if values["query"]:
        _heading(console, f"query, {counted(len(values['query']), 'token')}")
        console.print(_cut(tokenizer.decode(values["query"]), width))
    for name in ("options", "targets"):
        for number, tokens in enumerate(values[name] or ()):
            _heading(console, f"{name.removesuffix('s')} {number}, {counted(len(tokens), 'token')}")
            console.print(_cut(tokenizer.decode(tokens), width))
    for number, reference in enumerate(values["references"]):
        _heading(console, f"reference {number}")
        console.print(_cut(reference, width))
    columns = (values["document_ids"], values["document_rows"], batch.pair_documents[0].tolist())
    for name, own, document in zip(*columns, strict=True):
        tokens = batch.document_tokens[document]
        title = pairs.documents.title(own)
        _heading(console, f"document {named(name, title)}, {counted(len(tokens), 'token')}")
        console.print(_beginning(tokens, width or _BEGINNING, tokenizer))


def print_prediction(
    console: Console, predictions: PredictionSet, row: int, width: int, documents: str | None = None
) -> None:
    """Print row ``row`` of predictions, and the pair that it answers.

    Args:
        width: as for ``print_pair``.
        documents: folder of the pairs' documents, if it has moved since the pairs were made.

    Raises:
        FarspanError: no such row, or the pairs have moved or gone.
    """
    if not 0 <= row < len(predictions):
        raise FarspanError(f"--row {row}: {predictions.folder} has {row_numbers(len(predictions))}")
    shard, batch, inside = (int(column[0]) for column in predictions.locate(np.array([row])))
    (values,) = predictions.batch(shard, batch).slice(inside, 1).to_pylist()
    console.print(Text.assemble(("prediction", "bold"), f" {row} of {printable(predictions.folder)}"))
    console.print(Text(f"{counted(len(values['tokens']), 'token')}, score {values['score']:.4f}", style="dim"))
    console.print(_cut(values["text"], width))
    console.print()
    pairs = predictions.open_pairs(documents=documents)
    print_pair(console, pairs, int(pairs.rows_of(predictions.split)[row]), width)


def _beginning(tokens: np.ndarray, width: int, tokenizer: Tokenizer) -> Text:
    """The first ``width`` characters of a document, or fewer, without decoding much more of it."""
    text = tokenizer.decode(tokens[:width])
    shown = Text(printable(text[:width]))
    return shown.append(" ...", style="dim") if len(text) > width or len(tokens) > width else shown


def _cut(text: str, width: int) -> Text:
    shown = printable(text)
    return Text(shown) if not width or len(shown) <= width else Text(shown[:width]).append(" ...", style="dim")


def _heading(console: Console, text: str) -> None:
    console.print(Text(f"\n{text}", style="bold"))
