"""Errors of later steps are reported before the first one."""

from dataclasses import dataclass, replace
from io import StringIO
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from rich.console import Console

from corpora.errors import FarspanError
from corpora.schemas.corpus import Corpus
from corpora.storage.manifest_file import read_manifest, write_manifest
from objectives.api.authoring import SpanObjective
from pipelines.engine.options import Engine
from pipelines.engine.run import run_job
from pipelines.masks.job import plan
from pipelines.masks.options import Masking
from tests.artefacts import make_corpus
from tests.trainer.toy import ToySource, toy_recipe, train_quietly
from trainer.data.config import DataConfig, ObjectiveConfig, SourceConfig
from trainer.data.example_checks import check_examples
from trainer.data.masked_corpus import MaskedCorpus
from trainer.data.mixture import Mixture, Part
from trainer.model.patterns.block import Block
from trainer.model.patterns.window import Window
from trainer.recipe import load_recipe
from trainer.run.sources import open_source
from trainer.run.train import train

BLOCK = Block(64)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory) -> str:
    """Rows of unequal length."""
    return make_corpus(str(tmp_path_factory.mktemp("checks") / "corpus"), documents=30, room_per_document=2)


def masks_of(corpus: str, folder: Path, objective: str, **options) -> str:
    run_job(plan(Masking(corpus=corpus, output=str(folder), objective=objective, options=options)), Engine(workers=1))
    return str(folder)


def checked(data: DataConfig, pattern=BLOCK, **named) -> list[str]:
    return check_examples(open_source(data), data, pattern, "data", **named)


def drawn(corpus: str, name: str, **options) -> DataConfig:
    objective = ObjectiveConfig(name=name, options=options)
    return DataConfig(corpus=corpus, objective=objective, source_length=256, target_length=128)


def source_of(data: DataConfig) -> Any:
    return open_source(data).parts[0].source


def test_a_draw_that_would_be_too_long_later_is_found_though_the_rows_tried_fit(corpus):
    """Of BART-LS's mixed spans a row with short ones has the longer target; which rows draw them is chance."""
    data = drawn(corpus, "span", density=0.3, mean_span_lengths=[2, 30])
    source = source_of(data)
    bound = source.longest()
    rows = np.arange(len(source))
    examples = [source.examples(rows, np.full(len(rows), epoch)) for epoch in range(5)]
    longest = max(int(part.target_lengths.max()) for part in examples)
    assert longest <= bound.target <= longest + 12  # documents that cut a span
    limit = bound.target - 1
    with pytest.raises(
        FarspanError,
        match=rf"^data: objective span on .* may give .*arrow row {bound.target_row} a target of {bound.target} "
        rf"positions, data.target_length is {limit}; set data.target_length to {bound.target} \(and the model's "
        rf"positions\), or data.objective.options.target_length to {limit} with data.objective.options.fit=reduce",
    ):
        checked(replace(data, target_length=limit))
    assert checked(replace(data, target_length=bound.target)) == []
    fitted = replace(data.objective, options={**data.objective.options, "target_length": limit, "fit": "reduce"})
    assert checked(replace(data, target_length=limit, objective=fitted)) == []


def test_the_number_to_set_is_a_multiple_that_the_recipe_takes(corpus):
    data = drawn(corpus, "span", density=0.5)
    opened, narrow = open_source(data), replace(data, target_length=48, target_multiple=48)
    with pytest.raises(FarspanError, match=r"set data.target_length to 96 \(and"):
        check_examples(opened, narrow, BLOCK, "data")
    assert checked(replace(narrow, target_length=96)) == []


def test_sentences_without_a_limit_are_bounded_by_their_own_lengths(corpus):
    data = drawn(corpus, "principal_sentences", words="tokens", ratio=0.5)
    source = source_of(replace(data, target_length=256))
    examples = source.examples(np.arange(len(source)))
    bound = source.longest()
    assert examples.target_lengths.max() <= bound.target < Corpus(corpus).manifest.totals["max_tokens"]
    with pytest.raises(FarspanError, match=r"or data.objective.options.target_length to \d+, to hide less"):
        checked(replace(data, target_length=bound.target - 1))
    assert checked(replace(data, objective=replace(data.objective, options={"target_length": 64}))) == []


def test_only_rows_that_are_used_count(corpus):
    data = drawn(corpus, "span", density=0.5)
    source = source_of(data)
    bound = source.longest()
    before = source.longest(bound.source_row)  # not this row
    assert 0 < before.source < bound.source
    narrow = replace(data, source_length=before.source)
    assert check_examples(open_source(data), narrow, BLOCK, "data", bound.source_row) == []
    with pytest.raises(FarspanError, match=rf"a source of {bound.source} positions"):
        check_examples(open_source(data), narrow, BLOCK, "data", bound.source_row + 1)


def test_adjusted_masks_are_as_long_as_they_are(corpus, tmp_path, farspan_lead):
    masks = masks_of(corpus, tmp_path / "masks", "lead_in", lead=6)
    data = DataConfig(corpus=corpus, masks=masks, masks_options={"lead": 5}, source_length=256, target_length=256)
    source = source_of(data)
    longest = int(source.examples(np.arange(len(source))).target_lengths.max())
    assert source.longest().target == longest
    with pytest.raises(FarspanError, match=rf"mask set {masks} may give .* target of {longest} positions"):
        check_examples(Mixture(open_source(data).parts), replace(data, target_length=longest - 1), BLOCK, "d")


