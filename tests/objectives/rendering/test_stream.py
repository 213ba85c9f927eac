"""Rows for decoders against a plain restatement, position by position."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpora.errors import FarspanError
from corpora.storage.ragged import Ragged
from objectives.api.examples import IGNORED, Examples
from objectives.api.protocol import CorpusFacts
from objectives.api.special_tokens import SpecialTokens
from objectives.rendering.stream import Streams, stream_examples, stream_text
from objectives.span import Span
from tests.factories import OWNED, VOCAB, make_sequences, sequence_batches

SPECIAL = SpecialTokens(OWNED, VOCAB)
BEGIN, END = OWNED["<bos>"], OWNED["<eos>"]
TOKEN = st.sampled_from([BEGIN, END, 4, 5, 31_999])


def columns(streams: Streams) -> list[list[list[int]]]:
    """Ids, labels, positions and documents as lists, whose rows have one length."""
    parts = (streams.input_ids, streams.labels, streams.position_ids, streams.document_ids)
    assert all(part.values.dtype == np.int32 and part.offsets is streams.input_ids.offsets for part in parts)
    return [[row.tolist() for row in part] for part in parts]


@st.composite
def examples(draw: st.DrawFn) -> tuple[Examples, list[tuple[list[int], list[int], int]]]:
    """Examples, and their sources, targets and prompts as lists."""
    rows = draw(st.lists(st.tuples(st.lists(TOKEN, max_size=6), st.lists(TOKEN, max_size=5)), max_size=5))
    prompts = [draw(st.integers(0, len(target))) for _, target in rows]
    columns = [Ragged.from_rows(side, np.int32) for side in ([s for s, _ in rows], [t for _, t in rows])]
    sides = [np.full((len(rows), max(side.lengths, default=0)), 77, np.int32) for side in columns]
    for side, ids in zip(columns, sides, strict=True):
        for row, values in enumerate(side):
            ids[row, : len(values)] = values
    (source, target), (sources, targets) = sides, (side.lengths.astype(np.int32) for side in columns)
    parts = np.sort(np.random.default_rng(0).integers(0, 3, source.shape), axis=1).astype(np.int32)
    batch = Examples(
        np.zeros((len(rows), 16), np.uint8),
        *(source, sources, target, targets),
        segment_ids=parts if draw(st.booleans()) else None,
        prompt_lengths=np.array(prompts, np.int32) if draw(st.booleans()) else None,
    )
    return batch, [(*row, prompt) for row, prompt in zip(rows, prompts, strict=True)]


@given(examples(), st.booleans())
def test_examples_are_joined_as_a_plain_loop_joins_them(case, ends_between):
    batch, rows = case
    expected: list[list[list[int]]] = [[], [], [], []]
    prefixes = []
    for row, (source, target, prompt) in enumerate(rows):
        labelled = [(token, batch.prompt_lengths is None or i >= prompt) for i, token in enumerate(target)]
        if source and target and not ends_between:
            source = source[:-1] if source[-1] == END else source
            labelled = labelled[1:] if target[0] == BEGIN else labelled
        ids = source + [token for token, _ in labelled]
        asked = [False] * len(source) + [asked for _, asked in labelled]
        labels = [token if yes and i else IGNORED for i, (token, yes) in enumerate(zip(ids, asked, strict=True))]
        parts = [0] * len(source) if batch.segment_ids is None else batch.segment_ids[row, : len(source)].tolist()
        documents = parts + [-1] * len(labelled)
        for column, values in zip(expected, (ids, labels, range(len(ids)), documents), strict=True):
            column.append(list(values))
        prefixes.append(len(source))
    streams = stream_examples(batch, SPECIAL, ends_between=ends_between)
    assert columns(streams) == expected
    assert streams.prefix_lengths.tolist() == prefixes


@given(
    sequence_batches(),
    st.tuples(*[st.sampled_from([None, 1, 32_000])] * 3),
    st.booleans(),
    st.integers(0, 2**32 - 1),
)
def test_text_is_laid_out_as_a_plain_loop_lays_it_out(batch, frame, across, seed):
    begin, between, end = frame
    # Some parts end before their documents do.
    missing = np.random.default_rng(seed).integers(0, 2, len(batch.document_lengths.values), np.int32)
    whole = replace(batch.document_lengths, values=batch.document_lengths.values + missing)
    batch = replace(batch, document_lengths=whole)
    expected: list[list[list[int]]] = [[], [], [], []]
    units = 0
    for row in range(len(batch)):
        ids, labels, positions, documents = [], [], [], []
        starts = [*batch.document_starts[row].tolist(), len(batch.tokens[row])]
        for part, (first, stop) in enumerate(itertools.pairwise(starts)):
            piece = [] if begin is None else [begin]
            piece += batch.tokens[row][first:stop].tolist()
            if end is not None and batch.document_offsets[row][part] + stop - first == whole[row][part]:
                piece.append(end)
            if between is not None and part < len(starts) - 2:
                piece.append(between)
            opens = part == 0 or not across
            units += opens
            labels += [IGNORED, *piece[1:]] if opens else piece
            positions += [len(positions) + i if across else i for i in range(len(piece))]
            ids, documents = ids + piece, documents + [part] * len(piece)
        for column, values in zip(expected, (ids, labels, positions, documents), strict=True):
            column.append(values)
    streams = stream_text(batch, begin=begin, between=between, end=end, across_documents=across)
    assert columns(streams) == expected
    assert len(streams.unit_offsets) == units + 1
    assert streams.prefix_lengths.tolist() == [0] * len(batch)


def test_the_last_source_position_predicts_the_first_target_token():
    batch = make_sequences([40, 30], 2)
    objective = Span(density=0.3)
    special = objective.validate(CorpusFacts(VOCAB, OWNED, 50, 40, 3))
    rendered = objective.render(batch, objective.mask(batch, bytes(16)), special)
    streams = stream_examples(rendered, special)
    for row in range(2):
        prefix = int(streams.prefix_lengths[row])
        assert prefix == rendered.source_lengths[row]
        predicting = np.flatnonzero(streams.labels[row] != IGNORED) - 1  # transformers shifts labels by one
        assert predicting.tolist() == [*range(prefix - 1, len(streams.labels[row]) - 1)]
        assert streams.labels[row][prefix:].tolist() == rendered.target_ids[row, : len(predicting)].tolist()


def test_labels_in_place_of_a_target_are_refused():
    batch = Examples(*np.zeros((2, 1, 16), np.int32), *np.zeros((3, 1), np.int32), labels=np.zeros((1, 16), np.int32))
    with pytest.raises(FarspanError, match="without a target, so its rows cannot be streams"):
        stream_examples(batch, SPECIAL)
