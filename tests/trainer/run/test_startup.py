"""Checks of a run's data before its first update."""

from __future__ import annotations

import shutil
from dataclasses import replace
from io import StringIO
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from corpora.errors import FarspanError
from corpora.schemas.corpus import Corpus
from objectives.api.special_tokens import SpecialTokens, is_sentinel
from tests.artefacts import make_corpus
from tests.trainer.distributed_ranks import on_ranks
from tests.trainer.toy import ToySource, toy_recipe
from trainer.data.config import DataConfig, ObjectiveConfig, SourceConfig
from trainer.data.curriculum import StageConfig
from trainer.data.mixture import Mixture, Part
from trainer.data.prefetch import LoadingConfig
from trainer.model.positions import Learned
from trainer.parallel.distributed import World
from trainer.recipe import Recipe
from trainer.run.startup import check_shards, consequences
from trainer.run.train import train
from trainer.run.units.choose import open_unit
from trainer.run.units.seq2seq import Seq2SeqUnit
from trainer.run_config import EvaluationConfig


@pytest.fixture(scope="module")
def corpus(tmp_path_factory) -> Path:
    return Path(make_corpus(str(tmp_path_factory.mktemp("opening") / "corpus"), documents=30, room_per_document=2))


def recipe_on(directory: Path, corpus: Path, held_out: Path, verify: str):
    recipe = toy_recipe(directory, steps=5)
    return replace(
        recipe,
        model=replace(
            recipe.model,
            encoder=replace(recipe.model.encoder, positions=Learned(192)),
            decoder=replace(recipe.model.decoder, positions=Learned(128)),
        ),
        data=DataConfig(
            corpus=str(corpus), objective=ObjectiveConfig(name="span"), source_length=192, target_length=128
        ),
        evaluation=EvaluationConfig(corpus=str(held_out)),
        loading=LoadingConfig(verify=verify),
    )


def damaged_copy(corpus: Path, folder: Path) -> Path:
    """With another token in the first row: it can be read and trained on, but is not what was written."""
    shutil.copytree(corpus, folder)
    opened = Corpus(str(corpus))
    shard = Path(str(folder), "shards", opened.manifest.shards[0].name)
    data = bytearray(shard.read_bytes())
    tokens = opened.take(np.arange(1)).tokens.values[:12].astype(np.uint16).tobytes()
    assert data.count(tokens) == 1
    data[data.index(tokens)] ^= 1
    shard.write_bytes(data)
    return folder


@pytest.mark.parametrize("held_out", [False, True])
@pytest.mark.parametrize("verify", ["start", "lazily"])
def test_a_shard_that_is_not_what_was_written_ends_the_run_before_it_begins(tmp_path, corpus, verify, held_out):
    damaged = damaged_copy(corpus, tmp_path / "damaged")
    recipe = recipe_on(tmp_path / "run", *((corpus, damaged) if held_out else (damaged, corpus)), verify)
    with pytest.raises(FarspanError, match=rf"{damaged}/shards/\S+: .*sha256"):
        train(recipe, console=Console(file=StringIO()))
    assert not (tmp_path / "run").exists()


def test_who_asks_for_no_check_gets_none(tmp_path, corpus):
    damaged = damaged_copy(corpus, tmp_path / "damaged")
    assert train(recipe_on(tmp_path / "run", damaged, damaged, "never"), console=Console(file=StringIO())).finished


def _check(world: World, recipe: Recipe) -> str:
    with pytest.raises(FarspanError) as error:
        check_shards([*recipe.data.sources, *recipe.held_out_data.sources], world, Console(quiet=True))
    return str(error.value)


@pytest.mark.parametrize("held_out", [False, True])
def test_what_one_rank_finds_damaged_all_ranks_report(tmp_path, corpus, held_out):
    damaged = damaged_copy(corpus, tmp_path / "damaged")
    recipe = recipe_on(tmp_path / "run", *((corpus, damaged) if held_out else (damaged, corpus)), "start")
    first, second = on_ranks(2, _check, recipe)
    assert first == second
    assert "sha256" in first
    assert str(damaged) in first


def test_checksums_are_compared_before_a_row_is_read(tmp_path, corpus, monkeypatch):
    damaged = damaged_copy(corpus, tmp_path / "damaged")
    monkeypatch.setattr(Corpus, "take", lambda *_: pytest.fail("a row is read"))
    with pytest.raises(FarspanError, match="sha256"):
        train(recipe_on(tmp_path / "run", damaged, corpus, "start"), console=Console(file=StringIO()))


def test_a_recipe_checks_at_the_start_unless_it_says_otherwise():
    assert LoadingConfig().verify == "start"


