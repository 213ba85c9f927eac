"""Pairs as a source of training examples, one by one and packed into rows."""

import pickle

import numpy as np
import pytest

from corpora.errors import FarspanError
from corpora.schemas.pairs import PairSet, pair_key
from objectives.api.examples import IGNORED
from objectives.api.protocol import Tools, equip
from objectives.api.special_tokens import PAD
from objectives.tasks.protocol import divide_answers, load_task
from tests.artefacts import make_documents, make_pairs, small_tokenizer
from trainer.data import packed
from trainer.data.batch import collate
from trainer.data.config import DataConfig
from trainer.data.mixture import Mixture, Part
from trainer.data.packed import PackedPairs
from trainer.data.paired import Cuts, FewExamples, PairedSource


def make_set(place, seed: int = 0, **options) -> PairSet:
    documents = make_documents(str(place / "documents"), shards=1, documents=20, seed=seed)
    return PairSet(make_pairs(str(place / "pairs"), documents, max_targets=3, **options))


@pytest.fixture(scope="module")
def pairs(tmp_path_factory) -> PairSet:
    """24 pairs about two documents each: 16 in train, 8 in validation; pair i has i % 3 + 1 targets."""
    return make_set(tmp_path_factory.mktemp("pairs"), documents_per_pair=2)


def source_of(pairs: PairSet, split: str = "train", seed: int = 0, **options) -> PairedSource:
    task = equip(load_task("text_to_text", None, options), Tools(small_tokenizer()))
    return PairedSource.of(pairs, split, task, seed)


def rows_of(pairs: PairSet, split: str = "train") -> list[dict]:
    return [row for row in pairs.table(np.arange(len(pairs))).to_pylist() if row["split"] == split]


def targets_of(source: PairedSource, epochs=None) -> list[list[int]]:
    """Targets of all samples without their end."""
    examples = source.examples(np.arange(len(source)), epochs)
    return [ids[: size - 1].tolist() for ids, size in zip(examples.target_ids, examples.target_lengths, strict=True)]


def test_every_target_of_every_pair_of_the_split_is_one_sample(pairs):
    source, rows = source_of(pairs), rows_of(pairs)
    assert targets_of(source) == [target for row in rows for target in row["targets"]]
    keys = [pair_key(row["pair_id"]) for row in rows for _ in row["targets"]]
    examples = source.examples(np.arange(len(source)))
    assert [key.tobytes() for key in examples.sequence_ids] == keys
    some = np.array([7, 0, 7, 20])
    again = source.examples(some)
    for row, index in enumerate(some):
        size = examples.source_lengths[index]
        assert again.source_ids[row, :size].tolist() == examples.source_ids[index, :size].tolist()


def test_the_first_target_of_every_pair(pairs):
    assert targets_of(source_of(pairs, targets="first")) == [row["targets"][0] for row in rows_of(pairs)]


def test_sampled_targets_differ_between_epochs_and_seeds_and_nothing_else(pairs):
    source, rows = source_of(pairs, targets="sampled"), rows_of(pairs)
    assert len(source) == len(rows)
    epochs = [np.full(len(rows), epoch) for epoch in range(8)]
    drawn = [targets_of(source, epoch) for epoch in epochs]
    for place, row in enumerate(rows):
        seen = [draw[place] for draw in drawn]
        assert all(target in row["targets"] for target in seen)
        assert len(row["targets"]) == 1 or any(target != seen[0] for target in seen)
    assert targets_of(source) == drawn[0]
    assert targets_of(source_of(pairs, targets="sampled"), epochs[3]) == drawn[3]
    assert targets_of(source_of(pairs, seed=1, targets="sampled"), epochs[3]) != drawn[3]


def test_few_examples_are_drawn_by_seed_and_id(pairs):
    def ids_of(few):
        source = PairedSource.of(pairs, "train", load_task("text_to_text", None, {}), few=few)
        return source, [*dict.fromkeys(key.tobytes() for key in source.examples(np.arange(len(source))).sequence_ids)]

    every = [pair_key(row["pair_id"]) for row in rows_of(pairs)]
    source, drawn = ids_of(FewExamples(5, 1))
    assert len(drawn) == 5
    assert drawn == [key for key in every if key in drawn], "in stored order"
    assert set(ids_of(FewExamples(3, 1))[1]) < set(drawn), "a smaller number is a part of a larger one"
    assert set(ids_of(FewExamples(5, 2))[1]) != set(drawn)
    again = source.with_special(source.special)
    assert (len(again), again.fingerprint) == (len(source), source.fingerprint)
    prints = {ids_of(few)[0].fingerprint for few in (None, FewExamples(5, 1), FewExamples(5, 2), FewExamples(3, 1))}
    assert len(prints) == 4
    with pytest.raises(FarspanError, match=rf"examples is 99, but split 'train' has {len(every)} pairs with targets"):
        ids_of(FewExamples(99, 0))


