"""A corpus and its masks as PyTorch's map-style dataset, and its rows for decoders in a tiny Llama of transformers."""

import os
import pickle
import re
import shutil
from collections import Counter
from functools import partial
from itertools import pairwise
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
    folders = make_folders(tmp_path, shards=2)
    data = pickle.dumps(Dataset(*folders))
    assert len(pickle.loads(data)) == 9
    shutil.rmtree(tmp_path)
    make_folders(tmp_path, shards=2, seed=10)
    with pytest.raises(FarspanError, match="corpus: made anew since this dataset was opened; open it again"):
        pickle.loads(data)


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


def test_shards_stay_mapped_as_long_as_half_of_the_cache_holds_them(many, remote):
    dataset = Dataset(*remote, cache_gib=2 * bytes_of(*many) / 2**30)
    corpus = dataset._source.corpus
    for row in (0, 26, 13):
        dataset[row]
    assert [shard in corpus._fetched for shard in range(6)] == [True, False, True, False, False, True]


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
    last = datasets[-1]._source.corpus._fetched
    assert 3 in last


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


MASKED = StreamLayout(block_mask=True)


@pytest.fixture(scope="module")
def llama():
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    sizes: dict[str, Any] = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2}
    sizes |= {"num_attention_heads": 4, "attn_implementation": "sdpa"}
    config = LlamaConfig(vocab_size=33_000, initializer_range=0.2, **sizes)
    return LlamaForCausalLM(config).eval()


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
            assert one.keys() == other.keys()
            for name, value in one.items():
                assert torch.equal(value, other[name]) if isinstance(value, torch.Tensor) else value == other[name]


def test_a_flat_batch_is_that_of_transformers_collator_for_rows_of_one_document(folders):
    from transformers import DataCollatorWithFlattening

    dataset = Dataset(folders[0], layout=StreamLayout(across_documents=True))
    items = [dataset[row] for row in range(5)]
    expected = DataCollatorWithFlattening(return_flash_attn_kwargs=True)([{**item} for item in items])
    found = dataset.collate(items)
    assert found.pop("use_cache") is False
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert torch.equal(found[name], value) if isinstance(value, torch.Tensor) else found[name] == value
        assert not isinstance(value, torch.Tensor) or found[name].dtype == value.dtype


def test_documents_begin_and_end_as_the_layout_says(folders):
    for begin, end in (("<bos>", "<eos>"), (None, "<eos>"), ("<bos>", None), (None, None)):
        batch = flat(Dataset(folders[0], layout=StreamLayout(begin=begin, end=end)))
        ids, ends = batch["input_ids"][0], batch["cu_seq_lens_q"].long()
        assert (ids == 1).sum() == (len(ends) - 1) * (begin is not None)
        assert begin is None or bool((ids[ends[:-1]] == 1).all())
        assert bool((ids == 2).any()) is (end is not None)
        assert batch["max_length_q"] == int(np.diff(ends).max())


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
