"""A corpus row with its masks, as fixtures."""

from __future__ import annotations

import numpy as np
import pytest

from corpora.schemas.corpus import Corpus
from objectives.api.protocol import CorpusFacts, load_objective, mask_key
from tests.artefacts import make_corpus


@pytest.fixture(scope="module")
def row(tmp_path_factory):
    """A row, its masks under T5's span corruption, its rendering and the names of its special tokens."""
    corpus = Corpus(make_corpus(str(tmp_path_factory.mktemp("corpus") / "corpus"), words=300))
    objective = load_objective("span", "t5")
    special = objective.validate(CorpusFacts.of(corpus.manifest))
    batch = corpus.take(np.array([3]))
    masks = objective.mask(batch, mask_key(0, objective))
    return batch, masks, objective.render(batch, masks, special), special.ids