def test_the_fingerprint_covers_split_options_seed_and_data(pairs, tmp_path):
    same_pairs = make_set(tmp_path, seed=1, documents_per_pair=2)
    sources = [
        source_of(pairs), source_of(pairs, "validation"), source_of(pairs, query="none"),
        source_of(pairs, targets="sampled"), source_of(pairs, seed=1, targets="sampled"), source_of(same_pairs),
    ]  # fmt: skip
    assert len({source.fingerprint for source in sources}) == len(sources)
    assert source_of(pairs).fingerprint == source_of(pairs, seed=1).fingerprint  # which draws nothing
    assert pickle.loads(pickle.dumps(source_of(pairs))).fingerprint == source_of(pairs).fingerprint


@pytest.mark.parametrize("targets", ["each", "first", "sampled"])
@pytest.mark.parametrize("query", ["none", "first", "decoder"])
def test_longest_and_cuts_are_those_of_the_rendered_samples(pairs, query, targets):
    source = source_of(pairs, query=query, targets=targets, source_length=100, target_length=12)
    epochs = range(12 if targets == "sampled" else 1)
    every = np.arange(len(source))
    made = [source.rendered(every, np.full(len(every), epoch)) for epoch in epochs]
    longest = source.longest()
    for side in ("source", "target"):
        lengths = np.max([getattr(rendered.examples, f"{side}_lengths") for rendered in made], axis=0)
        assert getattr(longest, side) == lengths.max()
        assert lengths[getattr(longest, f"{side}_row")] == lengths.max()
    cut, cuts = made[0].cut, source.cuts()
    assert (cuts.samples, cuts.query, cuts.documents) == (
        len(every), (cut.query > 0).sum().item(), (cut.documents > 0).sum().item()
    )  # fmt: skip
    assert 0 < cuts.lost == cut.documents.sum() < cuts.tokens
    assert cuts.target == np.count_nonzero(np.max([rendered.cut.target for rendered in made], axis=0))
    assert source.cuts(3).samples == 3


def test_cuts_are_told_in_words():
    cuts = Cuts(samples=1200, query=0, documents=30, target=2, tokens=1000, lost=124)
    assert str(cuts) == "of 1,200 samples, 30 sources (12.4 % of the document tokens), 2 targets are cut"


def test_a_mixture_gives_a_task_the_ids_of_all_special_tokens(pairs):
    separated = source_of(pairs, separator="<doc-sep>")
    plain = source_of(pairs, "validation", separator="</doc-s>")
    mixture = Mixture([Part("plain", plain), Part("separated", separated)])
    assert {"<doc-sep>", "</doc-s>"} <= mixture.special.ids.keys()
    rows = np.arange(len(plain), len(mixture))
    inserted = mixture.examples(rows).source_ids == mixture.special["<doc-sep>"]
    assert (inserted.sum(1) == 1).all()  # between two documents
    with pytest.raises(FarspanError, match=r"needs special tokens <doc-sep>, which the model does not know"):
        separated.with_special(plain.special)


def test_a_sample_is_named_by_its_pair_and_target(pairs):
    assert source_of(pairs).origin(2).endswith("row 1 (pair pair-1, target 1)")
    assert source_of(pairs, targets="sampled").origin(2).endswith("row 3 (pair pair-3)")


def test_a_split_that_is_unknown_or_has_no_targets_is_refused(pairs, tmp_path):
    with pytest.raises(FarspanError, match=r"no pair is in split 'dev'; its splits: train, validation"):
        source_of(pairs, "dev")
    blind = PairSet(make_pairs(str(tmp_path / "pairs"), pairs.documents.folder, splits=("train", "test")))
    splits, counts, document_rows = blind._overview
    blind.__dict__["_overview"] = splits, np.where(splits == "test", 0, counts), document_rows
    with pytest.raises(FarspanError, match=r"none of the 12 pairs in split 'test' has a target"):
        source_of(blind, "test")


