"""Every kind of damage is done to a sound mask set and found: by `verify`, and when it is opened for training."""

from __future__ import annotations

import json
import os
import shutil

import numpy as np
import pyarrow as pa
import pytest

from corpora.errors import FarspanError
from corpora.schemas.corpus import Corpus
from corpora.storage.shards import map_shard, write_shard
from objectives.api.mask_set import MaskSet
from objectives.api.masks import MASK_SCHEMA
from objectives.api.verify import verify_masks
from pipelines.engine.options import Engine
from pipelines.engine.run import run_job
from pipelines.masks.job import plan
from pipelines.masks.options import Masking
from tests.artefacts import edit_sealed, make_corpus

NAME = "part-00000-of-00002.arrow"


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sound")
    corpus = make_corpus(str(folder / "corpus"))
    run_job(plan(Masking(corpus=corpus, output=str(folder / "masks"), objective="span")), Engine(workers=1))
    return folder


@pytest.fixture
def masks(sound, tmp_path):
    return str(shutil.copytree(sound, tmp_path / "at") / "masks")


def change(folder, **changes):
    with edit_sealed(os.path.join(folder, "manifest.json")) as values:
        for key, value in changes.items():
            values[key] = {**values[key], **value} if isinstance(value, dict) else value


def rewrite(folder, column, values_of):
    """Change a column of the first shard and let the manifest agree with it."""
    path = os.path.join(folder, "shards", NAME)
    reader = map_shard(path)[1]
    table = pa.Table.from_batches([reader.get_batch(index) for index in range(reader.num_record_batches)])
    index = MASK_SCHEMA.get_field_index(column)
    values = values_of(table.column(column).to_pylist())
    table = table.set_column(index, MASK_SCHEMA.field(column), pa.array(values, MASK_SCHEMA.field(column).type))
    os.remove(path)
    with write_shard(path, MASK_SCHEMA, 8) as (writer, info):
        for batch in table.to_batches():
            writer.write(batch)
    shards = json.load(open(os.path.join(folder, "manifest.json")))["shards"]
    change(folder, shards=[vars(info[0]) if shard["name"] == NAME else shard for shard in shards])


def opened(folder):
    """Open a mask set as training does before its first step."""
    masks = MaskSet(folder)
    masks.check_files()
    masks.check_parent(Corpus(masks.parent_folder))


def test_a_sound_mask_set_has_no_problems(masks):
    assert verify_masks(masks) == []
    opened(masks)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"special_tokens": {"<sentinel-0>": 1}}, "gives <sentinel-0> id 1, which is that of another token"),
        ({"special_tokens": {"<sentinel-0>": 401}}, "without gaps and repetitions"),
        ({"special_tokens": {"<sentinel-0>": 10**9}}, "without gaps and repetitions"),
        ({"special_tokens": {"<sentinel-x>": 500}}, "numbers sentinels with a gap"),
        ({"special_tokens": {"<pad>": 9}}, "gives <pad> id 9, which is that of another token"),
        ({"tokenizer": {"fingerprint": "0" * 64}}, "its tokenizer"),
        ({"tokenizer": {"vocab_size": 5}}, "vocab_size is 5|without gaps"),
        ({"totals": {"max_source_length": -1}}, "max_source_length is -1"),
        ({"rows_per_batch": 4}, "rows_per_batch 4 differ from 8|record batches where the manifest says"),
        ({"config": {"global_attention": "masked"}}, "says global_attention 'masked', objective span"),
        ({"config": {"options": {"density": "much"}}}, "density"),
        ({"config": {"options": {"no_such": 1}}}, "no_such"),
        ({"config": {"objective": "nobody"}}, "no objective is called 'nobody'"),
    ],
)
def test_a_lying_manifest_is_found_and_not_trained_on(masks, changes, message):
    change(masks, **changes)
    try:
        problems = "\n".join(verify_masks(masks))
    except FarspanError as error:
        problems = str(error)
    assert problems
    with pytest.raises(FarspanError, match=message):
        opened(masks)


@pytest.mark.parametrize("total", ["max_source_length", "max_target_length", "spans", "hidden_tokens", "unmasked"])
def test_totals_are_what_the_rows_say(masks, total):
    change(masks, totals={total: 3})
    assert [problem for problem in verify_masks(masks) if f"totals say 3 {total}" in problem]


@pytest.mark.parametrize("more", [-1, 1])
@pytest.mark.parametrize("side", ["source", "target"])
def test_stored_lengths_are_those_of_the_rendered_rows(masks, side, more):
    rewrite(masks, f"{side}_length", lambda lengths: [lengths[0] + more, *lengths[1:]])
    (problem,) = verify_masks(masks)
    assert f"batch 0 row 0: {side}_lengths is" in problem


def test_flags_and_spans_that_cannot_be_rendered(masks, sound):
    rewrite(masks, "span_flags", lambda rows: [[16] * len(row) for row in rows])
    assert any("span_flags have undefined bits" in problem for problem in verify_masks(masks))
    shutil.rmtree(masks)
    shutil.copytree(sound / "masks", masks)
    rewrite(masks, "span_flags", lambda rows: [[8 + 1] * len(row) for row in rows])
    assert any("cannot be rendered: " in problem for problem in verify_masks(masks))


@pytest.mark.parametrize("damage", ["flipped", "missing"])
def test_its_own_tokenizer_is_looked_at(masks, damage):
    path = os.path.join(masks, "tokenizer", "tokenizer.json")
    data = open(path, "rb").read()
    os.remove(path)
    if damage == "flipped":
        open(path, "wb").write(data.replace(b'"<pad>"', b'"<pat>"', 1))
    assert any(problem.startswith("tokenizer/tokenizer.json: ") for problem in verify_masks(masks))
    with pytest.raises(FarspanError, match=r"tokenizer/tokenizer\.json"):
        opened(masks)


def test_every_row_that_is_longer_than_it_says_is_named(masks):
    rewrite(masks, "target_length", lambda lengths: [1] * len(lengths))
    change(masks, totals={"max_target_length": 1})
    assert sum("target_lengths is" in problem for problem in verify_masks(masks)) == np.count_nonzero(
        MaskSet(masks).take(np.arange(MaskSet(masks).starts[1])).span_starts.lengths
    )
