"""Pairs packed into rows."""

import numpy as np
import pytest

from corpora.errors import FarspanError
from corpora.schemas.pairs import PairSet
from objectives.api.examples import IGNORED
from objectives.api.protocol import Tools, equip
from objectives.api.special_tokens import PAD
from objectives.tasks.protocol import load_task
from tests.artefacts import make_documents, make_pairs, small_tokenizer
from trainer.data import packed
from trainer.data.batch import collate
from trainer.data.config import DataConfig
from trainer.data.mixture import Mixture, Part
from trainer.data.packed import PackedPairs
from trainer.data.paired import PairedSource

DATA = DataConfig(source_length=64, target_length=24, source_multiple=4)


@pytest.fixture(scope="module")
def pairs(tmp_path_factory) -> PairSet:
    place = tmp_path_factory.mktemp("pairs")
    documents = make_documents(str(place / "documents"), shards=1, documents=20)
    return PairSet(make_pairs(str(place / "pairs"), documents, 60, max_targets=3))


def source_of(pairs: PairSet, **options) -> PairedSource:
    options = {"source_length": 30, "target_length": 12, **options}
    return PairedSource.of(pairs, "train", equip(load_task("text_to_text", None, options), Tools(small_tokenizer())))


@pytest.mark.parametrize("options", [{}, {"query": "decoder", "query_length": 4}, {"global_attention": "bos"}])
def test_rows_hold_every_example_once_as_it_is_alone(pairs, options):
    source = source_of(pairs, **options)
    rows = PackedPairs(source, DATA)
    assert sorted(rows.members.values) == list(range(len(source)))
    batch = collate(rows.examples(np.arange(len(rows))), np.arange(len(rows)), DATA, rows.special)
    alone = collate(source.examples(rows.members.values), rows.members.values, DATA, source.special)
    numbers, targets = batch.segment_ids.numpy(), batch.target_segment_ids.numpy()
    assert (batch.source_padding_mask.numpy() == (numbers >= 0)).all()
    assert numbers.max() + 1 == rows.most == rows.members.lengths.max() > 2
    example = 0
    for row, count in enumerate(rows.members.lengths):
        for number in range(count):
            inside, written = numbers[row] == number, targets[row] == number
            assert np.flatnonzero(inside)[0] % DATA.source_multiple == 0
            for name, where in (
                ("source_ids", inside), ("global_positions", inside), ("labels", written), ("decoder_ids", written)
            ):  # fmt: skip
                column, own = getattr(batch, name), getattr(alone, name)
                if own is not None:
                    assert column[row].numpy()[where].tolist() == own[example].tolist()[: where.sum()], name
                    rest = own[example].numpy()[where.sum() :]
                    assert name == "decoder_ids" or np.isin(rest, (rows.special[PAD], IGNORED, 0)).all()
            example += 1
    assert (batch.source_tokens, batch.target_tokens) == (alone.source_tokens, alone.target_tokens)
    assert (batch.source_ids.numpy()[numbers < 0] == rows.special[PAD]).all()


def test_rows_are_a_function_of_lengths_and_nearly_full(pairs, monkeypatch):
    source = source_of(pairs)
    rows, again = PackedPairs(source, DATA), PackedPairs(source, DATA)
    assert (rows.members.values == again.members.values).all()
    assert (rows.members.offsets == again.members.offsets).all()
    shares, plain = rows.padding(8)
    lengths = source.lengths()
    assert shares == pytest.approx(1 - lengths.sum(1) / np.array([64, 24]) / len(rows))
    assert shares.min() < 0.1 < plain.min()  # one side is nearly full
    monkeypatch.setattr(packed, "_BUCKET", 8)
    assert len(PackedPairs(source, DATA)) > len(rows)


def test_targets_limit_rows_as_sources_do(pairs):
    source = source_of(pairs)
    assert len(PackedPairs(source, DATA)) < len(PackedPairs(source, DataConfig(source_length=64, target_length=12)))
    rows = PackedPairs(source, DataConfig(source_length=4096, target_length=13))
    examples = rows.examples(np.arange(len(rows)))
    assert examples.target_lengths.max() <= 13
    assert rows.most > 1


def test_sampled_targets_fit_in_every_epoch(pairs):
    rows = PackedPairs(source_of(pairs, targets="sampled"), DATA)
    every = [rows.examples(np.arange(len(rows)), np.full(len(rows), epoch)) for epoch in range(6)]
    assert max(examples.target_lengths.max() for examples in every) <= DATA.target_length
    assert len({examples.target_ids.tobytes() for examples in every}) > 1


def test_a_mixture_of_packed_sources(pairs):
    parts = [source_of(pairs), source_of(pairs, query="decoder", query_length=4, separator="<doc-sep>")]
    mixture = Mixture([Part(str(number), PackedPairs(part, DATA)) for number, part in enumerate(parts)])
    first = len(mixture.parts[0].source)
    examples = mixture.examples(np.array([first, 0]))
    own = mixture.parts[1].source.examples(np.array([0]))
    width = own.target_ids.shape[1]
    assert (examples.target_segment_ids[0, :width] == own.target_segment_ids[0]).all()
    assert (examples.target_segment_ids[0, width:] == -1).all()
    assert (examples.prompt_mask[0, :width] == own.prompt_mask[0]).all()
    assert not examples.prompt_mask[1].any()
    assert "more in its row" in mixture.origins(np.array([first]))[0]
    assert len({part.source.fingerprint for part in mixture.parts} | {part.fingerprint for part in parts}) == 4


def test_packing_needs_lengths_before_rendering(pairs):
    source = source_of(pairs)
    source.task = type("Silent", (), {"name": "silent", "samples": "each"})()
    with pytest.raises(FarspanError, match=r"packing needs lengths before rendering, which task silent does not say"):
        PackedPairs(source, DATA)
