"""Tokens around and between documents, rows for decoders, and texts that come back from source and target."""

import itertools
import re
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpora.errors import FarspanError
from corpora.storage.ragged import Ragged
from objectives.api.examples import IGNORED, Examples
from objectives.api.masks import IN_SOURCE, IN_TARGET, REPLACED
from objectives.api.protocol import CorpusFacts
from objectives.api.special_tokens import MASK, SpecialTokens
from objectives.rendering.layout import Layout, global_positions
from objectives.rendering.reconstruct import reconstruct, reconstruct_labels
from objectives.rendering.render import render_labels, render_masked, render_sentinels
from objectives.rendering.stream import StreamLayout, Streams
from objectives.span import Span
from tests.factories import OWNED, VOCAB, make_sequences, sequence_batches
from tests.objectives.handmade import masks_of

TOKENS = (None, "<doc-sep>")
LAYOUTS = [Layout(begin, "<eos>", *edges) for begin in TOKENS for edges in itertools.product(TOKENS, repeat=3)]


def facts(tokens: int, parts: int, length: int, per_sequence: int, per_document: int) -> CorpusFacts:
    return CorpusFacts(32_000, {}, length, tokens, parts, per_sequence, per_document)


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
@pytest.mark.parametrize("parts", [0, 1, 4])
def test_positions_are_counted_as_they_are_rendered(layout, parts):
    document = [layout.before, "text", layout.after]
    row = [layout.begin, *([*document, layout.between] * parts)[:-1], layout.end]
    assert layout.around(parts) == sum(token not in (None, "text") for token in row)


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
@pytest.mark.parametrize(("per_sequence", "per_document"), itertools.product(range(3), range(4)))
def test_a_corpus_is_refused_where_a_row_may_not_fit_and_taken_where_the_cure_was_followed(
    layout, per_sequence, per_document
):
    parts, tokens = 5, 40
    length = tokens + per_sequence + per_document * parts
    # The corpus's fullest row is of 5 parts; one with other parts may be as full.
    full = facts(tokens + per_document * (parts - 1), parts, length, per_sequence, per_document)
    try:
        layout.check("test", full)
    except FarspanError as error:
        sequence, document = re.search(r"--room-per-sequence (\d) --room-per-document (\d)", str(error)).groups()
        layout.check("test", facts(tokens, parts, 1, int(sequence), int(document)))
        return
    for count in range(1, parts + 1):
        assert length - per_sequence - per_document * count + layout.around(count) <= length


def test_a_small_corpus_is_taken_without_room_for_all():
    Layout(between="<doc-sep>").check("test", facts(50, 3, 54, 0, 0))
    with pytest.raises(FarspanError, match="puts 2 positions around a sequence and 1 around a document"):
        Layout(between="<doc-sep>").check("test", facts(50, 3, 53, 0, 0))


def test_the_cure_leaves_the_room_that_there_is():
    """Or the next corpus would suit this objective and no other."""
    bare = Layout(begin=None, end=None, before="<doc-s>", after="</doc-s>")
    with pytest.raises(FarspanError, match="build it with --room-per-sequence 2 --room-per-document 2"):
        bare.check("test", facts(60, 3, 64, 2, 1))


BATCH = make_sequences([40, 12], 3)
FACTS = CorpusFacts(VOCAB, OWNED, 50, 40, 3)


def rendered(rule: str):
    objective = Span(begin=True, global_attention=rule)
    special = objective.validate(FACTS)
    return objective.render(BATCH, objective.mask(BATCH, bytes(16)), special), special


@pytest.mark.parametrize("rule", ["bos", "separators", "masked"])
def test_rules_mark_their_tokens(rule):
    examples, special = rendered(rule)
    begin, separator = special["<bos>"], special["<doc-sep>"]
    chosen = {"bos": [begin], "separators": [begin, separator], "masked": special.sentinels}
    assert np.array_equal(examples.global_positions, np.isin(examples.source_ids, chosen[rule]))
    assert examples.global_positions.any(axis=1).all()


