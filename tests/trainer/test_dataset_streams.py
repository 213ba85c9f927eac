"""Rows of a dataset for decoders, in a tiny Llama of transformers."""

from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

from corpora.errors import FarspanError
from objectives.api.examples import IGNORED
from objectives.api.protocol import load_objective
from objectives.rendering.stream import StreamLayout
from tests.trainer.masked_folders import OPTIONS, SEED, make_folders
from trainer.dataset import Dataset


@pytest.fixture(scope="module")
def folders(tmp_path_factory) -> tuple[str, str]:
    return make_folders(tmp_path_factory.mktemp("folders"), draws=2)


MASKED = StreamLayout(block_mask=True)


@pytest.fixture(scope="module")
def llama():
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    sizes: dict[str, Any] = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2}
    sizes |= {"num_attention_heads": 4, "attn_implementation": "sdpa"}
    return LlamaForCausalLM(LlamaConfig(vocab_size=33_000, initializer_range=0.2, **sizes)).eval()


def flat(dataset: Dataset, rows: range = range(4)) -> dict:
    return dataset.collate([dataset[row] for row in rows])


def without_lengths(batch: dict) -> dict:
    """Inputs of attention other than FlashAttention."""
    return {name: value for name, value in batch.items() if not name.startswith(("cu_", "max_"))}


@torch.no_grad()
def logits(model, batch: dict, **others) -> torch.Tensor:
    return model(**{**without_lengths(batch), **others}).logits


def change(batch: dict, row: int, place: int) -> dict:
    """The same batch with another token."""
    ids = batch["input_ids"].clone()
    ids[row, place] = 4 + (ids[row, place] + 1000) % 20_000
    return {**batch, "input_ids": ids}


def test_a_token_of_one_document_does_not_move_another_documents_logits(folders, llama):
    batch = flat(Dataset(folders[0], layout="stream"))
    ends = batch["cu_seq_lens_q"].tolist()
    assert len(ends) > 6
    before, after = logits(llama, batch), logits(llama, change(batch, 0, ends[2] + 1))
    moved = (before != after).any(dim=-1)[0]
    assert moved[ends[2] + 1 : ends[3]].any()
    assert not moved[: ends[2]].any()
    assert not moved[ends[3] :].any()


@pytest.mark.parametrize("trap", [{"attention_mask": 1}, {"use_cache": True}], ids=str)
def test_with_a_padding_mask_or_a_cache_transformers_lets_documents_attend_to_each_other(folders, llama, trap):
    """If this fails, transformers has mended it, and the warnings in ``docs/howto/decoders.md`` can go."""
    batch = flat(Dataset(folders[0], layout="stream"))
    if "attention_mask" in trap:
        trap = {"attention_mask": torch.ones_like(batch["input_ids"])}
    last = int(batch["cu_seq_lens_q"][3])
    leaking = [logits(llama, each, **trap)[0, last:] for each in (batch, change(batch, 0, last - 2))]
    assert (leaking[0] - leaking[1]).abs().max() > 0.01


