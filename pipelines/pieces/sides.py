"""A rendered row for display: source, and target or labels, as the model gets them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from corpora.printing import counted
from corpora.tokenizers.protocol import Tokenizer
from objectives.api.examples import IGNORED, Examples
from pipelines.pieces.piece import Kind, Piece


def seen_pieces(
    ids: np.ndarray, tokenizer: Tokenizer, special: Mapping[str, int], marked: np.ndarray, start: int = 0
) -> list[Piece]:
    """Rendered ids as text; each special token is a piece with its name.

    Args:
        ids: ``(n,)`` ids of a range of a source or target that begins at position ``start``.
        special: name -> id of every token that rendering inserts.
        marked: ``(n,)`` bool, as in ``Piece``.
    """
    names = {value: name for name, value in special.items()}
    is_name = np.isin(ids, np.array(list(names), ids.dtype))
    edges = np.flatnonzero(np.diff(is_name * 2 + marked) | is_name[1:]) + 1
    pieces = []
    for first, stop in zip([0, *edges.tolist()], [*edges.tolist(), len(ids)], strict=True):
        if first == stop:
            continue
        named = bool(is_name[first])
        text = names[int(ids[first])] if named else tokenizer.decode_with_offsets(ids[first:stop])[0]
        kind: Kind = "special" if named else "text"
        pieces.append(Piece(text, kind, start + first, stop - first, marked=bool(marked[first])))
    return pieces


@dataclass(frozen=True, slots=True)
class Side:
    """Source, target or labels of a row, as the model gets them.

    Attributes:
        name: ``source``, ``target`` or ``labels``.
        described: length, in words.
        ids: ``(n,)`` ids; only positions with a label count for labels.
        marked: ``(n,)`` bool, as in ``Piece``.
        places: ``(n,)`` positions of labels in the source; None for a source or target.
    """

    name: str
    described: str
    ids: np.ndarray
    marked: np.ndarray
    places: np.ndarray | None = None


def sides_of(examples: Examples, row: int = 0) -> list[Side]:
    """Source of a row, followed by its target or labels if it has any."""
    length = int(examples.source_lengths[row])
    attended, note = np.zeros(length, bool), ""
    if examples.global_positions is not None:
        attended = examples.global_positions[row, :length]
        note = f", {int(attended.sum())} with global attention"
    positions = counted(length, "position")
    sides = [Side("source", f"{positions}{note}", examples.source_ids[row, :length], attended)]
    if examples.labels is not None:
        labels = examples.labels[row, :length]
        places = np.flatnonzero(labels != IGNORED)
        described = counted(len(places), "position")
        sides.append(Side("labels", described, labels[places], np.zeros(len(places), bool), places))
    elif length := int(examples.target_lengths[row]):
        prompt = 0 if examples.prompt_lengths is None else int(examples.prompt_lengths[row])
        described = counted(length, "position") + (f", {prompt:,} of them given" if prompt else "")
        sides.append(Side("target", described, examples.target_ids[row, :length], np.arange(length) < prompt))
    return sides