def test_an_objective_that_states_no_lengths_is_a_warning(corpus, farspan_lead):
    (warning,) = checked(replace(drawn(corpus, "lead_in"), target_length=256))
    assert "objective lead_in on" in warning
    assert "method `longest`" in warning


@dataclass(frozen=True)
class FirstTokens(SpanObjective):
    """Of one's own; as many tokens as a random number says, and as ``most`` says at most, if it says so."""

    name: ClassVar[str] = "first_tokens"
    most: int | None = None

    def choose(self, row, rng):
        return [(0, 1 + int(rng.integers(min(len(row), 40))))]

    def most_hidden(self, lengths):
        return None if self.most is None else np.full(len(lengths), self.most)


def test_an_objective_of_ones_own_is_bounded_by_what_it_hides_at_most(corpus):
    data = DataConfig(source_length=256, target_length=64)

    def told(most):
        source = MaskedCorpus.of_objective(Corpus(corpus), FirstTokens(most), seed=0)
        return check_examples(Mixture([Part("data", source)]), data, BLOCK, "data")

    (warning,) = told(None)
    assert "method `longest`" in warning
    with pytest.raises(FarspanError, match=r"a target of 82 positions, data.target_length is 64"):  # 40 sentinels
        told(40)
    data = replace(data, target_length=82)
    assert told(40) == []


NOTHING = {"mlm_probability": 1e-9, "treatments": [1.0, 0.0, 0.0]}


@pytest.mark.parametrize("mixed", [False, True])
def test_masks_that_ask_for_nothing_are_refused(corpus, tmp_path, mixed):
    empty = masks_of(corpus, tmp_path / "masks", "cross_document", **NOTHING)
    where = "source 'empty' of data.mixture" if mixed else "data"
    good = SourceConfig(name="good", corpus=corpus, objective=ObjectiveConfig(name="cross_document"))
    for masks, said in (
        ({"masks": empty}, f"mask set {empty}: none of its rows has a target token"),
        (
            {"objective": ObjectiveConfig(name="cross_document", options=NOTHING)},
            r"objective cross_document on .*: none of the \d+ rows tried",
        ),
    ):
        section: dict[str, Any] = {"corpus": corpus, **masks}
        if mixed:
            section = {"mixture": (good, SourceConfig(name="empty", **section))}
        with pytest.raises(FarspanError, match=f"^{where}: {said}"):
            checked(DataConfig(**section, source_length=512, target_length=128))


def test_one_row_in_many_that_asks_is_enough(corpus, tmp_path):
    masks = masks_of(corpus, tmp_path / "masks", "cross_document", **NOTHING)
    manifest = read_manifest(masks)
    totals = {**manifest.totals, "unmasked": manifest.totals["sequences"] - 1}
    write_manifest(masks, replace(manifest, totals=totals))
    assert checked(DataConfig(corpus=corpus, masks=masks, source_length=512)) == []


def test_a_run_on_nothing_never_begins(tmp_path, monkeypatch):
    made = ToySource.examples
    empty = lambda *rows: replace(made(*rows), target_lengths=np.zeros(len(rows[1]), np.int32))  # noqa: E731
    monkeypatch.setattr(ToySource, "examples", empty)
    with pytest.raises(FarspanError, match="none of the 50 rows tried has a target token"):
        train_quietly(toy_recipe(tmp_path), source=ToySource())
    assert not list(tmp_path.iterdir())


def test_a_window_without_global_positions_is_told_with_the_cure(corpus, tmp_path):
    data = drawn(corpus, "span")
    (warning,) = checked(data, Window(8))
    assert "makes no position global" in warning
    assert "global_attention=bos" in warning
    assert checked(drawn(corpus, "span", global_attention="bos"), Window(8)) == []
    assert checked(replace(data, global_positions="none"), Window(8)) == []
    with pytest.raises(FarspanError, match=r"^data: objective span on .* makes no position global"):
        checked(replace(data, global_positions="required"), Window(8))
    stored = DataConfig(corpus=corpus, masks=masks_of(corpus, tmp_path / "m", "span"), source_length=256)
    assert "make the mask set with global_attention=bos" in checked(stored, Window(8))[0]


def test_warnings_of_a_run_are_told_at_its_start(tmp_path):
    said, recipe = StringIO(), toy_recipe(tmp_path)
    encoder = replace(recipe.model.encoder, attention=Window(8), pooling=None)
    recipe = replace(recipe, model=replace(recipe.model, encoder=encoder))
    train(recipe, source=ToySource(), until=1, console=Console(file=said, soft_wrap=True))
    assert said.getvalue().startswith("warning: data: the examples make no position global")


@pytest.mark.parametrize("name", ["led_base", "led_large", "primera", "cdlm"])
def test_published_recipes_with_windows_require_global_positions(name):
    recipe = load_recipe(name)
    assert recipe.model.encoder.attention.pattern == "window"
    assert recipe.data.global_positions == "required"
