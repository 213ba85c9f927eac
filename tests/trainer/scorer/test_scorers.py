"""Tests of scorers and generators, and of how they are found."""

import json
import os
import pickle
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from corpora.errors import FarspanError
from corpora.schemas.corpus import Corpus
from corpora.tokenizers.load import load_tokenizer
from objectives.api.examples import IGNORED
from objectives.api.protocol import CorpusFacts, Tools, equip, load_objective, mask_key
from objectives.api.special_tokens import MASK
from tests.artefacts import make_corpus, small_tokenizer
from tests.tiny_encoder import library_model, make_encoder, make_masked_lm
from tests.trainer.conversion.models import tiny_config, tiny_model
from tests.trainer.joint_parts import LENGTH, SEED
from tests.trainer.masked_folders import MaskedSource, encoder_recipe, masked_rows, plain_losses, scorer_of
from tests.trainer.toy import ToySource, toy_recipe
from trainer.checkpoint.run_files import read_sealed
from trainer.checkpoint.state import load_tensors
from trainer.conversion.model_folder import write_model_folder
from trainer.data.config import DataConfig, ObjectiveConfig
from trainer.model.build import build_model
from trainer.model.config import GeneratorConfig
from trainer.model.masked_lm import MaskedLM
from trainer.model.positions import Learned
from trainer.run.train import train
from trainer.scorer.encoder import find_encoder
from trainer.scorer.inference import batch_by_length, choose_device
from trainer.scorer.models import FoundModel, describe_positions, load_masked_lm, open_generator
from trainer.scorer.scorers import load_scorer

ARCHITECTURES = ("Bert", "Roberta", "DistilBert", "Electra", "ModernBert", "Longformer")

POSITIONS = 16
LENGTHS = [0, 1, 5, 100, POSITIONS - 2, POSITIONS - 1, 2 * (POSITIONS - 2), 37]


@pytest.fixture(scope="module")
def bert(tmp_path_factory):
    return make_masked_lm(str(tmp_path_factory.mktemp("models") / "bert"))


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_losses_are_those_of_the_model_itself(tmp_path, architecture):
    folder = make_masked_lm(str(tmp_path), architecture)
    scorer = scorer_of(folder)
    assert scorer.room == POSITIONS - 2
    assert "model" not in vars(scorer)  # a plan needs no weights
    tokenizer = load_tokenizer(folder)
    assert scorer.tokenizer_fingerprint == tokenizer.fingerprint
    rows = masked_rows(scorer.special, LENGTHS, tokenizer.vocab_size)
    losses = scorer.losses(*rows)
    model = library_model(architecture, folder)
    expected = plain_losses(lambda ids: model(input_ids=ids).logits, scorer.special, scorer.room, *rows)
    assert losses.dtype == np.float32
    assert (losses[rows[2] == IGNORED] == 0).all()
    np.testing.assert_allclose(losses, expected, rtol=1e-4, atol=1e-4)
    assert losses[rows[2] != IGNORED].std() > 0.1


def test_a_row_does_not_depend_on_the_rows_beside_it(bert):
    scorer = scorer_of(bert)
    ids, lengths, labels = masked_rows(scorer.special, LENGTHS, 80)
    together = scorer.losses(ids, lengths, labels)
    for row in range(len(ids)):
        alone = scorer.losses(ids[row : row + 1], lengths[row : row + 1], labels[row : row + 1])
        np.testing.assert_allclose(alone[0], together[row], rtol=1e-5, atol=1e-5)
    order = np.random.default_rng(1).permutation(len(ids))
    shuffled = scorer.losses(ids[order], lengths[order], labels[order])
    np.testing.assert_allclose(shuffled, together[order], rtol=1e-5, atol=1e-5)
    assert np.array_equal(scorer.losses(ids, lengths, labels), together)


def test_many_batches_are_one(bert, monkeypatch):
    scorer = scorer_of(bert)
    rows = masked_rows(scorer.special, LENGTHS, 80)
    expected = scorer.losses(*rows)
    monkeypatch.setattr("trainer.scorer.scorers.BATCH_TOKENS", {"cpu": 20})
    monkeypatch.setattr("trainer.scorer.scorers._CHUNK", {"cpu": 3})
    np.testing.assert_allclose(scorer.losses(*rows), expected, rtol=1e-5, atol=1e-5)


def test_nothing_asked_is_nothing_run(bert):
    scorer = scorer_of(bert)
    ids, lengths, labels = masked_rows(scorer.special, [0, 40], 80, share=0)
    assert not scorer.losses(ids, lengths, labels).any()
    assert scorer.losses(ids[:0, :0], lengths[:0], labels[:0, :0]).shape == (0, 0)
    assert "model" not in vars(scorer)


