"""Tests of the data section, the curriculum and mixtures."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corpora.errors import FarspanError
from objectives.api.special_tokens import SpecialTokens
from tests.trainer.toy import SPECIAL, ToySource, toy_recipe
from trainer.data.config import DataConfig, SourceConfig
from trainer.data.curriculum import StageConfig, stage_number
from trainer.data.mixture import Mixture, Part, one_vocabulary
from trainer.model.patterns.block import Block

TWO = (SourceConfig(name="web", corpus="a"), SourceConfig(name="books", corpus="b", weight=2.0))


def test_one_source_or_several():
    single = DataConfig(source_length=16, corpus="a", masks="b", masks_options={"choose": "top"})
    assert single.sources == (SourceConfig(name="data", corpus="a", masks="b", masks_options={"choose": "top"}),)
    assert DataConfig(source_length=16, mixture=TWO).sources == TWO
    (source,) = DataConfig(source_length=16, pairs="p", examples=5, examples_seed=3).sources
    assert (source.examples, source.examples_seed) == (5, 3)


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ({"source_length": 20, "source_multiple": 8}, "data.source_length is 20 with data.source_multiple 8"),
        ({"target_length": 0}, "data.target_length is 0"),
        ({"pairs": "p", "examples": 0}, r"data\.examples is 0; it must be at least 1"),
        ({"mixture": TWO, "examples": 5}, r"data\.examples is 5 with data\.mixture; set it in each of its sources"),
        ({"mixture": (*TWO, TWO[0])}, "names of the sources are 'web', 'books', 'web'; give each"),
        ({"mixture": TWO, "pairs": "p"}, "data.mixture conflicts with .* or pairs"),
    ],
)
def test_wrong_sections_are_refused(section, message):
    with pytest.raises(FarspanError, match=message):
        DataConfig(**{"source_length": 16, **section})


@pytest.mark.parametrize("weight", [0.0, -1.0, float("inf"), float("nan")])
def test_weights_are_above_zero(weight):
    with pytest.raises(FarspanError, match=r"source 'web': weight is .*; it must be above 0"):
        SourceConfig(name="web", corpus="a", weight=weight)


@pytest.mark.parametrize("beside", [{"corpus": "a"}, {"masks": "b"}, {"masks_options": {"choose": "top"}}])
def test_mixtures_and_pairs_stand_beside_no_corpus(beside):
    with pytest.raises(FarspanError, match=r"data.mixture conflicts with data.corpus, masks"):
        DataConfig(source_length=16, mixture=TWO, **beside)
    with pytest.raises(FarspanError, match=r"data.pairs conflicts with data.corpus, masks.* fine-tuning takes pairs"):
        DataConfig(source_length=16, pairs="p", **beside)
    with pytest.raises(FarspanError, match=r"source 'web': pairs conflicts with corpus, masks"):
        SourceConfig(name="web", pairs="p", **beside)
    with pytest.raises(FarspanError, match="source 'a': examples is 0; it must be at least 1"):
        SourceConfig(name="a", pairs="p", examples=0)


RECIPE = toy_recipe("unused")

SHORT = replace(RECIPE.data, source_length=16)

STAGES = st.lists(st.tuples(st.integers(1, 20), st.integers(1, 9), st.booleans()), min_size=1, max_size=5)


def curriculum_of(stages):
    configs = tuple(
        StageConfig(steps=steps, batch_size=batch_size, data=SHORT if short else None)
        for steps, batch_size, short in stages
    )
    total = sum(steps for steps, *_ in stages)
    schedule = replace(RECIPE.schedule, warmup_steps=0)
    return replace(RECIPE, run=replace(RECIPE.run, steps=total), stages=configs, schedule=schedule).curriculum


@given(STAGES)
@settings(max_examples=50, deadline=None)
def test_samples_are_counted_through_stages_with_the_same_data(stages):
    """Against a loop over all steps that counts the samples of each data section, whatever stages lie between."""
    curriculum, step, seen = curriculum_of(stages), 0, {True: 0, False: 0}
    for number, (steps, batch_size, short) in enumerate(stages):
        for _ in range(steps):
            assert stage_number(curriculum, step) == number
            assert curriculum[number].samples(step) == range(seen[short], seen[short] + batch_size)
            step, seen[short] = step + 1, seen[short] + batch_size
    assert curriculum[-1].last_step == step
    assert stage_number(curriculum, step) == len(stages) - 1


def test_a_stage_changes_the_attention_and_nothing_else_of_a_model():
    stages = (StageConfig(steps=RECIPE.run.steps, attention=Block(4)),)
    (changed,) = (stage.model for stage in replace(RECIPE, stages=stages).curriculum)
    assert changed.encoder.attention == Block(4)
    assert replace(changed, encoder=RECIPE.model.encoder) == RECIPE.model


WITH_MASK = SpecialTokens.append(24, {"<pad>": 0, "<bos>": 1, "<eos>": 2}, ["<mask>"], sentinels=3)


class Other(ToySource):
    """With a table of its own; each source ends with its last token, ``<mask>`` here, in place of text."""

    def __init__(self, size: int = 7, special: SpecialTokens = WITH_MASK, **facts: Any) -> None:
        super().__init__(size, fingerprint=f"other {sorted(special.ids.items())}")
        self.special = special
        self.facts = facts
        for name, value in facts.items():
            setattr(self, name, value)

    def examples(self, indices: np.ndarray, epochs: np.ndarray | None = None):
        examples = super().examples(indices)
        examples.source_ids[np.arange(len(indices)), examples.source_lengths - 1] = self.special["<mask>"]
        return examples

    def with_special(self, special: SpecialTokens) -> "Other":
        return Other(self.size, special, **self.facts)


def both(*weights: float) -> Mixture:
    first, second = weights or (1.0, 1.0)
    return Mixture([Part("toy", ToySource(20), first), Part("other", Other(7), second)])


def test_rows_stand_in_the_order_asked_for_and_are_those_of_their_sources():
    mixture = both()
    assert len(mixture) == 27
    rows = np.array([25, 3, 20, 19, 3, 26, 0])
    together = mixture.examples(rows)
    for place, row in enumerate(rows):
        part = mixture.parts[int(row >= 20)].source
        alone = part.examples(np.array([row - 20 * (row >= 20)]))
        for side in ("source", "target"):
            length = getattr(alone, f"{side}_lengths")[0]
            assert getattr(together, f"{side}_lengths")[place] == length
            ids = getattr(together, f"{side}_ids")[place]
            assert ids[:length].tolist() == getattr(alone, f"{side}_ids")[0, :length].tolist()
            assert (ids[length:] == SPECIAL["<pad>"]).all()
        assert together.sequence_ids[place].tolist() == alone.sequence_ids[0].tolist()


def test_one_table_for_all_and_each_renders_with_it():
    mixture = both()
    assert mixture.special.ids == {**SPECIAL.ids, "<mask>": 25, "<sentinel-1>": 26, "<sentinel-2>": 27}
    assert mixture.special.vocab_size == 28
    assert {part.source.special.vocab_size for part in mixture.parts} == {28}
    assert (mixture.examples(np.array([20, 26])).source_ids == 25).sum(1).tolist() == [1, 1]
    assert mixture.with_special(mixture.special).fingerprint == mixture.fingerprint


def test_a_mixture_of_one_is_the_source():
    source = ToySource(9)
    mixture = Mixture.of(source)
    assert Mixture.of(mixture) is mixture
    assert len(mixture) == 9
    assert mixture.special is SPECIAL or mixture.special == SPECIAL
    rows = mixture.sequences(np.arange(9), seed=1).indices
    assert sorted(rows) == list(range(9))
    assert np.array_equal(mixture.examples(rows).source_ids, source.examples(rows).source_ids)


def test_samples_follow_weights_and_epochs():
    mixture = both(3.0, 1.0)
    rows, epochs = mixture.sequences(np.arange(80), seed=5)
    assert (rows >= 20).sum() == 20
    assert all(sorted(rows[rows < 20][epoch : epoch + 20]) == list(range(20)) for epoch in (0, 20, 40))
    assert sorted(rows[rows >= 20][:7] - 20) == list(range(7))
    assert epochs[rows < 20].tolist() == [0] * 20 + [1] * 20 + [2] * 20
    assert epochs[rows >= 20].tolist() == [0] * 7 + [1] * 7 + [2] * 6
    again = mixture.sequences(np.array([77, 2]), seed=5)
    assert again.indices.tolist() == rows[[77, 2]].tolist()
    assert again.epochs.tolist() == epochs[[77, 2]].tolist()


class Counting(ToySource):
    """Knows of epochs: the first token of a row is its epoch."""

    def examples(self, indices: np.ndarray, epochs: np.ndarray | None = None):
        examples = super().examples(indices)
        examples.source_ids[:, 0] = 0 if epochs is None else epochs
        return examples


def test_each_source_is_told_the_epochs_of_its_rows():
    mixture = Mixture([Part("counting", Counting(20)), Part("other", Other(7))])
    rows, epochs = np.array([25, 3, 3, 20, 1]), np.array([9, 4, 5, 9, 6])
    examples = mixture.examples(rows, epochs)
    assert examples.source_ids[[1, 2, 4], 0].tolist() == [4, 5, 6]
    assert np.array_equal(examples.source_ids[[0, 3]], mixture.examples(rows).source_ids[[0, 3]])
    assert Mixture.of(Counting(20)).examples(rows[1:3], epochs[1:3]).source_ids[:, 0].tolist() == [4, 5]
    assert mixture.examples(rows).source_ids[[1, 2, 4], 0].tolist() == [0, 0, 0]


def test_the_fingerprint_tells_names_weights_and_sources_and_origins_name_the_source():
    found = {
        both().fingerprint,
        both(1.0, 2.0).fingerprint,
        Mixture([Part("toy", ToySource(20))]).fingerprint,
        Mixture([Part("renamed", ToySource(20))]).fingerprint,
        Mixture([Part("toy", ToySource(20, fingerprint="changed"))]).fingerprint,
    }
    assert len(found) == 5
    assert both().fingerprint == both().fingerprint
    assert both().origins(np.array([26, 4])) == ["other: sequence 6", "toy: sequence 4"]


def test_what_does_not_go_together_is_refused():
    for source, said in (
        (ToySource(encoder_only=True), "source 'toy' has target texts, source 'x' labels at masked tokens"),
        (
            Other(tokenizer_fingerprint="y"),
            "'toy' holds ids of the tokenizer with fingerprint toy tokenizer, source 'x'",
        ),
        (ToySource(0), "source 'x' of the data holds no sequence"),
        (
            Other(special=replace(WITH_MASK, ids={**WITH_MASK.ids, "<eos>": 3})),
            "special token <eos> has id 2 for one objective, the tokenizer's 3",
        ),
    ):
        with pytest.raises(FarspanError, match=said):
            Mixture([Part("toy", ToySource()), Part("x", source)])


def test_stages_share_one_vocabulary():
    one, other = one_vocabulary([Mixture.of(ToySource()), Mixture.of(Other())])
    assert one.special == other.special
    assert one.special.vocab_size == 28
    same = Mixture.of(ToySource())
    assert one_vocabulary([same, same]) == [same, same]
    with pytest.raises(FarspanError, match="make both corpora with one tokenizer"):
        one_vocabulary([same, Mixture.of(Other(tokenizer_fingerprint="another"))])