def test_a_mask_separates_documents_with_a_cache_too(folders, llama):
    dataset, masked = (Dataset(folders[0], layout=layout) for layout in ("stream", MASKED))
    rows, both = flat(dataset), flat(masked)
    real = both["labels"].ne(IGNORED) | both["position_ids"].ne(0) | both["input_ids"].eq(1)  # 1 is <bos>
    for cached in (False, True):
        found = logits(llama, both, use_cache=cached)[real]
        torch.testing.assert_close(found, logits(llama, rows)[0], atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("layout", ["stream", MASKED], ids=["flat", "mask"])
def test_the_loss_of_a_batch_is_that_of_documents_alone_weighted_by_tokens(folders, llama, layout):
    batch = flat(Dataset(folders[0], layout=layout))
    with torch.no_grad():
        packed = llama(**without_lengths(batch)).loss
    total = count = 0
    pieces = flat(Dataset(folders[0], layout="stream"))
    for first, last in pairwise(pieces["cu_seq_lens_q"].tolist()):
        ids = pieces["input_ids"][:, first:last]
        with torch.no_grad():
            total += float(llama(ids, labels=ids).loss) * (last - first - 1)
        count += last - first - 1
    assert count == int(batch["labels"].ne(IGNORED).sum())
    assert float(packed) == pytest.approx(total / count, rel=1e-5)


def test_attention_sees_sources_in_both_directions_and_targets_in_one(folders, llama):
    dataset = Dataset(*folders, layout=StreamLayout(attention="prefix"))
    batch = flat(dataset)
    model = partial(logits, llama)
    plain = Dataset(*folders)
    for row in range(4):
        source, size = len(plain[row]["input_ids"]), len(dataset[row]["input_ids"])
        moved = (model(batch) != model(change(batch, row, source - 1))).any(dim=-1)[row]
        assert moved[:size].all()
        moved = (model(batch) != model(change(batch, row, source + 2))).any(dim=-1)[row]
        assert not moved[: source + 2].any()
        assert moved[source + 2 : size].all()


def test_a_stream_is_source_and_target_of_the_same_draw(folders):
    plain, streams = Dataset(*folders), Dataset(*folders, layout="stream")
    drawn = Dataset(folders[0], objective="span", options=OPTIONS, seed=SEED, layout="stream")
    for epoch in (0, 1):
        for dataset in (plain, streams, drawn):
            dataset.set_epoch(epoch)
        for row in range(len(plain)):
            pair, item = plain[row], streams[row]
            assert torch.equal(item["input_ids"], torch.cat([pair["input_ids"], pair["labels"]]))
            ignored = torch.full_like(pair["input_ids"], IGNORED)
            assert torch.equal(item["labels"], torch.cat([ignored, pair["labels"]]))
            assert torch.equal(item["position_ids"], torch.arange(len(item["input_ids"])))
            assert all(torch.equal(item[name], drawn[row][name]) for name in item)


def test_workers_give_the_same_batches(folders):
    for arguments in ({}, {"masks": folders[1]}, {"objective": "span", "layout": MASKED}):
        dataset = Dataset(folders[0], **{"layout": "stream", **arguments})
        loaders = [DataLoader(dataset, 4, num_workers=count, collate_fn=dataset.collate) for count in (0, 2)]
        for one, other in zip(*loaders, strict=True):
            torch.testing.assert_close(one, other, rtol=0, atol=0)


def test_a_flat_batch_is_that_of_transformers_collator_for_rows_of_one_document(folders):
    from transformers import DataCollatorWithFlattening

    dataset = Dataset(folders[0], layout=StreamLayout(across_documents=True))
    items = [dataset[row] for row in range(5)]
    expected = DataCollatorWithFlattening(return_flash_attn_kwargs=True)([{**item} for item in items])
    found = dataset.collate(items)
    assert found.pop("use_cache") is False
    torch.testing.assert_close(found, {**expected}, rtol=0, atol=0)  # of the same dtypes


def test_documents_begin_and_end_as_the_layout_says(folders):
    for begin, end in (("<bos>", "<eos>"), (None, "<eos>"), ("<bos>", None), (None, None)):
        batch = flat(Dataset(folders[0], layout=StreamLayout(begin=begin, end=end)))
        ids, ends = batch["input_ids"][0], batch["cu_seq_lens_q"].long()
        assert (ids == 1).sum() == (len(ends) - 1) * (begin is not None)
        assert begin is None or bool((ids[ends[:-1]] == 1).all())
        assert bool((ids == 2).any()) is (end is not None)
        assert batch["max_length_q"] == int(np.diff(ends).max())


def test_an_objective_without_target_is_refused_when_it_is_opened(folders):
    objective = load_objective("cross_document", options={"treatments": [0.9, 0, 0.1]})
    with pytest.raises(FarspanError, match="without a target, so its rows cannot be streams"):
        Dataset(folders[0], objective=objective, layout="stream")
    with pytest.raises(FarspanError, match="attention 'both' of a stream: choose causal or prefix"):
        StreamLayout(attention="both")


def test_a_row_that_is_too_long_is_refused_when_it_is_read(folders):
    dataset = Dataset(folders[0], layout=StreamLayout(max_length=80))
    with pytest.raises(FarspanError, match=r"^sequence [0-9a-f]{32}: its stream has \d+ positions, max_length is 80; "):
        dataset.__getitems__(range(9))
