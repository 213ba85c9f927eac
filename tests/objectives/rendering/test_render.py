"""Rendering: by hand, against plain Python statements, and against what other collators make."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.t5_collators import flax_side, t5_pair
from corpora.errors import FarspanError
from corpora.schemas.sequences import SequenceBatch
from corpora.storage.ragged import Ragged
from objectives.api.examples import IGNORED
from objectives.api.masks import CANDIDATE, IN_SOURCE, IN_TARGET, REPLACED, VISIBLE, MaskBatch
from objectives.api.special_tokens import (
    BEGIN,
    DOCUMENT_BEGIN,
    DOCUMENT_END,
    DOCUMENT_SEPARATOR,
    END,
    MASK,
    PAD,
    SENTENCE_MASK,
    SpecialTokens,
)
from objectives.rendering.layout import Layout
from objectives.rendering.reconstruct import reconstruct, reconstruct_labels
from objectives.rendering.render import render_labels, render_masked, render_sentinels, rendered_lengths
from objectives.span import Span
from tests.factories import OWNED, VOCAB, make_sequences, sequence_batches
from tests.objectives.handmade import masks_of

NAMES = [DOCUMENT_SEPARATOR, DOCUMENT_BEGIN, DOCUMENT_END, MASK, SENTENCE_MASK]
SPECIAL = SpecialTokens.append(VOCAB, OWNED, NAMES, sentinels=40)
HIDDEN = IN_SOURCE | IN_TARGET
REPLACED_IN_TARGET = REPLACED | IN_TARGET
ALIGNED_FLAGS = [CANDIDATE, HIDDEN, VISIBLE, VISIBLE | IN_TARGET, REPLACED_IN_TARGET]
FLAGS = [*ALIGNED_FLAGS, IN_TARGET, IN_SOURCE | VISIBLE | IN_TARGET]
LAYOUT = Layout(begin=None, between=DOCUMENT_SEPARATOR)
layouts = st.builds(
    Layout,
    begin=st.sampled_from([BEGIN, None]),
    end=st.sampled_from([END, None]),
    before=st.sampled_from([DOCUMENT_BEGIN, None]),
    between=st.sampled_from([DOCUMENT_SEPARATOR, END, None]),
    after=st.sampled_from([DOCUMENT_END, DOCUMENT_SEPARATOR, None]),
)


@st.composite
def masked_batches(draw: st.DrawFn, kinds: list[int] = FLAGS) -> tuple[SequenceBatch, MaskBatch]:
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
            spans.append((start, size, draw(st.sampled_from(kinds))))
            position = start + size
        rows.append(spans)
    return batch, masks_of(batch, rows)


def plainly(batch, masks, row, layout, way):
    """Source, target, labels and parts of a row, token by token; way: sentinels, masked or labels."""
    text, borders = batch.tokens[row].tolist(), batch.document_starts[row].tolist()
    columns = (column[row].tolist() for column in (masks.span_starts, masks.span_lengths, masks.span_flags))
    spans = {start: (length, flags) for start, length, flags in zip(*columns, strict=True)}
    around = {role: [SPECIAL[name]] if (name := getattr(layout, role)) else [] for role in vars(layout)}
    shown, target, part, markers, left, flags = [], [], 0, 0, 0, CANDIDATE  # shown: (id, label, part)

    def show(ids, label=IGNORED):
        shown.extend((number, label, part) for number in ids)

    show(around["begin"])
    for position, token in enumerate([*text, None]):
        for border in borders:
            if border == position and border:
                show(around["after"] + around["between"])
                part += 1
            if border == position:
                show(around["before"])
        if token is None:
            show(around["after"] if borders else [])
            show(around["end"])
            break
        if position in spans:
            left, flags = spans[position]
            if flags & IN_SOURCE and way != "labels":
                marker = int(SPECIAL.sentinels[markers]) if way == "sentinels" else SPECIAL[SENTENCE_MASK]
                markers += 1
                show([marker])
                target += [marker] if way == "sentinels" and flags & IN_TARGET else []
        flags = flags if left else CANDIDATE
        left = max(left - 1, 0)
        label = token if flags & IN_TARGET else IGNORED
        if flags == CANDIDATE or flags & VISIBLE:
            show([token], label)
        elif flags & REPLACED:
            show([token + 1], label)
        elif way == "labels":
            show([SPECIAL[MASK]], label)
        target += [token] if flags & IN_TARGET else []
    target = around["begin"] + target + around["end"] if target and way != "labels" else []
    source, labels, parts = map(list, zip(*shown, strict=True)) if shown else ([], [], [])
    return source, target, labels, parts


def check_rows(batch, masks, layout, way, examples):
    pad = SPECIAL[PAD]
    for row in range(len(batch)):
        source, target, labels, parts = plainly(batch, masks, row, layout, way)
        assert (examples.source_lengths[row], examples.target_lengths[row]) == (len(source), len(target))
        padding = examples.source_ids.shape[1] - len(source)
        assert examples.source_ids[row].tolist() == source + [pad] * padding
        assert examples.segment_ids[row].tolist() == parts + [-1] * padding
        if way == "labels":
            assert examples.labels[row].tolist() == labels + [IGNORED] * padding
        assert examples.target_ids[row].tolist() == target + [pad] * (examples.target_ids.shape[1] - len(target))


@pytest.mark.parametrize(
    ("way", "render", "mask"),
    [("sentinels", render_sentinels, {}), ("masked", render_masked, {"mask": SENTENCE_MASK})],
)
@given(pair=masked_batches(), layout=layouts)
def test_sources_and_targets_equal_a_plain_statement(way, render, mask, pair, layout):
    batch, masks = pair
    examples = render(batch, masks, SPECIAL, layout, segment_ids=True, **mask)
    check_rows(batch, masks, layout, way, examples)
    source, target = rendered_lengths(batch, masks, layout, sentinels=way == "sentinels")
    assert np.array_equal(source, examples.source_lengths)
    assert np.array_equal(target, examples.target_lengths)
    text = reconstruct(examples, masks, SPECIAL, layout, **mask)
    assert all(np.array_equal(text[row], batch.tokens[row]) for row in range(len(batch)))


@given(masked_batches(ALIGNED_FLAGS), layouts)
def test_labels_equal_a_plain_statement(pair, layout):
    batch, masks = pair
    examples = render_labels(batch, masks, SPECIAL, layout, mask=MASK, segment_ids=True)
    check_rows(batch, masks, layout, "labels", examples)
    assert examples.target_ids.shape == (len(batch), 0)
    text = reconstruct_labels(examples, masks, SPECIAL, layout)
    assert all(np.array_equal(text[row], batch.tokens[row]) for row in range(len(batch)))


def test_by_hand():
    batch = make_sequences([10, 3], [[0, 6], [0]])
    text, short = (batch.tokens[row].tolist() for row in range(2))
    masks = masks_of(batch, [[(2, 3, IN_SOURCE | IN_TARGET), (8, 2, IN_SOURCE | IN_TARGET)], [(0, 1, HIDDEN)]])
    examples = render_sentinels(batch, masks, SPECIAL, Layout(between=DOCUMENT_SEPARATOR), segment_ids=True)
    first, second = SPECIAL.sentinels[:2]
    bos, eos, between, pad = (SPECIAL[name] for name in (BEGIN, END, DOCUMENT_SEPARATOR, PAD))
    source = [bos, *text[:2], first, text[5], between, *text[6:8], second, eos]
    assert examples.source_ids.tolist() == [source, [bos, first, *short[1:], eos] + [pad] * 5]
    target = [bos, first, *text[2:5], second, *text[8:], eos]
    assert examples.target_ids.tolist() == [target, [bos, first, short[0], eos] + [pad] * 5]
    assert examples.segment_ids.tolist() == [[0, 0, 0, 0, 0, 0, 1, 1, 1, 1], [0] * 5 + [-1] * 5]


def test_other_ways_by_hand():
    batch = make_sequences([9], [[0, 4]])
    a, b, c, d, e, f, g, h, i = batch.tokens[0].tolist()
    masks = masks_of(batch, [[(1, 2, HIDDEN), (3, 1, HIDDEN), (5, 2, REPLACED_IN_TARGET), (7, 1, VISIBLE | IN_TARGET)]])
    layout = Layout(before=DOCUMENT_BEGIN, after=DOCUMENT_END)
    names = (BEGIN, END, DOCUMENT_BEGIN, DOCUMENT_END, SENTENCE_MASK, MASK)
    bos, eos, opened, closed, hole, mask = (SPECIAL[name] for name in names)
    examples = render_masked(batch, masks, SPECIAL, layout, mask=SENTENCE_MASK, segment_ids=True)
    # Touching spans keep a token each, and nothing parts their texts.
    source = [bos, opened, a, hole, hole, closed, opened, e, f + 1, g + 1, h, i, closed, eos]
    assert examples.source_ids.tolist() == [source]
    assert examples.target_ids.tolist() == [[bos, b, c, d, f, g, h, eos]]
    assert examples.segment_ids.tolist() == [[0] * 6 + [1] * 8]
    examples = render_labels(batch, masks, SPECIAL, layout, mask=MASK)
    source = [bos, opened, a, mask, mask, mask, closed, opened, e, f + 1, g + 1, h, i, closed, eos]
    assert examples.source_ids.tolist() == [source]
    no = IGNORED
    assert examples.labels.tolist() == [[no, no, no, b, c, d, no, no, no, f, g, h, no, no, no]]


@given(st.integers(2, 700), st.integers(0, 2**31))
def test_the_same_mask_gives_what_t5_and_hugging_face_make_of_it(length, seed):
    batch = make_sequences([length], seed=seed)
    masks = Span().mask(batch, bytes(16))
    # Sentinels alone behind the vocabulary: the last id is the first sentinel, as there.
    special = SpecialTokens.append(VOCAB, OWNED, sentinels=400, order="descending")
    examples = render_sentinels(batch, masks, special, Layout(begin=None))
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
    stored = MaskBatch.from_arrow(masks.to_arrow().slice(1))
    assert not stored.span_starts.values.flags.writeable
    sliced = render_sentinels(batch.take([1]), stored, SPECIAL, LAYOUT)
    whole = render_sentinels(batch, masks, SPECIAL, LAYOUT)
    assert np.array_equal(sliced.source_ids[0], whole.source_ids[1, : sliced.source_ids.shape[1]])


@pytest.mark.parametrize(
    ("spans", "message"),
    [
        ([(3, 2, HIDDEN), (4, 1, HIDDEN)], "spans overlap"),
        ([(5, 2, HIDDEN), (1, 1, HIDDEN)], "spans overlap, are empty, descend"),
        ([(18, 3, HIDDEN)], "lie outside of the text"),
        ([(-1, 3, HIDDEN)], "lie outside of the text"),
        ([(3, 0, HIDDEN)], "are empty"),
        ([(9, 2, HIDDEN)], "crosses the border between two documents"),
        ([(3, 2, REPLACED | VISIBLE)], "to be replaced .* and also marked or left visible"),
        ([(3, 2, REPLACED | HIDDEN)], "to be replaced .* and also marked or left visible"),
    ],
)
def test_spans_that_cannot_be_shown_are_refused(spans, message):
    batch = make_sequences([30, 20], [[0], [0, 10]])
    with pytest.raises(FarspanError, match=f"row 1, sequence {batch.sequence_id(1).hex()}: .*{message}"):
        render_sentinels(batch, masks_of(batch, [[], spans]), SPECIAL, LAYOUT)


@pytest.mark.parametrize("flags", [IN_TARGET, HIDDEN | VISIBLE])
def test_labels_need_a_token_in_each_place(flags):
    batch = make_sequences([20])
    masks = masks_of(batch, [[(3, 2, flags)]])
    render_masked(batch, masks, SPECIAL, LAYOUT, mask=MASK)
    with pytest.raises(FarspanError, match="not just one of marked, visible and replaced"):
        render_labels(batch, masks, SPECIAL, LAYOUT, mask=MASK)


@pytest.mark.parametrize("replacements", [None, [[7]], [[7, 8, 9]]])
def test_replacements_are_as_many_as_their_tokens(replacements):
    batch = make_sequences([20])
    given = replacements and Ragged.from_rows(replacements, np.int32)
    masks = replace(masks_of(batch, [[(3, 2, REPLACED_IN_TARGET)]]), replacements=given)
    message = f"{len(replacements[0]) if replacements else 0} replacements for 2 tokens"
    for render in (render_masked, render_labels):
        with pytest.raises(FarspanError, match=message):
            render(batch, masks, SPECIAL, LAYOUT, mask=MASK)


@pytest.mark.parametrize("starts", [[0, 21], [2, 10], [0, 10, 5]])
def test_parts_outside_of_the_text_are_refused(starts):
    batch = make_sequences([20], [[0] * len(starts)])
    broken = replace(batch, document_starts=Ragged.from_rows([starts], np.int32))
    with pytest.raises(FarspanError, match="parts begin outside of the text or in descending order"):
        render_sentinels(broken, masks_of(batch, [[]]), SPECIAL, LAYOUT)


def test_a_candidate_may_cross_a_border():
    batch = make_sequences([20], [[0, 10]])
    shown = render_sentinels(batch, masks_of(batch, [[(8, 5, CANDIDATE)]]), SPECIAL, LAYOUT)
    plain = render_sentinels(batch, masks_of(batch, [[]]), SPECIAL, LAYOUT)
    assert np.array_equal(shown.source_ids, plain.source_ids)


def test_masks_of_other_sequences_are_refused():
    batch, other = make_sequences([20, 20]), make_sequences([20, 20], seed=1)
    masks = masks_of(other, [[], []])
    with pytest.raises(FarspanError, match=f"row 0 is sequence {batch.sequence_id(0).hex()} in the corpus"):
        render_sentinels(batch, masks, SPECIAL, LAYOUT)
    with pytest.raises(FarspanError, match="1 corpus rows cannot be shown with 2 mask rows"):
        render_sentinels(batch.take([0]), masks, SPECIAL, LAYOUT)


def test_columns_of_unequal_length_are_refused():
    batch = make_sequences([20])
    good = masks_of(batch, [[(1, 1, HIDDEN)]])
    flags = Ragged.from_rows([[HIDDEN, HIDDEN]], np.uint8)
    zeros = np.zeros(1, np.int32)
    damaged = MaskBatch(batch.sequence_ids, good.span_starts, good.span_lengths, flags, zeros, zeros)
    with pytest.raises(FarspanError, match="rows of different lengths; the mask set is damaged"):
        render_sentinels(batch, damaged, SPECIAL, LAYOUT)


def test_too_few_sentinels_and_unknown_tokens_are_named():
    batch = make_sequences([100])
    masks = masks_of(batch, [[(2 * i + 1, 1, HIDDEN) for i in range(41)]])
    with pytest.raises(FarspanError, match="needs 41 sentinels, the special tokens hold 40; reserve at least 41"):
        render_sentinels(batch, masks, SPECIAL, LAYOUT)
    masks = masks_of(batch, [[(2 * i + 1, 1, HIDDEN) for i in range(40)]])
    examples = render_sentinels(batch, masks, SPECIAL, LAYOUT)
    assert (examples.source_ids.shape, examples.target_ids.shape) == ((1, 101), (1, 81))
    with pytest.raises(FarspanError, match="mask '<hole>' is none of the special tokens"):
        render_masked(batch, masks, SPECIAL, LAYOUT, mask="<hole>")
    with pytest.raises(FarspanError, match="between '<sep>' is none of the special tokens: <pad>, <bos>, <eos>"):
        render_sentinels(batch, masks, SPECIAL, Layout(between="<sep>"))
