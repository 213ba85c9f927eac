"""Tests of opening models and of predicting texts."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from corpora.errors import FarspanError
from corpora.schemas.pairs import PairSet
from corpora.storage.manifest import Manifest
from objectives.api.examples import Examples
from objectives.api.special_tokens import SpecialTokens
from objectives.tasks.protocol import NO_TARGET
from tests.artefacts import make_documents, make_pairs
from tests.fine_tuned import OPTIONS, make_artefacts
from tests.trainer.conversion.models import loaded, tiny_config, tiny_model, vocabulary
from tests.trainer.toy import toy_recipe
from trainer.conversion.hugging_face import write_hugging_face
from trainer.conversion.model_folder import write_model_folder
from trainer.conversion.vocabulary import Vocabulary
from trainer.data.config import DataConfig, SourceConfig, TaskConfig
from trainer.generation.config import GenerationConfig
from trainer.prediction.predictor import Predictor, make_batches
from trainer.prediction.setup import OpenedModel, check_prompts, choose_config, choose_task, make_predictor, open_model
from trainer.run_config import EvaluationConfig, ValidationConfig


def manifest_of(fingerprint, vocab_size=23):
    tokenizer = {"fingerprint": fingerprint, "vocab_size": vocab_size, "owned_tokens": {}}
    return Manifest("farspan.pairs", {}, 0, 64, tokenizer)


def opened_of(fingerprint=None, **ids):
    """A model of 24 rows; ``ids`` in place of its special tokens."""
    known = vocabulary("<mask>", fingerprint=fingerprint)
    if ids:
        known = replace(known, special=SpecialTokens(ids, 24))
    return OpenedModel(Path("folder"), tiny_model(known=known), None, {})


def test_pairs_of_another_tokenizer_are_refused():
    opened_of("a" * 64).check_pairs(manifest_of("a" * 64), "pairs")
    opened_of(None).check_pairs(manifest_of("b" * 64), "pairs")  # a folder without a tokenizer knows none
    with pytest.raises(FarspanError, match="pairs: was made with the tokenizer bbbbbbbbbbbb, the model folder with"):
        opened_of("a" * 64).check_pairs(manifest_of("b" * 64), "pairs")
    with pytest.raises(FarspanError, match="its tokenizer has 25 ids, the model folder 24 rows"):
        opened_of(None).check_pairs(manifest_of("b" * 64, 25), "pairs")


def test_tokens_that_only_a_task_knows_have_ids_beyond_the_model():
    needed = SpecialTokens({"<pad>": 1, "<doc-sep>": 23}, 24)
    found = opened_of().special_for(needed, manifest_of("a" * 64))
    assert {name: found.ids[name] for name in ("<pad>", "<eos>", "<mask>")} == {"<pad>": 1, "<eos>": 2, "<mask>": 23}
    assert found.ids["<doc-sep>"] == 24


def test_a_model_without_decoder_or_end_generates_nothing(tmp_path):
    write_model_folder(tiny_model(tiny_config(decoder=False)), tmp_path / "encoder")
    with pytest.raises(FarspanError, match="has no decoder, so it generates no text; give an encoder-decoder"):
        open_model(tmp_path / "encoder")
    with pytest.raises(FarspanError, match="folder: the model has no special token <eos>; give another model"):
        opened_of(**{"<pad>": 1}).special_for(SpecialTokens({}, 24), manifest_of("a" * 64))


def test_the_model_is_built_for_evaluation_with_its_weights_in_the_type_that_is_asked_for():
    opened = opened_of()
    model = opened.build(torch.device("cpu"), torch.bfloat16)
    assert not model.training
    assert not any(parameter.requires_grad for parameter in model.parameters())
    expected = {name: opened.model.state[name].bfloat16() for name in model.state_dict()}
    torch.testing.assert_close(dict(model.state_dict()), expected, rtol=0, atol=0)
    assert opened.decoder_positions == 16


def test_an_entry_names_the_weights_by_their_hash(tmp_path):
    model = tiny_model()
    for name, seed in (("one", 0), ("same", 0), ("other", 1)):
        write_model_folder(tiny_model(seed=seed), tmp_path / name)
    write_hugging_face(model, tmp_path / "theirs")
    found = {name: open_model(tmp_path / name).entry for name in ("one", "same", "other", "theirs")}
    assert found["one"]["sha256"] == found["same"]["sha256"] != found["other"]["sha256"]
    assert found["theirs"]["folder"] == "theirs"
    assert {entry["vocab_size"] for entry in found.values()} == {model.vocabulary.size}
    assert {entry["checkpoint"] for entry in found.values()} == {None}


FIRST, SECOND = TaskConfig(options={"query": "first"}), TaskConfig(options={"query": "none"})


def opened_with(*tasks, generation=None, target_length=12):
    """A model whose run was trained on the given tasks, or a folder."""
    recipe = None
    if tasks:
        sources = tuple(SourceConfig(name=str(n), pairs="pairs", task=task) for n, task in enumerate(tasks))
        recipe = toy_recipe("run")
        data = DataConfig(mixture=sources, source_length=24, target_length=target_length, source_multiple=8)
        recipe = replace(recipe, data=data, evaluation=EvaluationConfig(generation=generation))
    return OpenedModel(Path("run"), tiny_model(), recipe, {})


def test_the_task_is_that_of_the_run_unless_another_is_named():
    assert choose_task(opened_with(FIRST, FIRST), None, None, {}) == FIRST
    changed = choose_task(opened_with(FIRST), None, None, {"source_length": 64})
    assert changed.options == {"query": "first", "source_length": 64}
    assert choose_task(opened_with(FIRST), "led", None, {}) == TaskConfig(name="led")
    assert choose_task(opened_with(FIRST), None, "led", {}) == TaskConfig(name="led")
    assert choose_task(opened_with(), "text_to_text", "led", {"end": False}).preset == "led"


@pytest.mark.parametrize(("tasks", "message"), [((), "names no task"), ((FIRST, SECOND), "trained on several tasks")])
def test_a_task_has_to_be_known(tasks, message):
    with pytest.raises(FarspanError, match=message):
        choose_task(opened_with(*tasks), None, None, {})


def test_options_come_from_flags_before_the_recipe_before_the_lengths():
    section = ValidationConfig(metrics="f1", beams=3, max_tokens=7, limit=5)
    assert choose_config(opened_with(FIRST, generation=section), {}) == GenerationConfig(beams=3, max_tokens=7)
    flags = {"max_tokens": 9, "length_penalty": 2.0}
    found = choose_config(opened_with(FIRST, generation=section), flags)
    assert found == GenerationConfig(beams=3, max_tokens=9, length_penalty=2.0)
    assert choose_config(opened_with(FIRST), {}).max_tokens == 11  # targets of 12 positions, their end included
    assert choose_config(opened_with(), {}).max_tokens == 15  # a decoder of 16 positions, the start included


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
    opened = OpenedModel(Path("model"), model, None, {})
    task = TaskConfig(options={**OPTIONS, **options})
    return make_predictor(opened, pairs, task, GenerationConfig(beams=2, max_tokens=6), batch_positions)


def test_every_pair_gets_its_own_text_in_any_order_and_batches(pairs, model):
    predictor, made = predictor_of(pairs, model), loaded(model)
    whole, done = predictor(made, pairs.take(range(12))), []
    assert predictor(made, pairs.take(range(11, -1, -1))).texts == whole.texts[::-1]
    few = replace(predictor, batch_positions=1)(made, pairs.take(range(12)), done.append)
    assert few.texts == whole.texts
    np.testing.assert_allclose(few.scores, whole.scores, atol=1e-4)
    assert done == sorted(done)
    assert len(done) > 1
    assert done[-1] == 12
    assert len(set(whole.texts)) > 3


@pytest.mark.parametrize("missing", [0, 1])
def test_a_text_for_several_questions_is_divided_into_their_answers(tmp_path, model, monkeypatch, missing):
    documents = make_documents(str(tmp_path / "documents"), shards=1, documents=1)
    pairs = PairSet(make_pairs(str(tmp_path / "pairs"), documents, 8))
    predictor = predictor_of(pairs, model, questions=3, targets="first", query="decoder")
    separator, words, done = predictor.special["<doc-sep>"], [[10, 11], [], [12]], []

    def say(model, sources, config, ids):
        assert {len(prompt[prompt == separator]) for prompt in sources.prompts} <= {1, 2}
        tokens = [np.array([10, 11, separator, separator, 12, separator, 13][: 7 - 3 * missing])] * len(sources)
        return SimpleNamespace(tokens=tokens, scores=np.arange(len(sources), dtype=np.float32))

    monkeypatch.setattr("trainer.prediction.predictor.generate", say)
    found = predictor(loaded(model), pairs.take(range(8)), done.append)
    expected = [[*words[:2], []] if missing else words] * 2 + [words[:2]]
    assert [tokens.tolist() for tokens in found.tokens] == [answer for three in expected for answer in three][:8]
    assert found.texts == [predictor.tokenizer.decode(tokens) for tokens in found.tokens]
    assert [len(set(found.scores[at : at + 3])) for at in (0, 3, 6)] == [1, 1, 1]
    assert done[-1] == 8
    assert predictor.group(pairs, np.arange(8)).tolist() == [0, 3, 6, 8]


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
    # a source is encoded again in a new batch only
    assert sum(len(batch.sources) for batch in found) <= 12 + len(found)
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
