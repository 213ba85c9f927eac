"""Texts of pairs: ids without special tokens, pairs in their order, and what cannot be generated for."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from corpora.errors import FarspanError
from corpora.schemas.pairs import PairSet
from objectives.api.examples import Examples
from objectives.api.special_tokens import SpecialTokens
from objectives.tasks.protocol import NO_TARGET
from tests.fine_tuned import OPTIONS, make_artefacts
from tests.trainer.conversion.models import loaded, tiny_config, tiny_model
from trainer.conversion.vocabulary import Vocabulary
from trainer.data.config import TaskConfig
from trainer.generation.config import GenerationConfig
from trainer.prediction.opened import OpenedModel
from trainer.prediction.predictor import Predictor, make_batches
from trainer.prediction.setup import check_prompts, make_predictor


@pytest.fixture(scope="module")
def pairs(tmp_path_factory) -> PairSet:
    return PairSet(make_artefacts(tmp_path_factory.mktemp("predictor"), 12))


@pytest.fixture(scope="module")
def model(pairs):
    """A model with random weights that knows the tokenizer of the pairs."""
    entry = pairs.manifest.tokenizer
    special = SpecialTokens.append(entry["vocab_size"], entry["owned_tokens"], ["<doc-sep>"])
    return tiny_model(tiny_config(positions=64), Vocabulary.of(special, entry["fingerprint"]))


def predictor_of(pairs, model, batch_positions=1 << 16, **options) -> Predictor:
    opened = OpenedModel("model", model, None, {})
    task = TaskConfig(options={**OPTIONS, **options})
    return make_predictor(opened, pairs, task, GenerationConfig(beams=2, max_tokens=6), batch_positions)


def test_every_pair_gets_its_own_text_in_any_order_and_batches(pairs, model):
    predictor, made = predictor_of(pairs, model), loaded(model)
    whole, done = predictor(made, pairs.take(range(12))), []
    reversed_ = predictor(made, pairs.take(range(11, -1, -1)))
    assert reversed_.texts == whole.texts[::-1]
    few = replace(predictor, batch_positions=1)(made, pairs.take(range(12)), done.append)
    assert few.texts == whole.texts
    np.testing.assert_allclose(few.scores, whole.scores, atol=1e-4)
    assert done == sorted(done)
    assert len(done) > 1
    assert done[-1] == 12
    assert len(set(whole.texts)) > 3


def test_texts_have_no_special_tokens(pairs, model):
    predictor = predictor_of(pairs, model)
    words = np.flatnonzero(~np.isin(np.arange(predictor.tokenizer.vocab_size), list(predictor.special.ids.values())))
    plain = words[:6].astype(np.int32)
    expected = predictor.tokenizer.decode(plain)
    beyond = predictor.tokenizer.vocab_size + np.arange(3, dtype=np.int32)
    assert predictor.text(plain) == expected
    assert predictor.text(np.concatenate([[predictor.special["<bos>"]], plain[:3], beyond, plain[3:]])) == expected
    assert predictor.text(np.empty(0, np.int32)) == ""


def test_texts_lose_the_space_that_targets_start_with(pairs, model):
    predictor, spaced = predictor_of(pairs, model), predictor_of(pairs, model, target_space=True)
    tokens = predictor.tokenizer.encode(["  dogs"]).values
    assert (predictor.text(tokens), spaced.text(tokens)) == ("  dogs", " dogs")


def test_pairs_that_the_model_cannot_read_are_named(pairs, model):
    predictor, batch = predictor_of(pairs, model), pairs.take(range(12))
    with pytest.raises(FarspanError, match=r"pair 'pair-\d+': its source has \d+ positions, the encoder 9; let the ta"):
        replace(predictor, source_limit=9)(loaded(model), batch)
    with pytest.raises(FarspanError, match=r"pair 'pair-0': task text_to_text inserts .*, which the model"):
        replace(predictor, vocab_size=2)(loaded(model), batch)


def test_prompts_without_room_are_refused_before_any_text(pairs, model):
    predictor, rows = predictor_of(pairs, model, query="decoder"), np.arange(12)
    batch = pairs.take(rows)
    examples = predictor.task.render(batch, np.full(12, NO_TARGET, np.int64), predictor.special).examples
    longest = int(examples.prompt_lengths.max())
    check_prompts(predictor, pairs, rows, None)
    check_prompts(predictor, pairs, rows[:0], 1)
    check_prompts(predictor, pairs, rows, 1 + longest + 6)
    name = batch.pair_ids[int(examples.prompt_lengths.argmax())]
    for room, cure in ((5, "set max_tokens to at most 5"), (0, r"cut queries \(query_length\)")):
        with pytest.raises(FarspanError, match=rf"is 6, but .* one for .* {longest} for .* {name!r}; {cure}"):
            check_prompts(predictor, pairs, rows, 1 + longest + room)
    with pytest.raises(FarspanError, match="longest prompt"):
        replace(predictor, config=GenerationConfig(max_tokens=64 - longest))(loaded(model), batch)
    check_prompts(predictor_of(pairs, model), pairs, rows, 1 + 6)  # no prompts


SPECIAL = SpecialTokens({"<pad>": 0, "<eos>": 1}, 9)


def batches_of(lengths, shared, decoder, most):
    return list(make_batches(np.array(lengths), np.array(shared), np.array(decoder), most))


@pytest.mark.parametrize("seed", range(20))
def test_every_pair_is_in_one_batch_that_fits_or_has_one_pair(seed):
    draw = np.random.default_rng(seed)
    shared = draw.integers(0, 12, 40)
    lengths = draw.integers(1, 100, 12)[shared]
    decoder = draw.integers(1, 60, 40)
    most = int(draw.integers(50, 600))
    found = batches_of(lengths, shared, decoder, most)
    assert sorted(np.concatenate([batch.pairs for batch in found])) == list(range(40))
    assert sum(len(batch.sources) for batch in found) <= 12 + len(
        found
    )  # a source is encoded again in a new batch only
    for batch in found:
        assert (shared[batch.sources[batch.rows]] == shared[batch.pairs]).all()
        assert len(set(shared[batch.sources])) == len(batch.sources)
        positions = len(batch.sources) * lengths[batch.sources].max() + decoder[batch.pairs].sum()
        assert positions <= most or len(batch.pairs) == 1
    longest = [lengths[batch.sources].max() for batch in found]
    assert longest == sorted(longest, reverse=True)


def test_questions_about_one_document_are_one_encoder_row():
    (batch,) = batches_of([30, 50, 30, 30], [0, 1, 0, 0], [4, 4, 4, 4], 1000)
    assert batch.sources.tolist() == [1, 0]
    assert batch.pairs.tolist() == [1, 0, 2, 3]
    assert batch.rows.tolist() == [0, 1, 1, 1]


def test_inputs_are_the_rows_of_the_examples():
    ids = np.array([[5, 6, 1, 0], [7, 1, 0, 0], [8, 8, 8, 1]], np.int32)
    lengths = np.array([3, 2, 4], np.int32)
    examples = Examples(
        sequence_ids=np.arange(48, dtype=np.uint8).reshape(3, 16),
        source_ids=ids,
        source_lengths=lengths,
        target_ids=np.array([[4, 0], [0, 0], [4, 5]], np.int32),
        target_lengths=np.array([1, 0, 2], np.int32),
        global_positions=ids == 5,
        prompt_lengths=np.array([1, 0, 2], np.int32),
    )
    (batch,) = batches_of(lengths[:2], [0, 1], [1, 1], 100)
    sources = batch.inputs(examples, SPECIAL, multiple=2)
    assert sources.source_ids.tolist() == [[5, 6, 1], [7, 1, 0]]
    assert sources.source_padding_mask.tolist() == [[True, True, True], [True, True, False]]
    assert sources.global_positions.tolist() == [[True, False, False], [False, False, False]]
    assert [row.tolist() for row in map(sources.prompts.__getitem__, range(2))] == [[4], []]
    assert sources.seeds.tolist() == [int.from_bytes(bytes(range(first, first + 8)), "little") for first in (0, 16)]
    assert sources.multiple == 2
    (full,) = batches_of([4], [0], [1], 100)
    assert full.inputs(examples.take(np.array([2])), SPECIAL).source_padding_mask is None
