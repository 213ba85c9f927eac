"""A corpus and its masks as PyTorch's map-style dataset: the rows of rendering, padded like a recipe's batches."""

import pickle

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

from corpora.errors import FarspanError
from corpora.schemas.corpus import Corpus
from objectives.api.examples import IGNORED
from objectives.api.mask_set import MaskSet
from objectives.api.protocol import load_objective
from objectives.api.special_tokens import PAD
from tests.artefacts import make_corpus
from tests.trainer.masked_folders import OPTIONS, SEED, make_folders
from trainer.data.collate import collate
from trainer.data.config import DataConfig
from trainer.data.masked_corpus import MaskedCorpus
from trainer.dataset import Dataset


@pytest.fixture(scope="module")
def folders(tmp_path_factory) -> tuple[str, str]:
    return make_folders(tmp_path_factory.mktemp("folders"), draws=2)


def equal(first: dict[str, torch.Tensor], second: dict[str, torch.Tensor]) -> bool:
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


def test_a_batch_is_the_one_of_a_recipe(folders):
    corpus, masks = folders
    rows = np.array([3, 0, 8])
    source = MaskedCorpus.stored(Corpus(corpus), MaskSet(masks))
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


def test_global_positions_and_labels_beside_the_source(tmp_path):
    dataset = Dataset(make_corpus(str(tmp_path / "corpus"), room_per_document=2), objective="cross_document")
    item = dataset[1]
    assert item.keys() == {"input_ids", "attention_mask", "labels", "global_attention_mask"}
    asked = item["labels"] != IGNORED
    assert asked.any()
    assert torch.equal(item["global_attention_mask"].bool() & asked, asked)


def test_the_decoder_begins_with_the_token_that_is_named(folders):
    items = [Dataset(*folders, decoder_start=name)[0]["decoder_input_ids"] for name in ("<pad>", "<eos>")]
    assert [int(item[0]) for item in items] == [0, 2]
    assert torch.equal(items[0][1:], items[1][1:])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, r"give either masks, a folder, or objective"),
        ({"masks": True, "objective": "span"}, r"give either masks, a folder, or objective"),
        ({"objective": "spam"}, r"no objective is called 'spam' \(did you mean 'span'"),
        ({"masks": True, "decoder_start": "<s>"}, r"^decoder_start '<s>': not a special token; choose one of <pad>"),
    ],
)
def test_what_cannot_be_opened_is_said(folders, arguments, message):
    if "masks" in arguments:
        arguments = {**arguments, "masks": folders[1]}
    with pytest.raises(FarspanError, match=message):
        Dataset(folders[0], **arguments)
