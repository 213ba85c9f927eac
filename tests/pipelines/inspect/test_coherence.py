from __future__ import annotations

import numpy as np
import pytest

from corpora.errors import FarspanError
from corpora.schemas.corpus import Corpus
from corpora.tokenizers.load import load_tokenizer
from pipelines.inspect.coherence import redundancy_of, sample_rows, similarity_of
from pipelines.inspect.distributions import Distribution, distributions
from pipelines.inspect.histograms import draw
from pipelines.inspect.stats import statistics
from tests.artefacts import all_rows, make_corpus, make_documents
from tests.neighbours import make_neighbours
from tests.vectors import make_vectors


def test_samples_are_all_or_as_many_as_asked_and_do_not_depend_on_more():
    assert sample_rows(5, 10).tolist() == [0, 1, 2, 3, 4]
    chosen = sample_rows(1000, 10)
    assert len(set(chosen.tolist())) == 10
    assert (np.diff(chosen) > 0).all()
    assert chosen.tolist() == sample_rows(1000, 10).tolist()


def five_grams(text):
    words = "".join(c.lower() if c.isalnum() or ord(c) > 127 else " " for c in text).split()
    return [tuple(words[i : i + 5]) for i in range(len(words) - 4)] or ([tuple(words)] if words else [])


def test_redundancy_is_what_a_plain_count_of_words_says(tmp_path):
    corpus = Corpus(make_corpus(str(tmp_path / "corpus")))
    tokenizer = load_tokenizer(str(tmp_path / "corpus" / "tokenizer"))
    rows = np.arange(0, len(corpus), 3)
    found = redundancy_of(corpus, rows)
    batch = corpus.take(rows)
    for row in range(len(rows)):
        seen, repeated, total = set(), 0, 0
        for piece in np.split(batch.tokens[row], batch.document_starts[row][1:]):
            grams = five_grams(tokenizer.decode(piece))
            repeated += sum(gram in seen for gram in grams)
            total += len(grams)
            seen |= set(grams)
        assert found[row] == pytest.approx(repeated / max(total, 1))


def test_similarity_is_the_mean_of_all_pairs(tmp_path):
    documents = make_documents(str(tmp_path / "documents"), shards=2)
    vectors = make_vectors(str(tmp_path / "vectors"), documents, dimension=8)
    corpus = Corpus(make_corpus(str(tmp_path / "corpus")))
    # the corpus of the helper has ids of its own, of which the documents hold those that are not held out
    batch = corpus.take(np.arange(len(corpus)))
    with pytest.raises(FarspanError, match=r"no vector of document 'made:"):
        similarity_of(corpus, np.arange(len(corpus)), vectors)
    table = {row["document_id"]: np.array(row["vector"], np.float32) for row in all_rows(vectors, "farspan.vectors")}
    known = [row for row in range(len(batch)) if all(name in table for name in batch.document_ids[row].as_py())]
    found = similarity_of(corpus, np.array(known), vectors)
    for row, value in zip(known, found, strict=True):
        names = sorted(set(batch.document_ids[row].as_py()))
        unit = np.stack([table[name] / np.linalg.norm(table[name]) for name in names])
        pairs = (unit @ unit.T)[np.triu_indices(len(names), 1)]
        assert np.isnan(value) if len(names) == 1 else value == pytest.approx(pairs.mean(), abs=1e-5)


def test_every_artefact_has_distributions_and_a_picture(tmp_path):
    documents = make_documents(str(tmp_path / "documents"))
    neighbours = make_neighbours(str(tmp_path / "neighbours"), documents)
    corpus = make_corpus(str(tmp_path / "corpus"))
    found = [(folder, one) for folder in (documents, neighbours, corpus) for one in distributions(folder, 10)]
    names = [one.name for _, one in found]
    assert {"document length", "cluster size", "similarity of the nearest", "redundancy", "part length"} <= set(names)
    assert sum(one.values.sum() for folder, one in found if one.name == "cluster size") == 96
    draw(found, str(tmp_path / "figure.png"))
    assert (tmp_path / "figure.png").stat().st_size > 10_000
    numbers = statistics(corpus, [one for folder, one in found if folder == corpus])
    assert 0 <= numbers["redundancy"]["mean"] <= 1
    assert numbers["sequence_length"]["p50"] <= 128
    with pytest.raises(FarspanError, match="nothing to draw"):
        draw([(corpus, Distribution("x", np.empty(0), "tokens"))], str(tmp_path / "none.png"))
