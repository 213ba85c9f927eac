"""Numbering of special tokens, and every kind of damage that is done to a sound mask set."""

import json
import os
import shutil

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpora.errors import FarspanError
from corpora.schemas.corpus import Corpus
from corpora.storage.shards import map_shard, write_shard
from objectives.api.mask_set import MaskSet
from objectives.api.masks import MASK_SCHEMA
from objectives.api.special_tokens import DOCUMENT_SEPARATOR, MASK, SENTENCE_MASK, SpecialTokens
from objectives.api.verify import verify_masks
from pipelines.engine.options import Engine
from pipelines.engine.run import run_job
from pipelines.masks.job import plan
from pipelines.masks.options import Masking
from tests.artefacts import edit_sealed, make_corpus
from tests.published_tokenizers import bart_files, pegasus_files, t5_files, tokenizer_of

ROLES = ["<pad>", "<bos>", "<eos>", "<unk>", MASK]


def test_a_tokenizer_that_owns_its_roles_gains_only_new_ones():
    special = SpecialTokens.append(100, {"<pad>": 0, "<bos>": 1, "<eos>": 2}, [DOCUMENT_SEPARATOR], sentinels=3)
    assert special.ids == {
        "<pad>": 0,
        "<bos>": 1,
        "<eos>": 2,
        "<doc-sep>": 100,
        "<sentinel-0>": 101,
        "<sentinel-1>": 102,
        "<sentinel-2>": 103,
    }
    assert special.vocab_size == 104


def test_descending_sentinels_count_down_from_the_last_id():
    special = SpecialTokens.append(100, {}, sentinels=3, order="descending")
    assert [special[name] for name in ("<pad>", "<bos>", "<eos>")] == [100, 101, 102]
    assert special.sentinels.tolist() == [105, 104, 103]
    assert special.vocab_size == 106


@given(
    st.integers(5, 1000),
    st.dictionaries(st.sampled_from(ROLES), st.integers(0, 4)),
    st.lists(st.sampled_from([DOCUMENT_SEPARATOR, MASK, "<other>"]), unique=True),
    st.integers(0, 20),
    st.sampled_from(["ascending", "descending"]),
)
def test_new_ids_are_the_next_ones_each_used_once(vocab_size, owned, names, sentinels, order):
    special = SpecialTokens.append(vocab_size, owned, names, sentinels, order)
    new = [number for name, number in special.ids.items() if name not in owned]
    assert sorted(new) == list(range(vocab_size, special.vocab_size))
    assert all(special[name] == owned[name] for name in special.ids if name in owned)
    assert set(special.ids) >= {"<pad>", "<bos>", "<eos>", *names}
    assert len(special.sentinels) == sentinels
    assert special.sentinels.dtype == np.int32


def numbered(files, names=(), sentinels=0, order="ascending"):
    tokenizer = tokenizer_of(files)
    return SpecialTokens.append(tokenizer.vocab_size, tokenizer.owned_tokens, names, sentinels, order)


@pytest.mark.parametrize("order", ["ascending", "descending"])
def test_t5_s_own_sentinels_are_used_in_its_order(order):
    """``<extra_id_0>`` is the last id of its vocabulary; ``<bos>``, which T5 lacks, is appended."""
    special = numbered(t5_files(), sentinels=3, order=order)
    assert special.ids == {
        **{"<pad>": 0, "<bos>": 26, "<eos>": 1},
        **{"<sentinel-0>": 25, "<sentinel-1>": 24, "<sentinel-2>": 23},
    }
    assert special.vocab_size == 27


def test_more_sentinels_than_t5_owns_are_appended():
    descending, ascending = (numbered(t5_files(), sentinels=12, order=order) for order in ("descending", "ascending"))
    assert descending.sentinels.tolist() == [*range(25, 15, -1), 28, 27]
    assert ascending.sentinels.tolist() == [*range(25, 15, -1), 27, 28]
    assert descending.vocab_size == ascending.vocab_size == 29


def test_sentinels_are_owned_up_to_the_first_gap():
    owned = {"<extra_id_0>": 9, "<extra_id_1>": 8, "<extra_id_3>": 6}
    assert SpecialTokens.append(10, owned, sentinels=4).sentinels.tolist() == [9, 8, 13, 14]
    assert SpecialTokens.append(10, {"<sentinel_0>": 5, "<sentinel_1>": 6}, sentinels=2).sentinels.tolist() == [5, 6]
    exported = SpecialTokens.append(10, {"<sentinel-0>": 7, "<extra_id_0>": 9}, sentinels=1)
    assert exported.sentinels.tolist() == [7]  # a model of ours comes back with its own names


def test_pegasus_s_own_masks_are_used_by_role():
    special = numbered(pegasus_files(), [SENTENCE_MASK, MASK])
    assert special.ids == {"<pad>": 0, "<bos>": 22, "<eos>": 1, "<sent-mask>": 2, "<mask>": 3}
    undeclared = {name: number for name, number in tokenizer_of(pegasus_files()).owned_tokens.items() if name != MASK}
    assert SpecialTokens.append(22, {**undeclared, "<mask_2>": 3}, [MASK])[MASK] == 3


def test_bart_s_own_mask_is_used_and_its_sentence_mask_appended():
    """BART-LS appended ``<sent_mask>`` to BART's vocabulary too."""
    special = numbered(bart_files(), [SENTENCE_MASK, MASK])
    assert special.ids == {"<pad>": 1, "<bos>": 0, "<eos>": 2, "<sent-mask>": 18, "<mask>": 17}


def test_merged_tables_keep_the_first_ones_ids_and_the_tokenizers():
    one = SpecialTokens.append(100, {"<pad>": 0, "<eos>": 2}, [MASK], sentinels=2, order="descending")
    other = SpecialTokens.append(100, {"<pad>": 0, "<eos>": 2, "<unk>": 0}, ["<unk>", DOCUMENT_SEPARATOR], sentinels=4)
    merged = SpecialTokens.merge([one, other], 100)
    assert dict(merged.ids) == {
        **one.ids, "<unk>": 0, "<doc-sep>": 104, "<sentinel-2>": 105, "<sentinel-3>": 106,
    }  # fmt: skip
    assert merged.vocab_size == 107
    assert SpecialTokens.merge([merged, one, other], 100) == merged
    assert SpecialTokens.merge([one], 100) == one
    assert merged.sentinels.tolist() == [103, 102, 105, 106]


def test_tables_of_two_tokenizers_are_not_merged():
    one, other = (SpecialTokens.append(100, {"<eos>": number}) for number in (1, 2))
    with pytest.raises(FarspanError, match=r"<eos> has id 1 for one objective, the tokenizer's 2 for another"):
        SpecialTokens.merge([one, other], 100)


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
