"""Rendering with sentinels: by hand, against a plain Python statement, and against what other collators make."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.t5_collators import flax_side, t5_pair
from corpora.errors import FarspanError
from corpora.ragged import Ragged
from corpora.sequences import SequenceBatch
from objectives.masks import CANDIDATE, IN_SOURCE, IN_TARGET, REPLACED, VISIBLE, MaskBatch
from objectives.reconstruction import reconstruct
from objectives.rendering import nothing_hidden, render_sentinels, rendered_lengths
from objectives.span import Span
from objectives.special_tokens import BEGIN, DOCUMENT_SEPARATOR, END, PAD, SpecialTokens
from tests.factories import OWNED, VOCAB, make_sequences, sequence_batches

SPECIAL = SpecialTokens.append(VOCAB, OWNED, [DOCUMENT_SEPARATOR], sentinels=40)
FLAGS = [CANDIDATE, IN_SOURCE | IN_TARGET, IN_TARGET, VISIBLE, VISIBLE | IN_TARGET, IN_SOURCE | VISIBLE | IN_TARGET]


def masks_of(batch: SequenceBatch, spans: list[list[tuple[int, int, int]]]) -> MaskBatch:
    """Mask rows from (start, length, flags) lists; lengths once rendered are left at 0."""
    zeros = np.zeros(len(batch), np.int32)
    columns = [
        Ragged.from_rows([[span[i] for span in row] for row in spans], kind)
        for i, kind in enumerate((np.int32, np.int32, np.uint8))
    ]
    return MaskBatch(batch.sequence_ids, *columns, source_lengths=zeros, target_lengths=zeros)


@st.composite
def masked_batches(draw: st.DrawFn) -> tuple[SequenceBatch, MaskBatch]:
    """Rows with spans of all kinds, touching ones included, none across a border."""
    batch = draw(sequence_batches(min_rows=1, max_length=60))
    rows = []
    for row in range(len(batch)):
        spans, position, length = [], 0, int(batch.tokens.lengths[row])
        borders = {*batch.document_starts[row].tolist(), length}
        for _ in range(draw(st.integers(0, 8))):
            start = position + draw(st.integers(0, 5))
            if start >= length:
                break
            size = min(draw(st.integers(1, 9)), min(border for border in borders if border > start) - start)
            spans.append((start, size, draw(st.sampled_from(FLAGS))))
            position = start + size
        rows.append(spans)
    return batch, masks_of(batch, rows)


def plainly(batch, masks, row, begin, end, separator):
    """Source, target and parts of a row, token by token."""
    text, borders = batch.tokens[row].tolist(), set(batch.document_starts[row][1:].tolist())
    spans = {
        int(start): (int(length), int(flags))
        for start, length, flags in zip(
            masks.span_starts[row], masks.span_lengths[row], masks.span_flags[row], strict=True
        )
    }
    source, target, parts, part, marker, left = [], [], [], 0, 0, 0
    for position, token in enumerate(text):
        if position in borders:
            source += [SPECIAL[separator]] if separator else []
            parts += [part] if separator else []
            part += 1
        if position in spans:
            left, flags = spans[position]
            sentinel = [int(SPECIAL.sentinels[marker])] if flags & IN_SOURCE else []
            marker += len(sentinel)
            source, parts = source + sentinel, parts + [part] * len(sentinel)
            target += sentinel if flags & IN_TARGET else []
        flags = flags if left else CANDIDATE
        if flags == CANDIDATE or flags & VISIBLE:
            source, parts = [*source, token], [*parts, part]
        if flags & IN_TARGET:
            target.append(token)
        left = max(left - 1, 0)
    first, last = [SPECIAL[BEGIN]] * begin, [SPECIAL[END]] * end
    target = first + target + last if target else []
    return first + source + last, target, [0] * begin + parts + [part] * end


@given(masked_batches(), st.booleans(), st.booleans(), st.sampled_from([None, DOCUMENT_SEPARATOR, END]))
def test_equals_a_plain_statement(pair, begin, end, separator):
    batch, masks = pair
    frame = {"begin": begin, "end": end, "separator": separator}
    examples = render_sentinels(batch, masks, SPECIAL, **frame, segment_ids=True)
    lengths = rendered_lengths(batch, masks, **frame)
    for row in range(len(batch)):
        source, target, parts = plainly(batch, masks, row, begin, end, separator)
        assert (lengths[0][row], lengths[1][row]) == (len(source), len(target))
        padding = examples.source_ids.shape[1] - len(source)
        assert examples.source_ids[row].tolist() == source + [SPECIAL[PAD]] * padding
        assert examples.segment_ids[row].tolist() == parts + [-1] * padding
        padding = examples.target_ids.shape[1] - len(target)
        assert examples.target_ids[row].tolist() == target + [SPECIAL[PAD]] * padding
    text = reconstruct(examples, masks, SPECIAL, **frame)
    assert all(np.array_equal(text[row], batch.tokens[row]) for row in range(len(batch)))


@given(sequence_batches(min_rows=1), st.booleans())
def test_without_spans_the_text_is_shown_whole(batch, begin):
    frame = {"begin": begin, "end": True, "separator": DOCUMENT_SEPARATOR}
    masks = nothing_hidden(batch, **frame)
    examples = render_sentinels(batch, masks, SPECIAL, **frame)
    assert examples.target_ids.shape == (len(batch), 0)
    assert np.array_equal(examples.source_lengths, masks.source_lengths)
    for row in range(len(batch)):
        parts = np.split(batch.tokens[row], batch.document_starts[row][1:])
        ids = [SPECIAL[BEGIN]] * begin + parts[0].tolist()
        for part in parts[1:]:
            ids += [SPECIAL[DOCUMENT_SEPARATOR], *part.tolist()]
        assert examples.source_ids[row, : examples.source_lengths[row]].tolist() == [*ids, SPECIAL[END]]


def test_by_hand():
    batch = make_sequences([10], [[0, 6]])
    text = batch.tokens[0].tolist()
    masks = masks_of(batch, [[(2, 3, IN_SOURCE | IN_TARGET), (8, 2, IN_SOURCE | IN_TARGET)]])
    examples = render_sentinels(
        batch, masks, SPECIAL, begin=True, end=True, separator=DOCUMENT_SEPARATOR, segment_ids=True, pad_to_multiple=8
    )
    first, second = SPECIAL.sentinels[:2]
    bos, eos, between, pad = (SPECIAL[name] for name in (BEGIN, END, DOCUMENT_SEPARATOR, PAD))
    source = [bos, *text[:2], first, text[5], between, *text[6:8], second, eos]
    assert examples.source_ids.tolist() == [source + [pad] * 6]
    assert examples.target_ids.tolist() == [[bos, first, *text[2:5], second, *text[8:], eos] + [pad] * 7]
    assert examples.segment_ids.tolist() == [[0, 0, 0, 0, 0, 0, 1, 1, 1, 1] + [-1] * 6]


@given(st.integers(2, 700), st.integers(0, 2**31))
def test_the_same_mask_gives_what_t5_and_hugging_face_make_of_it(length, seed):
    batch = make_sequences([length], seed=seed)
    objective = Span()
    masks = objective.mask(batch, bytes(16))
    # Sentinels alone behind the vocabulary: the last id is the first sentinel, as there.
    special = SpecialTokens.append(VOCAB, OWNED, sentinels=400, order="descending")
    examples = render_sentinels(batch, masks, special, begin=False, end=True, separator=None)
    hidden = np.zeros(length, bool)
    for start, size in zip(masks.span_starts[0], masks.span_lengths[0], strict=True):
        hidden[start : start + size] = True
    tokens = batch.tokens[0].astype(np.int32)
    source, target = t5_pair(tokens, hidden, special.vocab_size, special[END])
    assert examples.source_ids[0].tolist() == source.tolist()
    assert examples.target_ids[0].tolist() == target.tolist()
    for side, dropped in ((examples.source_ids, hidden), (examples.target_ids, ~hidden)):
        assert np.array_equal(side, flax_side(tokens[None], dropped[None], special.vocab_size, special[END]))


def test_read_only_rows_of_a_memory_map_need_no_other_kernel():
    batch = make_sequences([50, 60], 3)
    masks = Span().mask(batch, bytes(16))
    frame = {"begin": False, "end": True, "separator": None}
    stored = MaskBatch.from_arrow(masks.to_arrow().slice(1))
    assert not stored.span_starts.values.flags.writeable
    sliced = render_sentinels(batch.take([1]), stored, SPECIAL, **frame)
    whole = render_sentinels(batch, masks, SPECIAL, **frame)
    assert np.array_equal(sliced.source_ids[0], whole.source_ids[1, : sliced.source_ids.shape[1]])


FRAME = {"begin": False, "end": True, "separator": DOCUMENT_SEPARATOR}
HIDDEN = IN_SOURCE | IN_TARGET


@pytest.mark.parametrize(
    ("spans", "message"),
    [
        ([(3, 2, HIDDEN), (4, 1, HIDDEN)], "spans overlap"),
        ([(5, 2, HIDDEN), (1, 1, HIDDEN)], "spans overlap, are empty, descend"),
        ([(18, 3, HIDDEN)], "lie outside of the text"),
        ([(-1, 3, HIDDEN)], "lie outside of the text"),
        ([(3, 0, HIDDEN)], "are empty"),
        ([(9, 2, HIDDEN)], "crosses the border between two documents"),
        ([(3, 2, REPLACED | VISIBLE)], "to be replaced"),
    ],
)
def test_spans_that_cannot_be_shown_are_refused(spans, message):
    batch = make_sequences([30, 20], [[0], [0, 10]])
    with pytest.raises(FarspanError, match=f"row 1, sequence {batch.sequence_id(1).hex()}: .*{message}"):
        render_sentinels(batch, masks_of(batch, [[], spans]), SPECIAL, **FRAME)


@pytest.mark.parametrize("starts", [[0, 21], [2, 10], [0, 10, 5]])
def test_parts_outside_of_the_text_are_refused(starts):
    batch = make_sequences([20], [[0] * len(starts)])
    broken = SequenceBatch(
        **{
            **{name: getattr(batch, name) for name in batch.__slots__},
            "document_starts": Ragged.from_rows([starts], np.int32),
        }
    )
    with pytest.raises(FarspanError, match="parts begin outside of the text or in descending order"):
        render_sentinels(broken, masks_of(batch, [[]]), SPECIAL, **FRAME)


def test_a_candidate_may_cross_a_border():
    batch = make_sequences([20], [[0, 10]])
    shown = render_sentinels(batch, masks_of(batch, [[(8, 5, CANDIDATE)]]), SPECIAL, **FRAME)
    plain = render_sentinels(batch, masks_of(batch, [[]]), SPECIAL, **FRAME)
    assert np.array_equal(shown.source_ids, plain.source_ids)


def test_masks_of_other_sequences_are_refused():
    batch, other = make_sequences([20, 20]), make_sequences([20, 20], seed=1)
    masks = masks_of(other, [[], []])
    with pytest.raises(FarspanError, match=f"row 0 is sequence {batch.sequence_id(0).hex()} in the corpus"):
        render_sentinels(batch, masks, SPECIAL, **FRAME)
    with pytest.raises(FarspanError, match="1 corpus rows cannot be shown with 2 mask rows"):
        render_sentinels(batch.take([0]), masks, SPECIAL, **FRAME)


def test_columns_of_unequal_length_are_refused():
    batch = make_sequences([20])
    good = masks_of(batch, [[(1, 1, HIDDEN)]])
    flags = Ragged.from_rows([[HIDDEN, HIDDEN]], np.uint8)
    zeros = np.zeros(1, np.int32)
    damaged = MaskBatch(batch.sequence_ids, good.span_starts, good.span_lengths, flags, zeros, zeros)
    with pytest.raises(FarspanError, match="rows of different lengths; the mask set is damaged"):
        render_sentinels(batch, damaged, SPECIAL, **FRAME)


def test_too_few_sentinels_widths_and_separators_are_named():
    batch = make_sequences([100])
    masks = masks_of(batch, [[(2 * i + 1, 1, HIDDEN) for i in range(41)]])
    with pytest.raises(FarspanError, match="needs 41 sentinels, the special tokens hold 40; reserve at least 41"):
        render_sentinels(batch, masks, SPECIAL, **FRAME)
    masks = masks_of(batch, [[(2 * i + 1, 1, HIDDEN) for i in range(40)]])
    with pytest.raises(FarspanError, match="source width 100 is too small for a row of 101 positions; raise it to 101"):
        render_sentinels(batch, masks, SPECIAL, **FRAME, source_width=100)
    with pytest.raises(FarspanError, match="target width 80 is too small for a row of 81"):
        render_sentinels(batch, masks, SPECIAL, **FRAME, target_width=80)
    wide = render_sentinels(batch, masks, SPECIAL, **FRAME, source_width=128, target_width=81)
    assert (wide.source_ids.shape, wide.target_ids.shape) == ((1, 128), (1, 81))
    with pytest.raises(FarspanError, match="separator '<sep>' is none of the special tokens: <pad>, <bos>, <eos>"):
        render_sentinels(batch, masks, SPECIAL, **{**FRAME, "separator": "<sep>"})
