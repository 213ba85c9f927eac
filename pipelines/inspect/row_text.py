"""Printing of a corpus row: its parts, its spans, and what encoder and decoder see."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import islice

import numpy as np
from rich.console import Console
from rich.text import Text

from corpora.printing import printable
from corpora.schemas.sequences import SequenceBatch
from corpora.tokenizers.protocol import Tokenizer
from objectives.api.examples import Examples
from objectives.api.masks import MaskBatch
from pipelines.inspect.pieces import (
    BRACKETS,
    KINDS,
    Kind,
    Piece,
    Reason,
    asked_spans,
    cluster_of,
    kinds_of,
    parts_of,
    plain_pieces,
    reasons_of,
    row_pieces,
    seen_pieces,
    sides_of,
    span_pieces,
)

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
    """Opening and closing bracket of each kind of span, for a console that shows no colour; empty if it does.

    A pipe, a file and ``NO_COLOR`` show none. ``⟦ ⟧`` is ``[[ ]]`` where the console's encoding lacks it.
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
    """Pieces as text in colour, or in brackets; no character of theirs commands the terminal."""
    text = Text()
    for piece in pieces:
        first, last = (brackets or {}).get(piece.kind, ("", ""))
        text.append(f"{first}{printable(piece.text)}{last}", style=(_MARKED if piece.marked else _STYLES)[piece.kind])
    return text


def as_seen(ids: np.ndarray, tokenizer: Tokenizer, special: Mapping[str, int], marked: np.ndarray) -> Text:
    """Rendered ids as text, special tokens by name and in colour, text at ``marked`` positions on a ground."""
    return as_text(seen_pieces(ids, tokenizer, special, marked))


def print_rendered(
    console: Console, examples: Examples, tokenizer: Tokenizer, special: Mapping[str, int], width: int
) -> None:
    """Print source, and target or labels, of the only row.

    Positions with global attention, and target positions that the decoder is given, have a ground.
    """
    for side in sides_of(examples):
        _heading(console, f"{side.name}, {side.described}")
        if side.places is None:
            text = as_seen(side.ids, tokenizer, special, side.marked)
        else:
            pairs = zip(side.places.tolist(), side.ids[:, None], strict=True)
            text = Text(" ".join(f"{place}:{printable(tokenizer.decode(own)).strip()}" for place, own in pairs))
        console.print(_cut(text, width))


def print_parts(console: Console, batch: SequenceBatch, tokenizer: Tokenizer | None = None, width: int = 0) -> None:
    """Print the parts of the only row, and with a tokenizer their texts."""
    parts, cluster = parts_of(batch), cluster_of(batch)
    where = "" if cluster is None else f", cluster {cluster}"
    count = len(parts)
    _heading(console, f"{count} {'part' if count == 1 else 'parts'}, {len(batch.tokens[0])} tokens{where}")
    most = count if tokenizer else _lines(count, width)
    for part in islice(parts, most):
        style = "bold cyan" if tokenizer else ""
        console.print(Text(f"  {printable(part.document_id)}: {part.described}", style=style))
        if tokenizer:
            own = batch.tokens[0][part.start : part.stop]
            console.print(_cut(as_text(plain_pieces(tokenizer, own, 0, len(own))), width))
    _more(console, count - most)


def print_spans(console: Console, batch: SequenceBatch, masks: MaskBatch, tokenizer: Tokenizer, width: int) -> None:
    """Print the text of the only row with its spans in colour, and why each was chosen, in that order."""
    spans, tokens = asked_spans(masks)
    heading = Text(f"\ntext, {spans} spans with {tokens} tokens asked", style="bold")
    brackets = brackets_of(console)
    for kind in kinds_of(masks):
        first, last = brackets.get(kind, (" ", " "))
        heading.append("  ").append(f"{first}{KINDS[kind]}{last}", style=_STYLES[kind])
    console.print(heading)
    console.print(_cut(as_text(row_pieces(tokenizer, batch, masks), brackets), width))
    if reasons := reasons_of(masks):
        _heading(console, "why")
        most = _lines(len(reasons), width)
        for reason in reasons[:most]:
            console.print(_reason(reason, span_pieces(tokenizer, batch, masks, reason.start, reason.stop)))
        _more(console, len(reasons) - most)


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
    said = " ".join(as_text(pieces).plain.split())
    return line.append(said if len(said) <= 80 else said[:80] + " ...", style=_STYLES[reason.kind])


def _heading(console: Console, text: str) -> None:
    console.print(f"\n[bold]{text}[/]")


def _lines(count: int, width: int) -> int:
    """Number of lines to print out of ``count``: beside a cut text, one per 100 characters of it, at least 3."""
    return min(count, max(width // 100, 3)) if width else count


def _more(console: Console, count: int) -> None:
    if count:
        console.print(Text(f"  ... and {count} more", style="dim"))


def _cut(text: Text, width: int) -> Text:
    return text if not width or len(text) <= width else text[:width] + Text(" ...", style="dim")
