"""A corpus and its masks as PyTorch's map-style dataset."""

import os
import pickle
import re
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

from corpora.errors import FarspanError
from corpora.schemas.corpus import Corpus
from corpora.storage.shard_cache import ShardCache
from objectives.api.examples import IGNORED
from objectives.api.mask_set import MaskSet
from objectives.api.protocol import load_objective
from objectives.api.special_tokens import PAD
from objectives.rendering.stream import StreamLayout
from tests.artefacts import make_corpus
from tests.object_store import upload
from tests.trainer.masked_folders import OPTIONS, SEED, make_folders
from trainer.data.batch import collate
from trainer.data.config import DataConfig
from trainer.data.masked_corpus import MaskedCorpus
from trainer.data.mixture import Mixture, Part
from trainer.dataset import Dataset


@pytest.fixture(scope="module")
def folders(tmp_path_factory) -> tuple[str, str]:
    return make_folders(tmp_path_factory.mktemp("folders"), draws=2)


@pytest.fixture(scope="module")
def many(tmp_path_factory) -> tuple[str, str]:
    """27 rows in six shards, and two draws of masks in twelve."""
    return make_folders(tmp_path_factory.mktemp("many"), draws=2, shards=6)


@pytest.fixture
def cache(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("FARSPAN_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def remote(many, cache) -> tuple[str, str]:
    """The same in a store."""
    for folder in many:
        upload(folder, f"memory://{os.path.basename(folder)}")
    return "memory://corpus", "memory://masks"


def bytes_of(*folders: str | Path) -> int:
    return sum(path.stat().st_size for folder in folders for path in Path(folder).glob("**/*.arrow"))


def equal(first: dict[str, torch.Tensor], second: dict[str, torch.Tensor]) -> bool:
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


def test_a_batch_is_the_one_of_a_recipe(folders):
    corpus, masks = folders
    rows = np.array([3, 0, 8])
    source = MaskedCorpus.of_masks(Corpus(corpus), MaskSet(masks))
    data = DataConfig(corpus=corpus, masks=masks, source_length=128, target_length=128)
    expected = collate(source.examples(rows), rows, data, source.special)
    dataset = Dataset(corpus, masks)
    batch = dataset.collate([dataset[int(row)] for row in rows])
    assert {tensor.dtype for tensor in batch.values()} == {torch.int64}
    for name, tensor in (
        ("attention_mask", expected.source_padding_mask),
        ("input_ids", expected.source_ids),
        ("labels", expected.labels),
        ("decoder_input_ids", expected.decoder_ids),
    ):
        if name == "decoder_input_ids":  # behind a target, where nothing is predicted, the two may differ
            tensor = tensor.where(expected.labels != IGNORED, dataset.special_tokens[PAD])
        assert torch.equal(batch[name], tensor[:, : batch[name].shape[1]].long())


def test_items_are_taken_one_by_one_from_the_end_sliced_and_in_turn(folders):
    dataset = Dataset(*folders)
    items = dataset.__getitems__(range(len(dataset)))
    for index in (0, 3, -1, -len(items)):
        assert equal(dataset[index], items[index])
    for found, expected in ((dataset[2:5], items[2:5]), (dataset[::-4], items[::-4]), (list(iter(dataset)), items)):
        assert len(found) == len(expected) > 0
        assert all(map(equal, found, expected))
    with pytest.raises(IndexError, match=rf"item 9 of {folders[0]}, which has rows 0 to 8"):
        dataset[9]
    with pytest.raises(IndexError, match="item -10 of"):
        dataset[-10]


def test_a_dataset_prints_what_it_holds(folders):
    corpus, masks = folders
    dataset = Dataset(corpus, masks)
    dataset.set_epoch(2)
    assert repr(dataset) == f"Dataset({corpus} {masks}): 9 sequences, objective span, epoch 2"
    drawn = Dataset(corpus, objective="span", preset="t5")
    assert repr(drawn) == f"Dataset({corpus}): 9 sequences, objective span, epoch 0"


def test_epochs_have_the_draws_of_a_mask_set(folders):
    corpus, masks = folders
    stored = Dataset(corpus, masks)
    drawn = Dataset(corpus, objective="span", options=OPTIONS, seed=SEED)
    first = stored[2]
    for epoch in (0, 1):
        stored.set_epoch(epoch)
        drawn.set_epoch(epoch)
        assert all(equal(stored[row], drawn[row]) for row in range(len(stored)))
    assert not equal(first, stored[2])
    stored.set_epoch(2)
    assert equal(first, stored[2])


@pytest.mark.parametrize("workers", [0, 1])
def test_a_loader_gets_every_row_once_an_epoch(folders, workers):
    dataset = Dataset(*folders)
    loader = DataLoader(dataset, 4, collate_fn=dataset.collate, num_workers=workers, persistent_workers=workers > 0)
    for epoch in (0, 1):
        dataset.set_epoch(epoch)
        rows = [row for batch in loader for row in zip(batch["input_ids"], batch["attention_mask"], strict=True)]
        assert len(rows) == len(dataset) == 9
        expected = (dataset[row]["input_ids"] for row in range(9))
        assert all(torch.equal(ids[mask.bool()], other) for (ids, mask), other in zip(rows, expected, strict=True))


def test_a_copy_for_another_process_sees_the_epoch(folders):
    dataset = Dataset(folders[0], objective=load_objective("span", options=OPTIONS), seed=SEED)
    dataset.set_epoch(1)
    assert equal(pickle.loads(pickle.dumps(dataset))[5], dataset[5])


def test_a_copy_for_another_process_has_the_same_contents(tmp_path):
    """A corpus may be made anew before the workers of a loader open it."""
    data = pickle.dumps(Dataset(*make_folders(tmp_path, shards=2)))
    assert len(pickle.loads(data)) == 9
    shutil.rmtree(tmp_path)
    make_folders(tmp_path, shards=2, seed=10)
    with pytest.raises(FarspanError, match="corpus: made anew since this dataset was opened; open it again"):
        pickle.loads(data)


def test_global_positions_and_labels_beside_the_source(tmp_path):
    item = Dataset(make_corpus(str(tmp_path / "corpus"), room_per_document=2), objective="cross_document")[1]
    assert item.keys() == {"input_ids", "attention_mask", "labels", "global_attention_mask"}
    asked = item["labels"] != IGNORED
    assert asked.any()
    assert torch.equal(item["global_attention_mask"].bool() & asked, asked)


def test_the_decoder_begins_with_the_token_that_is_named(folders):
    items = [Dataset(*folders, decoder_start=name)[0]["decoder_input_ids"] for name in ("<pad>", "<eos>")]
    assert [int(item[0]) for item in items] == [0, 2]
    assert torch.equal(items[0][1:], items[1][1:])


def test_a_cache_of_part_of_the_data_fetches_each_shard_once_an_epoch(many, cache, store, bucket):
    for folder in many:
        upload(folder, f"{bucket}/{os.path.basename(folder)}")
    size = int(bytes_of(*many) * 0.6)
    local = Dataset(*many)
    ours = Dataset(f"{bucket}/corpus", f"{bucket}/masks", cache_gib=size / 2**30)
    for epoch in (0, 1):
        local.set_epoch(epoch)
        ours.set_epoch(epoch)
        store.requests.clear()
        sampler: Any = ours.sampler(shuffle_shards=1)
        order = list(sampler)
        assert sorted(order) == list(range(len(sampler))) == list(range(27))
        for number, batch in enumerate(DataLoader(ours, 3, sampler=sampler, collate_fn=ours.collate)):
            assert equal(batch, local.collate([local[row] for row in order[3 * number : 3 * number + 3]]))
            assert sum(path.stat().st_size for path in (cache / "shards").iterdir()) <= size
        fetched = Counter(path for method, path, _, _ in store.requests if method == "GET" and "/shards/" in path)
        assert set(fetched.values()) == {1}
    assert os.listdir(cache) == ["shards"]  # nothing was copied whole


@pytest.mark.parametrize("together", [0, 2])
def test_the_order_is_that_of_a_recipe(many, together):
    dataset = Dataset(*many)
    mixture = Mixture([Part("data", MaskedCorpus.of_masks(Corpus(many[0]), MaskSet(many[1])), 1.0, together)])
    for epoch in (0, 3):
        dataset.set_epoch(epoch)
        expected = mixture.sequences(np.arange(27) + epoch * 27, seed=5).indices
        assert list(dataset.sampler(together, seed=5)) == expected.tolist()


def test_the_datasets_of_a_process_share_half_of_a_cache(cache, tmp_path, monkeypatch):
    """A third one would find the whole cache in use by the first two."""
    monkeypatch.setattr(ShardCache.map, "__defaults__", (0.5,))
    datasets, local = [], []
    for number in range(4):
        folders = make_folders(tmp_path / str(number), shards=4, seed=10 * number)
        for folder in folders:
            upload(folder, f"memory://{number}/{os.path.basename(folder)}")
        local.append(Dataset(*folders))
        size = bytes_of(*folders) / 2**30
        datasets.append(Dataset(f"memory://{number}/corpus", f"memory://{number}/masks", cache_gib=size))
    for dataset, expected in zip(datasets, local, strict=True):
        assert all(equal(dataset[row], expected[row]) for row in range(len(expected)))
    assert 3 in datasets[-1]._source.corpus._fetched


@pytest.mark.parametrize("gib", [None, 1])
def test_a_damaged_copy_in_the_cache_is_fetched_again(many, remote, cache, gib):
    Dataset(*remote, cache_gib=gib)[0]
    for copy in (cache / "shards").iterdir():
        if copy.name != ".lock":
            copy.write_bytes(bytes(copy.stat().st_size))
    assert equal(Dataset(*remote, cache_gib=gib)[0], Dataset(*many)[0])


def test_what_a_cache_cannot_do_is_said(many, remote):
    with pytest.raises(FarspanError, match=r"^cache_gib is 0; it must be above 0"):
        Dataset(*remote, cache_gib=0)
    small = Dataset(*remote, cache_gib=bytes_of(*many) / 6 / 2**30)
    with pytest.raises(FarspanError, match=r"cache_gib is .*, and two groups of 2 shards need .* few shards"):
        small.sampler(2)
    with pytest.raises(FarspanError, match=r"and all shards need"):
        small.sampler(0)
    with pytest.raises(FarspanError, match=r"and the shards of a batch need"):
        small.__getitems__(range(27))
    with pytest.raises(FarspanError, match=r"shuffle_shards is -1; it must be at least 0"):
        small.sampler(-1)
    with pytest.raises(FarspanError, match=r"give DataLoader multiprocessing_context='spawn'"):
        next(iter(DataLoader(small, num_workers=1, multiprocessing_context="fork")))
    assert equal(pickle.loads(pickle.dumps(small))[5], Dataset(*many)[5])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"masks": "MASKS", "objective": "span"}, "give either masks, a folder, or objective"),
        ({"objective": "spam"}, "no objective is called 'spam' (did you mean 'span'"),
        ({"masks": "MASKS", "decoder_start": "<s>"}, "decoder_start '<s>': not a special token; choose one of <pad>"),
        ({"layout": "streams"}, "layout 'streams': no layout (did you mean 'stream'?); choose source_target, stream"),
        ({}, "give either masks, a folder, or objective"),
        ({"layout": StreamLayout(max_length=79)}, "its longest row has 80 positions or more, max_length is 79; raise"),
        ({"layout": StreamLayout(begin="<doc-sep>")}, "begin '<doc-sep>' of a stream: the tokenizer has no such"),
        (
            {"layout": StreamLayout(vocab_size=32_000), "objective": "span", "options": {"sentinels": 20}},
            "CORPUS: its rows have ids up to 32,020, the model has 32,000 token embeddings; resize them to 32,021",
        ),
    ],
)
def test_what_does_not_fit_is_refused_when_it_is_opened(folders, arguments, message):
    if "masks" in arguments:
        arguments = {**arguments, "masks": folders[1]}
    with pytest.raises(FarspanError, match=re.escape(message.replace("CORPUS", folders[0]))):
        Dataset(folders[0], **arguments)
