"""Rows of masks and examples, and mask sets on disk."""

import pickle
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpora.errors import FarspanError
from corpora.schemas.corpus import Corpus
from corpora.storage.ragged import Ragged
from objectives.api.examples import IGNORED, Examples
from objectives.api.mask_set import MaskSet, open_masks
from objectives.api.masks import MASK_SCHEMA, MaskBatch
from objectives.api.protocol import load_objective, mask_key
from pipelines.engine.options import Engine
from pipelines.engine.run import run_job
from pipelines.masks.job import plan
from pipelines.masks.options import Masking
from tests.artefacts import make_corpus


@st.composite
def mask_batches(draw: st.DrawFn, min_rows: int = 0) -> MaskBatch:
    """Rows with any of the optional columns."""
    counts = draw(st.lists(st.integers(0, 4), min_size=min_rows, max_size=4))
    rng = np.random.default_rng(draw(st.integers(0, 2**31)))
    total = sum(counts)

    def column(dtype: type) -> Ragged:
        return Ragged.from_lengths(rng.integers(0, 15, total).astype(dtype), counts)

    optional: dict[str, Any] = {
        "span_scores": lambda: column(np.float32),
        "span_ranks": lambda: column(np.int32),
        "replacements": lambda: column(np.int32),
        "global_positions": lambda: column(np.int32),
        "span_labels": lambda: pa.array([["entity"] * count for count in counts], pa.list_(pa.string())),
    }
    return MaskBatch(
        sequence_ids=rng.integers(0, 256, (len(counts), 16)).astype(np.uint8),
        span_starts=column(np.int32),
        span_lengths=column(np.int32),
        span_flags=column(np.uint8),
        source_lengths=rng.integers(0, 99, len(counts)).astype(np.int32),
        target_lengths=rng.integers(0, 99, len(counts)).astype(np.int32),
        **{name: make() for name, make in optional.items() if draw(st.booleans()) and counts},
    )


def plain(masks: MaskBatch) -> list[list]:
    def row(column, i):
        if column is None:
            return None
        return column[i].as_py() if isinstance(column, pa.Array) else column[i].tolist()

    return [[row(getattr(masks, field.name), i) for field in fields(masks)] for i in range(len(masks))]


@given(mask_batches(), st.data())
def test_arrow_round_trip(masks, data):
    record_batch = masks.to_arrow()
    record_batch.validate(full=True)
    assert record_batch.schema == MASK_SCHEMA
    assert plain(MaskBatch.from_arrow(record_batch)) == plain(masks)
    start = data.draw(st.integers(0, len(masks)))
    assert plain(MaskBatch.from_arrow(record_batch.slice(start))) == plain(masks)[start:]


@given(mask_batches(min_rows=1), st.data())
def test_take_and_concatenate(masks, data):
    picks = data.draw(st.lists(st.integers(0, len(masks) - 1), min_size=1, max_size=5))
    rows = plain(masks)
    assert plain(masks.take(picks)) == [rows[pick] for pick in picks]
    assert plain(MaskBatch.concatenate([masks, masks.take(picks)])) == rows + [rows[pick] for pick in picks]


PAD = 9


def made(lengths: list[int], seed: int, *, labels: bool = False, segments: bool = False, chosen: bool = False):
    """Rows of the given source lengths; targets are half as long."""
    rng = np.random.default_rng(seed)
    source, target = np.array(lengths, np.int32), np.array(lengths, np.int32) // 2
    shape = (len(lengths), source.max(initial=0))
    real = np.arange(shape[1]) < source[:, None]
    ids = np.where(real, rng.integers(10, 99, shape), PAD).astype(np.int32)
    columns = target.max(initial=0)
    return Examples(
        sequence_ids=rng.integers(0, 255, (len(lengths), 16)).astype(np.uint8),
        source_ids=ids,
        source_lengths=source,
        target_ids=np.where(np.arange(columns) < target[:, None], ids[:, :columns], PAD),
        target_lengths=target,
        labels=np.where(real, ids, IGNORED) if labels else None,
        segment_ids=np.where(real, 0, -1).astype(np.int32) if segments else None,
        global_positions=real if chosen else None,
    )


def row(examples: Examples, number: int) -> list:
    """A row without its padding."""
    source, target = examples.source_lengths[number], examples.target_lengths[number]
    widths = {"sequence_ids": 16} | dict.fromkeys(("target_ids", "target_segment_ids", "prompt_mask"), target)
    columns = {field.name: getattr(examples, field.name) for field in fields(examples)}
    return [
        None if column is None else column[number, : widths.get(name, source)].tolist()
        for name, column in columns.items()
        if not name.endswith("_lengths")
    ]


