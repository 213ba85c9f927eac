"""A mask set on disk with the options it was made with, and with others."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from corpora.errors import FarspanError
from corpora.schemas.corpus import Corpus
from objectives.api.mask_set import MaskSet, open_masks
from objectives.api.protocol import load_objective, mask_key
from pipelines.engine.options import Engine
from pipelines.engine.run import run_job
from pipelines.masks.job import plan
from pipelines.masks.options import Masking
from tests.artefacts import make_corpus


@pytest.fixture(scope="module")
def folders(tmp_path_factory, farspan_lead):
    folder = tmp_path_factory.mktemp("artefacts")
    corpus = make_corpus(str(folder / "corpus"))
    run_job(
        plan(Masking(corpus=corpus, output=str(folder / "masks"), objective="lead_in", options={"lead": 6})),
        Engine(workers=1),
    )
    return corpus, str(folder / "masks")


def test_a_mask_set_can_go_to_another_process(folders):
    masks = open_masks(folders[1], options={"lead": 2})
    there = pickle.loads(pickle.dumps(masks))
    rows = np.array([1, 4])
    batch = Corpus(folders[0]).take(rows)
    assert there.adjusted
    assert there.masks(batch, rows).to_arrow() == masks.masks(batch, rows).to_arrow()


def test_adjusted_masks_are_those_that_the_options_would_have_made(folders):
    corpus, masks = Corpus(folders[0]), MaskSet(folders[1], {"lead": 2})
    rows = np.array([5, 0, 3])
    batch = corpus.take(rows)
    masks.check_parent(corpus)
    fresh = load_objective("lead_in", options={"lead": 2})
    assert masks.masks(batch, rows).to_arrow() == fresh.mask(batch, mask_key(0, fresh)).to_arrow()
    assert MaskSet(folders[1]).masks(batch, rows).to_arrow() == MaskSet(folders[1]).take(rows).to_arrow()
    assert masks.take(rows).to_arrow() == MaskSet(folders[1]).take(rows).to_arrow()


def test_options_that_decide_what_is_stored_cannot_be_adjusted(folders):
    with pytest.raises(FarspanError, match=r"option whole_words of objective lead_in cannot be changed .*can be: lead"):
        MaskSet(folders[1], {"whole_words": True})


def test_special_tokens_that_the_manifest_lacks_are_refused(folders, tmp_path):
    """A model's vocabulary follows from the manifest, so adjusting must not enlarge it."""
    masks = MaskSet(folders[1], {"lead": 3})
    lacking = {name: number for name, number in masks.special_tokens.ids.items() if name != "<gap>"}
    masks.special_tokens.ids.clear()  # type: ignore[attr-defined]
    masks.special_tokens.ids.update(lacking)  # type: ignore[attr-defined]
    with pytest.raises(FarspanError, match=r"may need 1 special tokens more than its manifest numbers"):
        masks.check_parent(Corpus(folders[0]))


def test_masks_of_another_corpus_are_refused(folders, tmp_path):
    other = Corpus(make_corpus(str(tmp_path / "other"), seed=1))
    said = (
        f"{folders[1]}: its masks are not those of the corpus {other.folder}, but of the one that was at {folders[0]};"
    )
    with pytest.raises(FarspanError, match=said):
        MaskSet(folders[1]).check_parent(other)
