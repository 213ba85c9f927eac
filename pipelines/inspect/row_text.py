"""Printing of a corpus row: its parts, its spans, and what encoder and decoder see."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice

import numpy as np
from rich.console import Console
from rich.text import Text

from corpora.printing import printable
from corpora.schemas.sequences import NO_CLUSTER, SequenceBatch
from corpora.tokenizers.protocol import Tokenizer
from objectives.api.examples import IGNORED, Examples
from objectives.api.masks import IN_SOURCE, IN_TARGET, REPLACED, VISIBLE, MaskBatch

# style of a span's text, by what happens to it
_HIDDEN, _SHOWN, _REPLACED, _CANDIDATE = "black on yellow", "black on green", "black on magenta", "underline"
_LEGEND = (("hidden", _HIDDEN), ("visible and asked", _SHOWN), ("replaced", _REPLACED), ("candidate", _CANDIDATE))


def _text(tokenizer: Tokenizer, ids: np.ndarray) -> str:
    return printable(tokenizer.decode(ids))


def as_seen(ids: np.ndarray, tokenizer: Tokenizer, special: Mapping[str, int], marked: np.ndarray) -> Text:
    """Rendered ids as text, special tokens by name and in colour, text at ``marked`` positions on a ground."""
    names = {value: name for name, value in special.items()}
    is_name = np.isin(ids, np.array(list(names), ids.dtype))
    text = Text()
    edges = np.flatnonzero(np.diff(is_name * 2 + (marked & ~is_name)) | is_name[1:]) + 1
    for start, stop in zip([0, *edges.tolist()], [*edges.tolist(), len(ids)], strict=True):
        if start == stop:
            continue
        if is_name[start]:
            text.append(printable(names[int(ids[start])]), style="bold red" if marked[start] else "bold cyan")
        else:
            text.append(_text(tokenizer, ids[start:stop]), style=_SHOWN if marked[start] else "")
    return text


def print_rendered(
    console: Console, examples: Examples, tokenizer: Tokenizer, special: Mapping[str, int], width: int
) -> None:
    """Print source, and target or labels, of the only row.

    Positions with global attention, and target positions that the decoder is given, have a ground.
    """
    length = int(examples.source_lengths[0])
    globally = np.zeros(length, bool)
    note = ""
    if examples.global_positions is not None:
        globally = examples.global_positions[0, :length]
        note = f", {int(globally.sum())} with global attention"
    _heading(console, f"source, {length} positions{note}")
    console.print(_cut(as_seen(examples.source_ids[0, :length], tokenizer, special, globally), width))
    if examples.labels is not None:
        labels = examples.labels[0, :length]
        asked = np.flatnonzero(labels != IGNORED)
        _heading(console, f"labels, {len(asked)} positions asked")
        words = [f"{place}:{_text(tokenizer, labels[place : place + 1]).strip()}" for place in asked.tolist()]
        console.print(_cut(Text(" ".join(words)), width))
    elif length := int(examples.target_lengths[0]):
        given = 0 if examples.prompt_lengths is None else int(examples.prompt_lengths[0])
        _heading(console, f"target, {length} positions" + (f", {given} given" if given else ""))
        ids = examples.target_ids[0, :length]
        console.print(_cut(as_seen(ids, tokenizer, special, np.arange(length) < given), width))


def print_parts(console: Console, batch: SequenceBatch, tokenizer: Tokenizer | None = None, width: int = 0) -> None:
    """Print the parts of the only row, and with a tokenizer their texts."""
    pieces = np.split(batch.tokens[0], batch.document_starts[0][1:])
    columns = (batch.document_ids[0].as_py(), batch.document_offsets[0], pieces, batch.document_lengths[0])
    count, cluster = len(pieces), int(batch.cluster_ids[0])
    where = "" if cluster == NO_CLUSTER else f", cluster {cluster}"
    _heading(console, f"{count} {'part' if count == 1 else 'parts'}, {len(batch.tokens[0])} tokens{where}")
    most = count if tokenizer else _lines(count, width)
    for name, offset, piece, length in islice(zip(*columns, strict=True), most):
        style = "bold cyan" if tokenizer else ""
        console.print(Text(f"  {printable(name)}: tokens {offset} to {offset + len(piece)} of {length}", style=style))
        if tokenizer:
            console.print(_cut(Text(_text(tokenizer, piece)), width))
    _more(console, count - most)


def print_spans(console: Console, batch: SequenceBatch, masks: MaskBatch, tokenizer: Tokenizer, width: int) -> None:
    """Print the text of the only row with its spans in colour, and why each was chosen, best first."""
    starts, sizes, flags = masks.span_starts[0], masks.span_lengths[0], masks.span_flags[0]
    asked = flags & IN_TARGET != 0
    heading = Text(f"\ntext, {int(asked.sum())} spans with {int(sizes[asked].sum())} tokens asked", style="bold")
    present = {_style(int(flag)) for flag in np.unique(flags)}
    for name, style in _LEGEND:
        if style in present:
            heading.append("  ").append(f" {name} ", style=style)
    console.print(heading)
    text, place, tokens = Text(), 0, batch.tokens[0]
    for start, size, flag in zip(starts.tolist(), sizes.tolist(), flags.tolist(), strict=True):
        text.append(_text(tokenizer, tokens[place:start]))
        text.append(_text(tokenizer, tokens[start : start + size]), style=_style(flag))
        place = start + size
    text.append(_text(tokenizer, tokens[place:]))
    console.print(_cut(text, width))
    reasons = list(_reasons(batch, masks, tokenizer))
    if reasons:
        _heading(console, "why")
        most = _lines(len(reasons), width)
        for line in reasons[:most]:
            console.print(line)
        _more(console, len(reasons) - most)


def _reasons(batch: SequenceBatch, masks: MaskBatch, tokenizer: Tokenizer) -> Iterator[Text]:
    """A line for each span with a score, rank or label, in order of rank where there are ranks."""
    columns = (masks.span_ranks, masks.span_scores, masks.span_labels)
    ranks, scores, labels = (None if column is None else column[0] for column in columns)
    if ranks is None and scores is None and labels is None:
        return
    starts, sizes = masks.span_starts[0], masks.span_lengths[0]
    order = range(len(starts)) if ranks is None else np.argsort(ranks, kind="stable").tolist()
    for span in order:
        line = Text("  ")
        if ranks is not None:
            line.append(f"#{int(ranks[span]) + 1} ")
        if scores is not None:
            line.append(f"score {float(scores[span]):.4f} ", style="bold")
        if labels is not None and (label := labels[span].as_py()):
            line.append(f"[{printable(label)}] ", style="cyan")
        start, size = int(starts[span]), int(sizes[span])
        line.append(f"tokens {start} to {start + size}: ", style="dim")
        said = " ".join(_text(tokenizer, batch.tokens[0][start : start + size]).split())
        yield line.append(said if len(said) <= 80 else said[:80] + " ...", style=_style(int(masks.span_flags[0][span])))


def _style(flag: int) -> str:
    if flag & REPLACED:
        return _REPLACED
    if flag & VISIBLE:
        return _SHOWN
    return _HIDDEN if flag & (IN_SOURCE | IN_TARGET) else _CANDIDATE


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