@pytest.mark.parametrize("options", [{"targets": "first"}, {"targets": "sampled", "query": "decoder"}])
def test_questions_about_a_document_share_an_example(tmp_path, options):
    documents = make_documents(str(tmp_path / "documents"), shards=1, documents=1)
    pairs = PairSet(make_pairs(str(tmp_path / "pairs"), documents, max_targets=2, shards=3))
    source, rows = source_of(pairs, questions=3, source_length=512, **options), rows_of(pairs)
    assert len(source) == 6
    assert sum(source.shard_rows) == 6
    separator = source.special["<doc-sep>"]
    epochs = np.arange(6)
    rendered = source.examples(np.arange(6), epochs)
    for index in range(6):
        size = rendered.target_lengths[index]
        prompt = 0 if rendered.prompt_lengths is None else rendered.prompt_lengths[index]
        own = rows[3 * index : 3 * index + 3]
        answers = divide_answers(rendered.target_ids[index, prompt : size - 1], len(own), separator)
        assert all(answer.tolist() in row["targets"] for answer, row in zip(answers, own, strict=True))
        assert source.pair_of(index)[1] == list(pairs.values("pair_id", np.arange(24))).index(own[0]["pair_id"])
        assert own[0]["pair_id"] in source.origin(index)
    again, size = source.examples(np.array([4, 1]), epochs[[4, 1]]), rendered.target_lengths[1]
    assert again.target_ids[1, :size].tolist() == rendered.target_ids[1, :size].tolist()
    longest = source.longest()
    assert longest.source == rendered.source_lengths.max()
    assert longest.target >= rendered.target_lengths.max()
    if options["targets"] == "first":
        assert longest.target == rendered.target_lengths.max()


# Pairs packed into rows.
DATA = DataConfig(source_length=64, target_length=24, source_multiple=4)


@pytest.fixture(scope="module")
def many(tmp_path_factory) -> PairSet:
    return make_set(tmp_path_factory.mktemp("pairs"), pairs=60)


def short_source(pairs: PairSet, **options) -> PairedSource:
    return source_of(pairs, source_length=30, target_length=12, **options)


@pytest.mark.parametrize("options", [{}, {"query": "decoder", "query_length": 4}, {"global_attention": "bos"}])
def test_rows_hold_every_example_once_as_it_is_alone(many, options):
    source = short_source(many, **options)
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


def test_rows_are_a_function_of_lengths_and_nearly_full(many, monkeypatch):
    source = short_source(many)
    rows, again = PackedPairs(source, DATA), PackedPairs(source, DATA)
    assert (rows.members.values == again.members.values).all()
    assert (rows.members.offsets == again.members.offsets).all()
    shares, plain = rows.padding(8)
    lengths = source.lengths()
    assert shares == pytest.approx(1 - lengths.sum(1) / np.array([64, 24]) / len(rows))
    assert shares.min() < 0.1 < plain.min()  # one side is nearly full
    monkeypatch.setattr(packed, "_BUCKET", 8)
    assert len(PackedPairs(source, DATA)) > len(rows)


def test_targets_limit_rows_as_sources_do(many):
    source = short_source(many)
    assert len(PackedPairs(source, DATA)) < len(PackedPairs(source, DataConfig(source_length=64, target_length=12)))
    rows = PackedPairs(source, DataConfig(source_length=4096, target_length=13))
    assert rows.examples(np.arange(len(rows))).target_lengths.max() <= 13
    assert rows.most > 1


def test_sampled_targets_fit_in_every_epoch(many):
    rows = PackedPairs(short_source(many, targets="sampled"), DATA)
    every = [rows.examples(np.arange(len(rows)), np.full(len(rows), epoch)) for epoch in range(6)]
    assert max(examples.target_lengths.max() for examples in every) <= DATA.target_length
    assert len({examples.target_ids.tobytes() for examples in every}) > 1


def test_a_mixture_of_packed_sources(many):
    parts = [short_source(many), short_source(many, query="decoder", query_length=4, separator="<doc-sep>")]
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


def test_packing_needs_lengths_before_rendering(many):
    source = short_source(many)
    source.task = type("Silent", (), {"name": "silent", "samples": "each"})()
    with pytest.raises(FarspanError, match=r"packing needs lengths before rendering, which task silent does not say"):
        PackedPairs(source, DATA)