def test_sources_of_equal_weight_in_another_order_are_another_run(tmp_path):
    first, second = Part("a", ToySource(20)), Part("b", ToySource(20))
    recipe = toy_recipe(tmp_path, steps=5)
    train(recipe, source=Mixture([first, second]), until=1, console=Console(file=StringIO()))
    with pytest.raises(FarspanError, match=r"sources: checkpoint \[\['a', 'b'\]\], now \[\['b', 'a'\]\]"):
        train(recipe, source=Mixture([second, first]), console=Console(file=StringIO()))
    assert train(recipe, source=Mixture([first, second]), console=Console(file=StringIO())).finished


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        (ToySource(21), "corpus.data.sequences: checkpoint 20, now 21"),
        (Mixture([Part("data", ToySource(20), 2.0)]), "corpus.data.weight: checkpoint 1.0, now 2.0"),
    ],
)
def test_another_size_or_weight_is_another_run(tmp_path, changed, said):
    recipe = toy_recipe(tmp_path, steps=5)
    train(recipe, source=ToySource(20), until=1, console=Console(file=StringIO()))
    with pytest.raises(FarspanError, match=said):
        train(recipe, source=changed, console=Console(file=StringIO()))


def staged(recipe, data: DataConfig):
    return replace(recipe, stages=(StageConfig(steps=2), StageConfig(steps=3, data=data)))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"decoder_start": "<start>"}, r"data: data.decoder_start is '<start>', but the special tokens are .*<eos>"),
        ({"masks": ""}, r"data: masks is ''; name the folder of a mask set"),
        ({"corpus": ""}, r"data: corpus is not set; .* --set data.corpus=FOLDER"),
        ({"corpus": "nowhere"}, r"data: nowhere: no farspan artefact"),
        ({"objective": ObjectiveConfig(name="cross_document")}, r"data: the objective has labels at masked tokens"),
    ],
)
def test_bad_data_is_told_by_the_section_that_names_it(tmp_path, corpus, changes, said):
    recipe = recipe_on(tmp_path, corpus, corpus, "never")
    data = replace(recipe.data, **changes)
    with pytest.raises(FarspanError, match=rf"^{said}"):
        open_unit(replace(recipe, data=data))
    with pytest.raises(FarspanError, match=rf"^stages\[1\]\.{said.replace('--set data.', '--set .*.data.')}"):
        open_unit(staged(recipe, data))


@pytest.mark.parametrize(
    ("section", "said"),
    [
        ({}, r"evaluation: corpus is not set; .* --set evaluation.corpus=FOLDER"),
        ({"corpus": "nowhere"}, r"evaluation: nowhere: no farspan artefact"),
        (
            {"mixture": (SourceConfig(name="news", corpus="nowhere", masks="masks"),)},
            r"source 'news' of evaluation.mixture: nowhere: no farspan",
        ),
    ],
)
def test_bad_held_out_data_is_told_as_such(tmp_path, corpus, section, said):
    recipe = replace(recipe_on(tmp_path, corpus, corpus, "never"), evaluation=EvaluationConfig(**section))
    with pytest.raises(FarspanError, match=f"^{said}"):
        open_unit(recipe).open_held_out()


def test_held_out_masks_that_need_more_sentinels_than_the_model_has_are_found_before_the_first_step(tmp_path, corpus):
    recipe = recipe_on(tmp_path, corpus, corpus, "never")
    spans = open_unit(recipe).mixtures[0]
    without = {name: number for name, number in spans.special.ids.items() if not is_sentinel(name)}
    unit = Seq2SeqUnit(recipe, [spans.with_special(SpecialTokens(without, spans.special.vocab_size))])
    with pytest.raises(FarspanError, match=r"^evaluation: sequence \w+ needs \d+ sentinels"):
        unit.open_held_out()


def test_a_corpus_that_was_copied_without_its_tokenizer_is_told_so(tmp_path, corpus):
    shutil.copytree(corpus, tmp_path / "copy", ignore=lambda folder, names: {"tokenizer"} & set(names))
    recipe = recipe_on(tmp_path, tmp_path / "copy", corpus, "never")
    recipe = replace(recipe, data=replace(recipe.data, objective=ObjectiveConfig(name="principal_sentences")))
    with pytest.raises(FarspanError, match=r"copy/tokenizer/\S+: No such file or directory; copy the"):
        open_unit(recipe)


@pytest.mark.parametrize(("steps", "passes"), [(12, None), (13, "1.1")])
def test_a_run_that_repeats_its_corpus_says_so(steps, passes):
    recipe = toy_recipe("none", steps=steps, batch_size=5)
    unit = Seq2SeqUnit(recipe, [Mixture([Part("a", ToySource(size=15)), Part("b", ToySource(size=45), weight=3.0)])])
    said = list(consequences(unit, None))
    assert len(said) == (2 if passes else 0)
    assert all(f"{passes} times" in line for line in said)
    assert not said or "'a'" in said[0]
