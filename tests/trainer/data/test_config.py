"""The data section of a recipe."""

from __future__ import annotations

import pytest

from corpora.errors import FarspanError
from trainer.data.config import DataConfig, SourceConfig

TWO = (SourceConfig(name="web", corpus="a"), SourceConfig(name="books", corpus="b", weight=2.0))


def test_lengths_are_multiples():
    with pytest.raises(FarspanError, match=r"data.source_length is 20 with data.source_multiple 8"):
        DataConfig(source_length=20, source_multiple=8, target_length=12)
    with pytest.raises(FarspanError, match=r"data.target_length is 0"):
        DataConfig(source_length=16, target_length=0)


def test_one_source_or_several():
    single = DataConfig(source_length=16, corpus="a", masks="b", masks_options={"choose": "top"})
    assert single.sources == (SourceConfig(name="data", corpus="a", masks="b", masks_options={"choose": "top"}),)
    assert DataConfig(source_length=16, mixture=TWO).sources == TWO


@pytest.mark.parametrize("beside", [{"corpus": "a"}, {"masks": "b"}, {"masks_options": {"choose": "top"}}])
def test_a_mixture_stands_alone(beside):
    with pytest.raises(FarspanError, match=r"data.mixture conflicts with data.corpus, masks"):
        DataConfig(source_length=16, mixture=TWO, **beside)


def test_few_examples_are_of_one_source():
    with pytest.raises(FarspanError, match=r"data\.examples is 0; it must be at least 1"):
        DataConfig(source_length=16, pairs="p", examples=0)
    with pytest.raises(FarspanError, match=r"data\.examples is 5 with data\.mixture; set it in each of its sources"):
        DataConfig(source_length=16, mixture=TWO, examples=5)
    with pytest.raises(FarspanError, match="source 'a': examples is 0; it must be at least 1"):
        SourceConfig(name="a", pairs="p", examples=0)
    (source,) = DataConfig(source_length=16, pairs="p", examples=5, examples_seed=3).sources
    assert (source.examples, source.examples_seed) == (5, 3)


def test_sources_have_names_of_their_own():
    with pytest.raises(FarspanError, match=r"names of the sources are 'web', 'books', 'web'; give each"):
        DataConfig(source_length=16, mixture=(*TWO, TWO[0]))


@pytest.mark.parametrize("weight", [0.0, -1.0, float("inf"), float("nan")])
def test_weights_are_above_zero(weight):
    with pytest.raises(FarspanError, match=r"source 'web': weight is .*; it must be above 0"):
        SourceConfig(name="web", corpus="a", weight=weight)


@pytest.mark.parametrize("beside", [{"corpus": "a"}, {"masks": "b"}, {"masks_options": {"choose": "top"}}])
def test_pairs_stand_beside_no_corpus(beside):
    with pytest.raises(FarspanError, match=r"data.pairs conflicts with data.corpus, masks.* fine-tuning takes pairs"):
        DataConfig(source_length=16, pairs="p", **beside)
    with pytest.raises(FarspanError, match=r"source 'web': pairs conflicts with corpus, masks"):
        SourceConfig(name="web", pairs="p", **beside)
    with pytest.raises(FarspanError, match=r"data.mixture conflicts with .* or pairs"):
        DataConfig(source_length=16, mixture=TWO, pairs="p")