def test_bfloat16_agrees_and_is_recorded(bert):
    exact, rounded = scorer_of(bert), scorer_of(bert, precision="bfloat16")
    rows = masked_rows(exact.special, LENGTHS, 80)
    asked = rows[2] != IGNORED
    expected = exact.losses(*rows)[asked]
    assert np.abs(rounded.losses(*rows)[asked] - expected).mean() < 0.02 * expected.mean()
    assert rounded.fingerprint == f"{exact.fingerprint}-bfloat16"


def test_threads_are_pinned_and_given_back(bert):
    before = torch.get_num_threads()
    scorer = scorer_of(bert, threads=1)
    seen = []
    encode = scorer.model.encode
    scorer.model.encode = lambda *inputs: (seen.append(torch.get_num_threads()), encode(*inputs))[1]
    scorer.losses(*masked_rows(scorer.special, [20], 80))
    assert set(seen) == {1}
    assert torch.get_num_threads() == before


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"device": "tpu"}, "device is 'tpu'; give auto, cpu or cuda"),
        ({"precision": "int8"}, "precision is 'int8'; give auto, float32 or bfloat16"),
        ({"threads": 0}, "threads is 0; give a positive number, or None"),
    ],
)
def test_options_are_checked(bert, options, message):
    with pytest.raises(FarspanError, match=message):
        scorer_of(bert, **options)


@pytest.mark.skipif(torch.cuda.is_available(), reason="asks for a device that is there")
def test_a_device_that_is_not_there_is_refused(bert):
    with pytest.raises(FarspanError, match="finds no CUDA device"):
        scorer_of(bert, device="cuda")


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_on_cuda_losses_agree(bert):
    exact = scorer_of(bert)
    rows = masked_rows(exact.special, LENGTHS, 80)
    expected = exact.losses(*rows)
    found = scorer_of(bert, device="cuda", precision="float32").losses(*rows)
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-3)
    assert scorer_of(bert, device="auto").fingerprint == f"{exact.fingerprint}-bfloat16"


def test_a_generator_is_drawn_unlike_its_model(corpus):
    config = replace(toy_recipe("unused").model, decoder=None)
    generator = open_generator(GeneratorConfig(model=config), Corpus(corpus), SEED)
    assert MASK in generator.special.ids
    assert generator.positions == config.encoder.positions.limit
    other = build_model(config, generator.special.vocab_size, SEED)
    assert not torch.equal(generator.model.tokens.weight, other.tokens.weight)
    again = open_generator(GeneratorConfig(model=config), Corpus(corpus), SEED)
    assert torch.equal(generator.model.tokens.weight, again.model.tokens.weight)


def test_a_generator_of_another_tokenizer_is_refused(corpus, generator, monkeypatch):
    found = FoundModel("run", "f", "another tokenizer", generator.special, LENGTH, lambda: generator.model)
    monkeypatch.setattr("trainer.scorer.models.find_model", lambda path: found)
    with pytest.raises(FarspanError, match=r"generator.initial run has the tokenizer with fingerprint another"):
        open_generator(GeneratorConfig(initial="run"), Corpus(corpus), SEED)
    same = replace(found, tokenizer_fingerprint=small_tokenizer().fingerprint)
    monkeypatch.setattr("trainer.scorer.models.find_model", lambda path: same)
    opened = open_generator(GeneratorConfig(initial="run"), Corpus(corpus), SEED)
    assert (opened.model, opened.positions, opened.identity) == (generator.model, LENGTH, "f")


@given(st.lists(st.integers(0, 50), max_size=40), st.integers(1, 200))
def test_batches_hold_every_row_once_within_the_budget(lengths, tokens):
    lengths = np.array(lengths, np.int64)
    found = list(batch_by_length(lengths, tokens))
    assert sorted(row for rows in found for row in rows.tolist()) == np.flatnonzero(lengths).tolist()
    assert all(len(rows) == 1 or len(rows) * lengths[rows].max() <= tokens for rows in found)
    assert (np.diff(lengths[np.concatenate([np.empty(0, np.int64), *found])]) <= 0).all()