lengths = st.lists(st.integers(0, 12), min_size=1, max_size=5)


@given(parts=st.lists(lengths, min_size=1, max_size=4), labels=st.booleans(), segments=st.booleans())
def test_rows_stay_themselves_in_a_wider_batch(parts, labels, segments):
    parts = [made(part, seed, labels=labels, segments=segments) for seed, part in enumerate(parts)]
    together = Examples.concatenate(parts, PAD)
    rows = [row(part, number) for part in parts for number in range(len(part))]
    assert [row(together, number) for number in range(len(together))] == rows
    assert (together.source_ids[~together.source_mask] == PAD).all()
    assert (together.target_ids[~together.target_mask] == PAD).all()
    assert together.labels is None or (together.labels[~together.source_mask] == IGNORED).all()
    assert together.segment_ids is None or (together.segment_ids[~together.source_mask] == -1).all()
    taken = together.take(np.arange(len(together))[::-1])
    assert [row(taken, number) for number in range(len(taken))] == rows[::-1]


def test_who_has_no_global_positions_has_none_beside_others():
    together = Examples.concatenate([made([3, 5], 0), made([4], 1, chosen=True)], PAD)
    assert together.global_positions.sum(1).tolist() == [0, 0, 4]
    assert together.global_positions.dtype == bool


def test_examples_of_two_kinds_are_not_one_batch():
    one = made([3], 0)
    with pytest.raises(FarspanError, match="with and without labels in place of a target"):
        Examples.concatenate([one, made([3], 0, labels=True)], PAD)
    with pytest.raises(FarspanError, match="with and without numbers of documents"):
        Examples.concatenate([replace(one, segment_ids=one.source_ids), one], PAD)


@pytest.fixture(scope="module")
def folders(tmp_path_factory, farspan_lead):
    folder = tmp_path_factory.mktemp("artefacts")
    corpus = make_corpus(str(folder / "corpus"))
    run_job(
        plan(Masking(corpus=corpus, output=str(folder / "masks"), objective="lead_in", options={"lead": 6})),
        Engine(workers=1),
    )
    return corpus, str(folder / "masks")


def test_a_mask_set_can_go_to_another_process(folders):
    masks = open_masks(folders[1], options={"lead": 2})
    there = pickle.loads(pickle.dumps(masks))
    rows = np.array([1, 4])
    batch = Corpus(folders[0]).take(rows)
    assert there.adjusted
    assert there.masks(batch, rows).to_arrow() == masks.masks(batch, rows).to_arrow()


def test_adjusted_masks_are_those_that_the_options_would_have_made(folders):
    corpus, masks = Corpus(folders[0]), MaskSet(folders[1], {"lead": 2})
    rows = np.array([5, 0, 3])
    batch = corpus.take(rows)
    masks.check_parent(corpus)
    fresh = load_objective("lead_in", options={"lead": 2})
    assert masks.masks(batch, rows).to_arrow() == fresh.mask(batch, mask_key(0, fresh)).to_arrow()
    assert MaskSet(folders[1]).masks(batch, rows).to_arrow() == MaskSet(folders[1]).take(rows).to_arrow()
    assert masks.take(rows).to_arrow() == MaskSet(folders[1]).take(rows).to_arrow()


def test_options_that_decide_what_is_stored_cannot_be_adjusted(folders):
    with pytest.raises(FarspanError, match=r"option whole_words of objective lead_in cannot be changed .*can be: lead"):
        MaskSet(folders[1], {"whole_words": True})


def test_special_tokens_that_the_manifest_lacks_are_refused(folders, tmp_path):
    """A model's vocabulary follows from the manifest, so adjusting must not enlarge it."""
    masks = MaskSet(folders[1], {"lead": 3})
    lacking = {name: number for name, number in masks.special_tokens.ids.items() if name != "<gap>"}
    masks.special_tokens.ids.clear()  # type: ignore[attr-defined]
    masks.special_tokens.ids.update(lacking)  # type: ignore[attr-defined]
    with pytest.raises(FarspanError, match=r"may need 1 special tokens more than its manifest numbers"):
        masks.check_parent(Corpus(folders[0]))


def test_masks_of_another_corpus_are_refused(folders, tmp_path):
    other = Corpus(make_corpus(str(tmp_path / "other"), seed=1))
    said = (
        f"{folders[1]}: its masks are not those of the corpus {other.folder}, but of the one that was at {folders[0]};"
    )
    with pytest.raises(FarspanError, match=said):
        MaskSet(folders[1]).check_parent(other)