def test_masked_positions_are_those_with_labels():
    examples, special = rendered("none")
    assert examples.global_positions is None
    labels = np.full(examples.source_ids.shape, IGNORED, np.int32)
    labels[0, 4] = 17
    assert global_positions(replace(examples, labels=labels), special, "masked")[0, 4]


def test_separators_are_all_that_stands_at_edges_of_documents():
    """PRIMERA: the first position, and the separator behind every document."""
    special = SpecialTokens.append(VOCAB, OWNED, ["<doc-sep>", "<doc-s>"])
    masks = Span().mask(BATCH, bytes(16))
    masks = replace(masks, span_flags=Ragged(np.zeros_like(masks.span_flags.values), masks.span_flags.offsets))
    for layout, expected in (
        (Layout(begin=None, after="<doc-sep>"), ["<doc-sep>"]),
        (Layout(before="<doc-s>", after="<doc-sep>"), ["<doc-s>", "<doc-sep>"]),
    ):
        examples = render_sentinels(BATCH, masks, special, layout)
        chosen = global_positions(examples, special, "separators", layout=layout)
        wanted = np.isin(examples.source_ids, [special[name] for name in expected])
        wanted[:, 0] = True
        assert np.array_equal(chosen, wanted)
        assert wanted.sum() == 2 + len(expected) * 6  # two rows of three documents


def test_a_prefix_is_as_long_as_what_is_masked():
    examples, special = rendered("masked")
    chosen = global_positions(examples, special, "masked_and_prefix")
    for row in range(len(examples)):
        masked = np.flatnonzero(np.isin(examples.source_ids[row], special.sentinels))
        assert set(np.flatnonzero(chosen[row])) == {*masked.tolist(), *range(len(masked))}


def test_other_rules_are_refused():
    examples, special = rendered("none")
    with pytest.raises(FarspanError, match="global attention 'all' is no rule; choose none, bos, separators"):
        global_positions(examples, special, "all")


LONGER = make_sequences([60], 2)
OBJECTIVE = Span()
SPECIAL = OBJECTIVE.validate(CorpusFacts(VOCAB, OWNED, 70, 60, 2))
MASKS = OBJECTIVE.mask(LONGER, bytes(16))
EXAMPLES = OBJECTIVE.render(LONGER, MASKS, SPECIAL)


def without(ids: np.ndarray, token: int) -> np.ndarray:
    return np.where(ids == token, 5, ids)


UNSEEN = replace(MASKS, span_flags=Ragged(np.full_like(MASKS.span_flags.values, IN_SOURCE), MASKS.span_flags.offsets))


@pytest.mark.parametrize(
    ("changes", "masks", "message"),
    [
        ({"source_ids": without(EXAMPLES.source_ids, SPECIAL.sentinels[1])}, MASKS, "marker 1 is not in the source"),
        ({"target_ids": without(EXAMPLES.target_ids, SPECIAL.sentinels[1])}, MASKS, "marker 1 is not in the target"),
        ({"target_lengths": EXAMPLES.target_lengths - 1}, MASKS, "does not end where the spans do"),
        ({"source_lengths": EXAMPLES.source_lengths * 0 + 9}, MASKS, "not in the source"),
        ({}, UNSEEN, "in neither source nor target"),
    ],
)
def test_damage_is_named(changes, masks, message):
    with pytest.raises(FarspanError, match=f"sequence {LONGER.sequence_id(0).hex()}: .*{message}"):
        OBJECTIVE.reconstruct(replace(EXAMPLES, **changes), masks, SPECIAL)


MASKED = SpecialTokens.append(VOCAB, OWNED, [MASK])
LAYOUT = Layout()
REPLACED_ROW = masks_of(LONGER, [[(3, 2, REPLACED | IN_TARGET), (9, 1, IN_SOURCE | IN_TARGET)]])
LABELLED = render_labels(LONGER, REPLACED_ROW, MASKED, LAYOUT, mask=MASK)


