"""Finding scorers: runs and folders, and what is refused before any work starts."""

from __future__ import annotations

import json
import os
import pickle
import shutil
from dataclasses import replace

import numpy as np
import pytest

from corpora.errors import FarspanError
from corpora.schemas.corpus import Corpus
from corpora.tokenizers.load import load_tokenizer
from objectives.api.protocol import CorpusFacts, Tools, equip, load_objective, mask_key
from objectives.api.special_tokens import MASK
from tests.artefacts import make_corpus
from tests.tiny_encoder import make_encoder
from tests.tiny_masked_lm import make_masked_lm
from tests.trainer.conversion.models import tiny_config, tiny_model
from tests.trainer.masked_folders import MaskedSource, encoder_recipe, masked_rows, plain_losses, scorer_of
from tests.trainer.toy import ToySource, toy_recipe
from trainer.checkpoint.run_files import read_sealed
from trainer.checkpoint.state import load_tensors
from trainer.conversion.model_folder import write_model_folder
from trainer.data.config import DataConfig, ObjectiveConfig
from trainer.model.masked_lm import MaskedLM
from trainer.model.positions import Learned
from trainer.run.train import train
from trainer.scorer.scorers import load_scorer


@pytest.fixture(scope="module")
def bert(tmp_path_factory):
    return make_masked_lm(str(tmp_path_factory.mktemp("models") / "bert"))


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


def test_the_fingerprint_follows_the_weights(bert, tmp_path):
    other = make_masked_lm(str(tmp_path), seed=1)
    assert scorer_of(bert).fingerprint != scorer_of(other).fingerprint


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
    chosen = equip(load_objective("model_based", "bart_ls"), Tools(tokenizer, scorer))
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


def test_an_encoder_decoder_run_is_refused(tmp_path):
    train(toy_recipe(tmp_path), source=ToySource(), until=1)
    with pytest.raises(
        FarspanError, match=r"trains an encoder-decoder without a generator; give a run of the encoder-only"
    ):
        scorer_of(tmp_path)


def test_a_run_without_mask_token_is_refused(tmp_path):
    train(encoder_recipe(tmp_path), source=ToySource(encoder_only=True))
    with pytest.raises(FarspanError, match="the run has no special token <mask>"):
        scorer_of(tmp_path)


def edited(folder, target, file, **changes):
    """A copy with other values in a JSON file; None removes a key."""
    copy = shutil.copytree(folder, target)
    path = os.path.join(copy, file)
    with open(path) as opened:
        values = json.load(opened) | changes
    with open(path, "w") as opened:
        json.dump({key: value for key, value in values.items() if value is not None}, opened)
    return copy


def test_what_is_no_scorer_is_refused_before_any_work(bert, tmp_path):
    with pytest.raises(FarspanError, match="no such folder; give a run of `farspan train`"):
        scorer_of(tmp_path / "nothing")
    with pytest.raises(FarspanError, match=r"the folder has no config\.json"):
        scorer_of(tmp_path)
    with pytest.raises(FarspanError, match="its weights have no head that predicts tokens; give one that was saved"):
        scorer_of(make_encoder(str(tmp_path / "headless"), positions=16))
    with pytest.raises(FarspanError, match="its tokenizer has no mask token"):
        scorer_of(edited(bert, tmp_path / "maskless", "tokenizer_config.json", mask_token=None))
    with pytest.raises(FarspanError, match=r"config\.json describes no masked language model"):
        scorer_of(edited(bert, tmp_path / "clip", "config.json", model_type="clip_text_model"))
    with pytest.raises(FarspanError, match=r"2 positions, all taken by its begin and end tokens; give .* at least 3"):
        scorer_of(edited(bert, tmp_path / "short", "config.json", max_position_embeddings=2))
    damaged = shutil.copytree(bert, tmp_path / "damaged")
    (damaged / "model.safetensors").write_bytes(b"\x08" + bytes(20))
    with pytest.raises(FarspanError, match=r"model.safetensors is damaged .* download it again"):
        scorer_of(damaged)
