"""Printing of a corpus row: its parts, its spans, and what encoder and decoder see."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
from rich.console import Console
from rich.text import Text

from corpora.printing import counted, printable
from corpora.schemas.sequences import SequenceBatch
from corpora.tokenizers.protocol import Tokenizer
from objectives.api.examples import Examples
from objectives.api.masks import MaskBatch
from pipelines.pieces.piece import BRACKETS, KINDS, Kind, Piece, plain_pieces
from pipelines.pieces.row import (
    Reason,
    cluster_of,
    kinds_of,
    parts_of,
    reasons_of,
    row_pieces,
    span_pieces,
    target_spans,
)
from pipelines.pieces.sides import seen_pieces, sides_of
from pipelines.pieces.titles import Titles, named

_STYLES: Mapping[Kind, str] = {
    "text": "",
    "hidden": "black on yellow",
    "shown": "black on green",
    "replaced": "black on magenta",
    "candidate": "underline",
    "special": "bold cyan",
    "shared": "bold underline",
}
_MARKED: Mapping[Kind, str] = {"text": "black on green", "special": "bold red"}


def brackets_of(console: Console) -> Mapping[Kind, tuple[str, str]]:
    """Opening and closing bracket of each kind of span for a console without colour; empty for one with colour.

    A pipe, a file and a terminal under ``NO_COLOR`` have no colour. If the console's encoding lacks ``⟦ ⟧``, the
    bracket is ``[[ ]]``.
    """
    if console.is_terminal and not console.no_color:
        return {}
    try:
        "".join(pair for pair, _ in BRACKETS.values()).encode(console.encoding)
        pairs = {kind: pair for kind, (pair, _) in BRACKETS.items()}
    except (UnicodeEncodeError, LookupError):
        pairs = {kind: plain for kind, (_, plain) in BRACKETS.items()}
    return {kind: (pair[: len(pair) // 2], pair[len(pair) // 2 :]) for kind, pair in pairs.items()}


def as_text(pieces: Iterable[Piece], brackets: Mapping[Kind, tuple[str, str]] | None = None) -> Text:
    """Pieces as text in colour, or in brackets; control characters are escaped."""
    text = Text()
    for piece in pieces:
        first, last = (brackets or {}).get(piece.kind, ("", ""))
        text.append(f"{first}{printable(piece.text)}{last}", style=(_MARKED if piece.marked else _STYLES)[piece.kind])
    return text


def as_seen(ids: np.ndarray, tokenizer: Tokenizer, special: Mapping[str, int], marked: np.ndarray) -> Text:
    """Rendered ids as text: special tokens by name and in colour, ``marked`` positions on a coloured background."""
    return as_text(seen_pieces(ids, tokenizer, special, marked))


def print_rendered(
    console: Console, examples: Examples, tokenizer: Tokenizer, special: Mapping[str, int], width: int
) -> None:
    """Print source, and target or labels, of a batch of one row.

    Positions with global attention, and those of a target's prompt, have a coloured background.
    """
    for side in sides_of(examples):
        _heading(console, f"{side.name}, {side.described}")
        if side.places is None:
            text = as_seen(side.ids, tokenizer, special, side.marked)
        else:
            pairs = zip(side.places.tolist(), side.ids[:, None], strict=True)
            text = Text(" ".join(f"{place}:{printable(tokenizer.decode(label)).strip()}" for place, label in pairs))
        console.print(_cut(text, width))


def print_parts(
    console: Console,
    batch: SequenceBatch,
    tokenizer: Tokenizer | None = None,
    width: int = 0,
    titles: Titles | None = None,
) -> None:
    """Print the parts of a batch of one row, with the titles that are known, and with a tokenizer their texts."""
    parts, cluster = parts_of(batch), cluster_of(batch)
    in_cluster = "" if cluster is None else f", cluster {cluster}"
    _heading(console, f"{counted(len(parts), 'part')}, {counted(len(batch.tokens[0]), 'token')}{in_cluster}")
    lines = len(parts) if tokenizer else _lines(len(parts), width)
    shown = parts[:lines]
    for part in titles.with_titles(shown) if titles else shown:
        style = "bold cyan" if tokenizer else ""
        console.print(Text(f"  {named(part.document_id, part.title)}: {part.described}", style=style))
        if tokenizer:
            tokens = batch.tokens[0][part.start : part.stop]
            console.print(_cut(as_text(plain_pieces(tokenizer, tokens, 0, len(tokens))), width))
    _more(console, len(parts) - lines)
    if titles and titles.missing:
        console.print(Text(f"  {printable(titles.missing)}", style="dim"))


def print_spans(console: Console, batch: SequenceBatch, masks: MaskBatch, tokenizer: Tokenizer, width: int) -> None:
    """Print the text of a batch of one row, its spans in colour, and the reasons for them in the order of choice."""
    heading = Text(f"\ntext, {target_spans(masks)}", style="bold")
    brackets = brackets_of(console)
    for kind in kinds_of(masks):
        first, last = brackets.get(kind, (" ", " "))
        heading.append("  ").append(f"{first}{KINDS[kind]}{last}", style=_STYLES[kind])
    console.print(heading)
    console.print(_cut(as_text(row_pieces(tokenizer, batch, masks), brackets), width))
    if reasons := reasons_of(masks):
        _heading(console, "why")
        lines = _lines(len(reasons), width)
        for reason in reasons[:lines]:
            console.print(_reason(reason, span_pieces(tokenizer, batch, masks, reason.start, reason.stop)))
        _more(console, len(reasons) - lines)


def _reason(reason: Reason, pieces: Iterable[Piece]) -> Text:
    """A line with rank, score and label of a span, and the beginning of its text."""
    line = Text("  ")
    if reason.rank is not None:
        line.append(f"#{reason.rank + 1} ")
    if reason.score is not None:
        line.append(f"score {reason.score:.4f} ", style="bold")
    if reason.label is not None:
        line.append(f"[{printable(reason.label)}] ", style="cyan")
    line.append(f"tokens {reason.start} to {reason.stop}: ", style="dim")
    text = " ".join(as_text(pieces).plain.split())
    return line.append(text if len(text) <= 80 else text[:80] + " ...", style=_STYLES[reason.kind])


def _heading(console: Console, text: str) -> None:
    console.print(f"\n[bold]{text}[/]")


def _lines(count: int, width: int) -> int:
    """Number of lines to print out of ``count``: all, or if texts are cut, one per 100 characters and at least 3."""
    return min(count, max(width // 100, 3)) if width else count


def _more(console: Console, count: int) -> None:
    if count:
        console.print(Text(f"  ... and {count} more", style="dim"))


def _cut(text: Text, width: int) -> Text:
    return text if not width or len(text) <= width else text[:width] + Text(" ...", style="dim")
