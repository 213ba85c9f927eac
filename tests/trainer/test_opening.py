"""What a run is trained on, checked before it begins."""

from __future__ import annotations

import shutil
from dataclasses import replace
from io import StringIO
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from corpora.corpus import Corpus
from corpora.errors import FarspanError
from tests.artefacts import make_corpus
from tests.trainer.distributed_ranks import on_ranks
from tests.trainer.toy import ToySource, toy_recipe
from trainer.data import DataConfig, ObjectiveConfig
from trainer.distributed import Ranks
from trainer.mixture import Mixture, Part
from trainer.model.positions import Learned
from trainer.opening import check_shards
from trainer.prefetch import LoadingConfig
from trainer.recipe import EvaluationConfig
from trainer.run import train


@pytest.fixture(scope="module")
def corpus(tmp_path_factory) -> Path:
    return Path(make_corpus(str(tmp_path_factory.mktemp("opening") / "corpus"), documents=30))


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


class Checked(ToySource):
    """Whose only damage is in the share of the second rank."""

    def check_shards(self, share: int, shares: int) -> None:
        assert shares == 2
        if share == 1:
            raise FarspanError("shard 7 is damaged")


def _check(ranks: Ranks) -> str:
    check_shards([ToySource()], ranks)  # which knows nothing of shards
    with pytest.raises(FarspanError) as error:
        check_shards([Mixture.of(Checked())], ranks)
    return str(error.value)


def test_what_one_rank_finds_damaged_all_ranks_report():
    assert on_ranks(2, _check) == ["shard 7 is damaged"] * 2


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