def test_a_rank_asks_its_own_device(monkeypatch):
    """Also in a process that it started to load data."""
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 8)
    monkeypatch.setattr("os.getpid", lambda: 21)
    for name in ("LOCAL_RANK", "FARSPAN_WORKER", "SLURM_LOCALID"):
        monkeypatch.delenv(name, raising=False)
    assert choose_device("cuda") == torch.device("cuda", 5)
    used = []
    for worker in range(16):  # two workers for each of eight devices: none is idle
        monkeypatch.setenv("FARSPAN_WORKER", str(worker))
        used.append(choose_device("cuda").index)
    assert sorted(used) == sorted([*range(8), *range(8)])
    monkeypatch.setenv("LOCAL_RANK", "3")
    assert choose_device("cuda") == torch.device("cuda", 3)
    assert choose_device("cpu") == torch.device("cpu")


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_backbone_and_head_together_are_the_model(tmp_path, architecture):
    """The head is given the states of some positions only, in any order."""
    folder = make_masked_lm(str(tmp_path), architecture)
    files = find_encoder(folder)
    theirs, ours = library_model(architecture, folder), load_masked_lm(files)
    ids = torch.randint(5, 60, (2, 12), generator=torch.Generator().manual_seed(0))
    mask = torch.arange(12) < torch.tensor([[12], [7]])
    with torch.inference_mode():
        expected = theirs(input_ids=ids, attention_mask=mask.long()).logits
        states = ours.encode(ids.int(), mask)
        found = ours.logits(states[mask].flip(0)).flip(0)
    torch.testing.assert_close(found, expected[mask], atol=1e-4, rtol=1e-4)
    assert describe_positions(files) == 16


def test_a_model_that_predicts_positions_together_is_refused(bert, monkeypatch):
    """The head is applied to the asked positions alone; that has to be the same."""
    from transformers.models.bert.modeling_bert import BertOnlyMLMHead

    forward = BertOnlyMLMHead.forward
    monkeypatch.setattr(BertOnlyMLMHead, "forward", lambda self, x: forward(self, x + x.mean(1, keepdim=True)))
    scorer = scorer_of(bert)
    with pytest.raises(FarspanError, match="BertForMaskedLM predicts more than one position at a time"):
        scorer.losses(*masked_rows(scorer.special, [20], 80))


def test_a_scorer_is_loaded_once_a_process_and_travels_by_its_path(bert):
    scorer = scorer_of(bert, threads=1)
    assert load_scorer(bert, device="cpu", threads=1) is scorer
    rows = masked_rows(scorer.special, [20], 80)
    losses = scorer.losses(*rows)
    data = pickle.dumps(scorer)
    assert len(data) < 1000
    load_scorer.cache_clear()
    again = pickle.loads(data)
    assert again is not scorer
    assert again.fingerprint == scorer.fingerprint
    assert np.array_equal(again.losses(*rows), losses)


def test_a_converted_model_is_refused_by_what_it_does_not_say(tmp_path):
    write_model_folder(tiny_model(tiny_config(decoder=False)), tmp_path / "model")
    with pytest.raises(FarspanError, match=r"does not record the tokens around texts.*give its source"):
        scorer_of(str(tmp_path / "model"))


@pytest.mark.parametrize("framed", [True, False])
@pytest.mark.parametrize("inside", ["", "checkpoints", "checkpoints/step-00000002"])
def test_a_trained_encoder_scores(tmp_path, framed, inside):
    recipe = encoder_recipe(tmp_path)
    train(recipe, source=MaskedSource(framed))
    scorer = scorer_of(tmp_path / inside)
    assert scorer.tokenizer_fingerprint == "toy tokenizer"
    assert ("<bos>" in scorer.special.ids, "<eos>" in scorer.special.ids) == (framed, framed)
    assert scorer.room == (22 if framed else 24)
    rows = masked_rows(scorer.special, [0, 1, 22, 24, 25, 70], 24)
    model = MaskedLM(recipe.model, 25)
    model.load_state_dict(load_tensors(tmp_path / "checkpoints/step-00000002/model"))
    model.eval()
    expected = plain_losses(lambda ids: model.logits(model.encode(ids)), scorer.special, scorer.room, *rows)
    np.testing.assert_allclose(scorer.losses(*rows), expected, rtol=1e-4, atol=1e-4)