NO_LABELS = np.full_like(LABELLED.labels, IGNORED)


@pytest.mark.parametrize(
    ("changes", "masks", "message"),
    [
        ({"labels": np.roll(LABELLED.labels, 1, axis=1)}, REPLACED_ROW, "token 3 has no label, unlike its span"),
        ({"labels": np.full_like(NO_LABELS, 7)}, REPLACED_ROW, "token 0 has a label, unlike its span"),
        ({"source_lengths": np.array([9], np.int32)}, REPLACED_ROW, "source has 7 tokens, spans reach to"),
        ({"labels": NO_LABELS}, masks_of(LONGER, [[(3, 2, IN_SOURCE)]]), "3 is neither in the source nor a label"),
    ],
)
def test_damage_to_labels_is_named(changes, masks, message):
    with pytest.raises(FarspanError, match=f"sequence {LONGER.sequence_id(0).hex()}: .*{message}"):
        reconstruct_labels(replace(LABELLED, **changes), masks, MASKED, LAYOUT)


def test_replacements_are_looked_for():
    examples = render_masked(LONGER, REPLACED_ROW, MASKED, LAYOUT, mask=MASK)
    text = reconstruct(examples, REPLACED_ROW, MASKED, LAYOUT, mask=MASK)
    assert np.array_equal(text[0], LONGER.tokens[0])
    with pytest.raises(FarspanError, match="tokens 3:5 are not shown as their replacements"):
        others = Ragged.from_rows([[5, 6]], np.int32)
        reconstruct(examples, replace(REPLACED_ROW, replacements=others), MASKED, LAYOUT, mask=MASK)


OWN_SPECIAL = SpecialTokens(OWNED, VOCAB)
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
    streams = StreamLayout(ends_between=ends_between).stream_examples(batch, OWN_SPECIAL)
    assert columns(streams) == expected
    assert streams.prefix_lengths.tolist() == prefixes


@given(
    sequence_batches(), st.tuples(*[st.sampled_from([None, 1, 32_000])] * 3), st.booleans(), st.integers(0, 2**32 - 1)
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
    before, inner, after = (f"<{token}>" if token else None for token in frame)
    layout = StreamLayout(across_documents=across, begin=before, between=inner, end=after)
    special = SpecialTokens({f"<{token}>": token for token in frame if token}, VOCAB + 1)
    streams = layout.stream_text(batch, special)
    assert columns(streams) == expected
    assert np.count_nonzero(streams.position_ids.values == 0) == units
    assert streams.prefix_lengths.tolist() == [0] * len(batch)


def test_the_last_source_position_predicts_the_first_target_token():
    batch = make_sequences([40, 30], 2)
    objective = Span(density=0.3)
    special = objective.validate(CorpusFacts(VOCAB, OWNED, 50, 40, 3))
    rendered = objective.render(batch, objective.mask(batch, bytes(16)), special)
    streams = StreamLayout().stream_examples(rendered, special)
    for row in range(2):
        prefix = int(streams.prefix_lengths[row])
        assert prefix == rendered.source_lengths[row]
        predicting = np.flatnonzero(streams.labels[row] != IGNORED) - 1  # transformers shifts labels by one
        assert predicting.tolist() == [*range(prefix - 1, len(streams.labels[row]) - 1)]
        assert streams.labels[row][prefix:].tolist() == rendered.target_ids[row, : len(predicting)].tolist()


def test_labels_in_place_of_a_target_are_refused():
    batch = replace(Examples(*np.zeros((2, 1, 16), np.int32), *np.zeros((3, 1), np.int32)), labels=np.zeros((1, 16)))
    with pytest.raises(FarspanError, match="without a target, so its rows cannot be streams"):
        StreamLayout().stream_examples(batch, OWN_SPECIAL)
