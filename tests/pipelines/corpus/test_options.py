"""Options of corpora, as they are typed and by default."""

from __future__ import annotations

import argparse

import pytest

from corpora.packing.options import Packing
from pipelines.corpus.options import LinkedCorpus, LongCorpus, RandomCorpus, RelatedCorpus
from tests.pipelines.typed import typed

NEEDED = "--documents d --output o --sequence-length 512"


def test_every_kind_of_corpus_has_the_same_flags_for_the_same_options():
    packing = Packing(sequence_length=512)
    assert typed(RandomCorpus, NEEDED) == RandomCorpus(documents="d", output="o", packing=packing)
    linked = typed(LinkedCorpus, f"{NEEDED} --neighbours n --leftovers leave-out")
    assert linked == LinkedCorpus(documents="d", neighbours="n", output="o", packing=packing, leftovers="leave-out")
    related = typed(RelatedCorpus, f"{NEEDED} --min-similarity 0.5 --split held-out")
    assert (related.min_similarity, related.split, related.packing) == (0.5, "held-out", packing)
    assert typed(LongCorpus, "mixture.toml --output o --seed 7") == LongCorpus(
        recipe="mixture.toml", output="o", seed=7
    )


@pytest.mark.parametrize("kind", [LinkedCorpus, RelatedCorpus])
@pytest.mark.parametrize("flag", ["--split-documents x", "--drop-ragged-tail"])
def test_corpora_of_several_documents_have_no_flags_for_cutting_them(kind, flag):
    with pytest.raises((argparse.ArgumentError, SystemExit)):
        typed(kind, f"{NEEDED} --neighbours n {flag}")