def test_a_run_on_a_corpus_scores_the_spans_of_that_corpus(tmp_path):
    """cross_document trains the encoder; model_based asks it, on the fly and with masks chosen from its losses."""
    corpus = make_corpus(str(tmp_path / "corpus"), room_per_document=2)
    objective = ObjectiveConfig(name="cross_document", options={"treatments": [1, 0, 0]})
    data = DataConfig(corpus=corpus, objective=objective, source_length=128)
    recipe = encoder_recipe(tmp_path / "run", batch_size=2)
    positions = replace(recipe.model.encoder, positions=Learned(128))
    train(replace(recipe, data=data, model=replace(recipe.model, encoder=positions)))
    scorer = scorer_of(tmp_path / "run")
    opened = Corpus(corpus)
    tokenizer = load_tokenizer(os.path.join(corpus, "tokenizer"))
    chosen: Any = equip(load_objective("model_based", "bart_ls"), Tools(tokenizer, scorer))
    assert {"<doc-s>", "</doc-s>", "<bos>", "<eos>"} <= scorer.special.ids.keys()
    batch = opened.take(np.arange(6))
    special = chosen.validate(CorpusFacts.of(opened.manifest))
    masks = chosen.mask(batch, mask_key(0, chosen))
    assert masks.span_scores is not None
    assert masks.span_scores.values.std() > 0
    text = chosen.reconstruct(chosen.render(batch, masks, special), masks, special)
    assert all(np.array_equal(text[row], batch.tokens[row]) for row in range(6))


def test_a_continued_run_keeps_its_identity(tmp_path):
    """The record that a checkpoint keeps for scorers has no effect on whether the run can continue."""
    train(encoder_recipe(tmp_path), source=MaskedSource(), until=1)
    manifest = read_sealed(tmp_path / "checkpoints/step-00000001/checkpoint.json")
    assert manifest["vocabulary"]["special_tokens"][MASK] == 24
    assert "vocabulary" not in manifest["identity"]
    assert train(encoder_recipe(tmp_path), source=MaskedSource()).finished
    assert scorer_of(tmp_path).room == 22


def test_the_newest_readable_checkpoint_is_taken_and_damaged_weights_are_refused(tmp_path):
    train(encoder_recipe(tmp_path, checkpoint_every=1), source=MaskedSource())
    first, second = (tmp_path / f"checkpoints/step-0000000{step}" for step in (1, 2))
    newest = scorer_of(tmp_path).fingerprint
    assert newest == scorer_of(second).fingerprint
    (second / "checkpoint.json").write_text("{")
    assert scorer_of(tmp_path).fingerprint == scorer_of(first).fingerprint != newest
    (weights,) = (first / "model").iterdir()
    weights.write_bytes(weights.read_bytes()[:-1])
    scorer = scorer_of(tmp_path)
    with pytest.raises(FarspanError, match=r"step-00000001 is damaged \(shard-.* has"):
        scorer.losses(*masked_rows(scorer.special, [9], 24))


@pytest.mark.parametrize(
    ("recipe", "source", "message"),
    [
        (toy_recipe, ToySource(), "trains an encoder-decoder without a generator; give a run of the encoder-only"),
        (encoder_recipe, ToySource(encoder_only=True), "the run has no special token <mask>"),
    ],
)
def test_a_run_that_cannot_score_is_refused(tmp_path, recipe, source, message):
    train(recipe(tmp_path), source=source, until=1)
    with pytest.raises(FarspanError, match=message):
        scorer_of(tmp_path)


@pytest.mark.parametrize(
    ("file", "changes", "message"),
    [
        ("tokenizer_config.json", {"mask_token": None}, "its tokenizer has no mask token"),
        ("config.json", {"model_type": "clip_text_model"}, r"config\.json describes no masked language model"),
        ("config.json", {"max_position_embeddings": 2}, r"2 positions, all taken by its begin and .* at least 3"),
    ],
)
def test_a_model_that_cannot_score_is_refused_before_any_work(bert, tmp_path, file, changes, message):
    """None removes a key."""
    path = Path(shutil.copytree(bert, tmp_path / "copy")) / file
    values = json.loads(path.read_text()) | changes
    path.write_text(json.dumps({key: value for key, value in values.items() if value is not None}))
    with pytest.raises(FarspanError, match=message):
        scorer_of(tmp_path / "copy")


def test_what_is_no_scorer_is_refused_before_any_work(bert, tmp_path):
    with pytest.raises(FarspanError, match="no such folder; give a run of `farspan train`"):
        scorer_of(tmp_path / "nothing")
    with pytest.raises(FarspanError, match=r"the folder has no config\.json"):
        scorer_of(tmp_path)
    with pytest.raises(FarspanError, match="its weights have no head that predicts tokens; give one that was saved"):
        scorer_of(make_encoder(str(tmp_path / "headless"), positions=16))
    damaged = shutil.copytree(bert, tmp_path / "damaged")
    (damaged / "model.safetensors").write_bytes(b"\x08" + bytes(20))
    with pytest.raises(FarspanError, match=r"model.safetensors is damaged .* download it again"):
        scorer_of(damaged)
