"""``farspan show``: one row as a person reads it and as the model sees it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping

import numpy as np
from rich.console import Console
from rich.text import Text

from corpora.corpus import Corpus
from corpora.errors import FarspanError
from corpora.files import LocalFiles
from corpora.manifest import manifest_sha256, read_manifest
from corpora.sequences import NO_CLUSTER, SequenceBatch
from corpora.tokenizers import Tokenizer, load_tokenizer
from objectives.mask_set import MaskSet
from objectives.masks import IN_SOURCE, IN_TARGET, MaskBatch


def show(
    folder: str, row: int, corpus_folder: str | None = None, width: int = 0, console: Console | None = None
) -> None:
    """Print a row of a corpus; of a mask set also what is hidden, the source and the target.

    Args:
        row: its number in the artefact.
        corpus_folder: where a mask set's corpus lies, if not where its manifest says.
        width: characters of each text, 0 for all.

    Raises:
        FarspanError: no such row, or masks of another corpus.
    """
    console = console or Console(highlight=False, soft_wrap=True)
    masks = None
    if read_manifest(LocalFiles(), folder).format == "farspan.masks":
        masks = MaskSet(folder)
        corpus_folder = corpus_folder or masks.parent_folder
    corpus = Corpus(corpus_folder or folder)
    if masks is not None:
        masks.check_parent(manifest_sha256(LocalFiles(), corpus.folder))
    if not len(corpus):
        raise FarspanError(f"{corpus.folder}: holds no sequence; there is nothing to show")
    if not 0 <= row < len(corpus):
        raise FarspanError(f"--row {row}: {corpus.folder} has rows 0 to {len(corpus) - 1}")
    batch = corpus.take(np.array([row]))
    tokenizer = load_tokenizer(os.path.join(corpus.folder, "tokenizer"))
    console.print(f"[bold]row {row}[/] of {corpus.folder}, sequence {batch.sequence_id(0).hex()}")
    if masks is None:
        _parts(console, batch, tokenizer, width)
        return
    _parts(console, batch)
    mask = masks.take(np.array([row]))
    _hidden(console, batch, mask, tokenizer, width)
    examples = masks.objective.render(batch, mask, masks.special_tokens)
    for name, ids, length in (
        ("source", examples.source_ids[0], examples.source_lengths[0]),
        ("target", examples.target_ids[0], examples.target_lengths[0]),
    ):
        if length:
            _heading(console, f"{name}, {length} positions")
            console.print(_cut(as_seen(ids[:length], tokenizer, masks.special_tokens.ids), width))


def as_seen(ids: np.ndarray, tokenizer: Tokenizer, special: Mapping[str, int]) -> Text:
    """Rendered ids as text, special tokens by name and in colour."""
    names = {value: name for name, value in special.items()}
    text = Text()
    marked = np.flatnonzero(np.isin(ids, np.array(list(names), ids.dtype)))
    start = 0
    for place in [*marked.tolist(), len(ids)]:
        if place > start:
            text.append(tokenizer.decode(ids[start:place]))
        if place < len(ids):
            text.append(names[int(ids[place])], style="bold cyan")
        start = place + 1
    return text


def _parts(console: Console, batch: SequenceBatch, tokenizer: Tokenizer | None = None, width: int = 0) -> None:
    """The row's parts, and with a tokenizer their texts."""
    pieces = np.split(batch.tokens[0], batch.document_starts[0][1:])
    columns = (batch.document_ids[0].as_py(), batch.document_offsets[0], pieces, batch.document_lengths[0])
    count, cluster = len(pieces), int(batch.cluster_ids[0])
    where = "" if cluster == NO_CLUSTER else f", cluster {cluster}"
    _heading(console, f"{count} {'part' if count == 1 else 'parts'}, {len(batch.tokens[0])} tokens{where}")
    for name, offset, piece, length in zip(*columns, strict=True):
        style = "bold cyan" if tokenizer else ""
        console.print(Text(f"  {name}: tokens {offset} to {offset + len(piece)} of {length}", style=style))
        if tokenizer:
            console.print(_cut(Text(tokenizer.decode(piece)), width))


def _hidden(console: Console, batch: SequenceBatch, mask: MaskBatch, tokenizer: Tokenizer, width: int) -> None:
    spans = list(_spans(batch, mask, tokenizer))
    hidden = int(mask.span_lengths[0].sum())
    _heading(console, f"text, {len(spans)} spans with {hidden} tokens marked")
    text = Text()
    place = 0
    tokens = batch.tokens[0]
    for start, size, _, style in spans:
        text.append(tokenizer.decode(tokens[place:start]))
        text.append(tokenizer.decode(tokens[start : start + size]), style=style)
        place = start + size
    text.append(tokenizer.decode(tokens[place:]))
    console.print(_cut(text, width))
    reasons = [(start, why) for start, _, why, _ in spans if why]
    if reasons:
        _heading(console, "why")
        for start, why in reasons:
            console.print(f"  token {start}: {why}", markup=False)


def _spans(batch: SequenceBatch, mask: MaskBatch, tokenizer: Tokenizer) -> Iterator[tuple[int, int, str, str]]:
    """(start, size, why, style) of each span: why is its score and label, where the objective has them."""
    labels = mask.span_labels[0].as_py() if mask.span_labels is not None else None
    for index in range(len(mask.span_starts[0])):
        why = [f"score {mask.span_scores[0][index]:.4f}"] if mask.span_scores is not None else []
        why += [labels[index]] if labels else []
        flags = int(mask.span_flags[0][index])
        style = "black on yellow" if flags & IN_SOURCE and flags & IN_TARGET else "underline" if flags else "dim"
        yield int(mask.span_starts[0][index]), int(mask.span_lengths[0][index]), ", ".join(why), style


def _heading(console: Console, text: str) -> None:
    console.print(f"\n[bold]{text}[/]")


def _cut(text: Text, width: int) -> Text:
    return text if not width or len(text) <= width else text[:width] + Text(" ...", style="dim")
