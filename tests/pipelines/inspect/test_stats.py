"""The numbers, distributions and figures of `farspan stats`."""

import json
import re
from itertools import pairwise
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest

from corpora.errors import FarspanError
from corpora.schemas.corpus import Corpus
from corpora.schemas.pairs import PairSet, open_pairs
from corpora.storage.manifest_file import read_manifest
from corpora.tokenizers.load import load_tokenizer
from pipelines.cards.card import padding_share
from pipelines.inspect.distributions import Distribution, distributions, redundancy_of, sample_rows, similarity_of
from pipelines.inspect.histograms import describe, draw
from pipelines.inspect.stats import count_cut_pairs, print_stats, statistics, stats
from tests.artefacts import all_rows, make_corpus, make_documents, make_pairs
from tests.neighbours import make_neighbours
from tests.vectors import make_vectors


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return make_corpus(str(tmp_path_factory.mktemp("stats") / "corpus"))


def test_statistics_hold_quantiles_and_totals(corpus, capsys):
    found = [Distribution("part length", np.arange(101), "tokens", "books"), Distribution("none", np.empty(0), "share")]
    numbers = statistics(corpus, found)
    manifest = read_manifest(corpus)
    quantiles = {"p5": 5.0, "p50": 50.0, "p90": 90.0, "p95": 95.0}
    assert numbers["part_length_of_books"] == {"mean": 50.0, **quantiles, "max": 100.0}
    assert numbers["none"] == {}
    assert numbers["padding_share"] == padding_share(manifest)
    assert numbers["documents_per_sequence"] == manifest.totals["parts"] / manifest.totals["sequences"]
    print_stats([numbers])
    said = capsys.readouterr().out
    assert "part length of books" in said
    assert "mean 50, p5 5, p50 50, p90 90, p95 95, max 100" in said.replace("\n", " ")


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ({"p5": 0.0, "p50": 2.5, "p95": 1234.5}, "p5 0, p50 2.50, p95 1,234"),
        ({"pairs": 3, "share_of_document_tokens": 0.25}, "pairs 3, share of document tokens 0.2500"),
        ({"read": 7, "rejected": 0}, "read 7"),
        ({"read": 0}, "0"),
        ({"pairs": 0, "share_of_document_tokens": 0.0}, "0"),
        (float("nan"), "nan"),
    ],
)
def test_numbers_are_printed_plainly(capsys, value, shown):
    print_stats([{"folder": "f", "format": "farspan.pairs", "value": value, "counts": {}}])
    assert f" {shown} " in capsys.readouterr().out


def test_stats_of_a_folder_are_those_of_its_distributions(corpus):
    assert stats(Path(corpus), sample=8) == statistics(corpus, list(distributions(corpus, 8, None)))


def test_json_stays_json_beside_a_figure(corpus, tmp_path, run):
    status, out, errors = run("stats", corpus, "--json", "--figure", tmp_path / "a.svg")
    assert (status, json.loads(out)[0]["folder"]) == (0, corpus)
    assert f"figure: {tmp_path / 'a.svg'}" in errors


def test_pairs_tell_what_a_length_would_cut(tmp_path):
    documents = make_documents(str(tmp_path / "documents"), shards=1)
    pairs = open_pairs(make_pairs(str(tmp_path / "pairs"), documents, pairs=9, documents_per_pair=3))
    rows = all_rows(pairs.folder, "farspan.pairs")
    about = [pairs.documents.take(one["document_rows"]).to_pylist() for one in rows]
    lengths = [sum(len(row["tokens"]) for row in documents) for documents in about]
    queries = [len(one["query"]) for one in rows]
    beyond = [min(max(query + own - 100, 0), own) for query, own in zip(queries, lengths, strict=True)]
    share = sum(beyond) / sum(lengths)
    assert 0 < share < 1
    assert count_cut_pairs(pairs, [100, 10_000]) == {
        "cut_at_100": {"pairs": sum(map(bool, beyond)), "share_of_document_tokens": pytest.approx(share)},
        "cut_at_10000": {"pairs": 0, "share_of_document_tokens": 0.0},
    }
    numbers = stats(pairs.folder)
    assert numbers["pairs"] == 9
    train = [own for own, one in zip(lengths, rows, strict=True) if one["split"] == "train"]
    assert numbers["length_of_a_pair's_documents_of_train"]["p50"] == np.median(train)
    assert numbers["references_of_a_pair"]["p95"] == 2
    assert numbers["cut_at_16384"]["pairs"] == 0
    assert stats(pairs.folder, lengths=[100])["cut_at_100"]["pairs"] == sum(map(bool, beyond))


def test_a_run_has_commands_of_its_own(tmp_path, run):
    (tmp_path / "recipe.json").write_text("{}")
    with pytest.raises(FarspanError, match="is a run; `farspan runs` and `farspan plot` show its numbers"):
        stats(tmp_path)
    assert "is a run" in run("stats", tmp_path)[2]


@pytest.fixture(scope="module")
def documents(tmp_path_factory) -> str:
    return make_documents(str(tmp_path_factory.mktemp("documents") / "documents"), shards=3)


def values_of(folder: str) -> dict[tuple[str, str], list]:
    return {(one.name, one.source): one.values.tolist() for one in distributions(folder, sample=5)}


def test_documents(documents, tmp_path):
    lengths = [len(row["tokens"]) for row in all_rows(documents)]
    assert values_of(documents) == {("document length", ""): lengths}
    mixed = make_documents(str(tmp_path / "mixed"), sources=("a", "b"))
    by_source: dict[str, list[int]] = {"a": [], "b": []}
    for row in all_rows(mixed):
        by_source[row["source"]].append(len(row["tokens"]))
    assert values_of(mixed) == {("document length", source): own for source, own in by_source.items()}


def test_a_corpus(tmp_path):
    folder = make_corpus(str(tmp_path / "corpus"))
    corpus = Corpus(folder)
    batch = corpus.take(np.arange(len(corpus)))
    found = values_of(folder)
    assert found["sequence length", ""] == batch.tokens.lengths.tolist()
    assert sum(found["part length", ""]) == batch.tokens.lengths.sum()
    assert len(found["part length", ""]) == batch.document_starts.lengths.sum()
    assert len(found["redundancy", ""]) == 5


def test_pairs_by_split(documents, tmp_path):
    folder = make_pairs(str(tmp_path / "pairs"), documents, documents_per_pair=2)
    pairs = PairSet(folder)
    lengths, rows = [len(row["tokens"]) for row in all_rows(documents)], pairs.table(range(len(pairs))).to_pylist()
    found = values_of(folder)
    for split in ("train", "validation"):
        own = [row for row in rows if row["split"] == split]
        assert found["query length", split] == [len(row["query"]) for row in own]
        assert found["target length", split] == [len(target) for row in own for target in row["targets"]]
        wanted = [sum(lengths[place] for place in row["document_rows"]) for row in own]
        assert found["length of a pair's documents", split] == wanted
    assert found["references of a pair", ""] == [len(row["references"]) for row in rows]


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
    for row, value in zip(known, similarity_of(corpus, np.array(known), vectors), strict=True):
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
    with pytest.raises(FarspanError, match=r"no row, so nothing to draw; leave --figure out"):
        draw([(corpus, Distribution("x", np.empty(0), "tokens"))], str(tmp_path / "none.png"))


DRAWS = np.random.default_rng(0)


def lengths(count: int, middle: float, source: str = "", name: str = "document length") -> Distribution:
    values = np.exp(DRAWS.normal(np.log(middle), 0.8, count)).astype(np.int64) + 1
    return Distribution(name, values, "tokens", source)


@pytest.mark.parametrize(
    ("values", "unit", "words"),
    [
        ([100, 200, 300], "tokens", "median 200"),
        ([4096, 12288], "tokens", "median 8,192; 50% of tokens beyond 4k"),
        ([65536] * 3, "tokens", "median 64k; 94% of tokens beyond 4k, 75% beyond 16k"),
        ([0.0004, 0.00053, 0.1], "share", "median 0.053%"),
        ([0.1, 0.25, 0.9], "cosine", "median 0.25"),
        ([5000, 6000, 7000], "documents", "median 6,000"),
    ],
)
def test_the_line_above_a_panel(values: list, unit: str, words: str):
    assert describe(Distribution("x", np.array(values), unit)) == words


def drawn(found, path):
    """The figure before it is written, laid out."""
    with patch("pipelines.inspect.histograms.save") as save:
        draw(found, str(path))
    plt, figure, _ = save.call_args.args
    figure.draw_without_rendering()
    return plt, figure


def test_lines_stand_above_the_panels_one_over_the_other(tmp_path):
    """Measured by matplotlib: no line over the curves, another line, the title, or the edge of the figure."""
    found = [
        ("/a/documents", lengths(500, 6000, "articles-of-an-encyclopedia")),
        ("/a/documents", lengths(500, 110, "leads")),
        ("/b/documents", lengths(500, 110, "leads")),
        ("/b/documents", lengths(500, 400, name="part length")),
        ("/b/documents", Distribution("redundancy", DRAWS.random(300) / 100, "share")),
    ]
    plt, figure = drawn(found, tmp_path / "a.svg")
    for axis in figure.axes:
        boxes = [text.get_window_extent() for text in (*axis.texts, axis._left_title)]
        boxes.sort(key=lambda box: box.y0)
        assert boxes[0].y0 >= axis.get_window_extent().y1
        assert all(lower.y1 <= upper.y0 + 2 for lower, upper in pairwise(boxes))
        assert all(box.x0 >= 0 and box.x1 <= figure.bbox.x1 for box in boxes)
    words = " ".join(text.get_text() for text in figure.axes[0].texts)
    assert re.search(r"a/documents articles-of-an-encyclopedia: median [\d,]+; \d+% of tokens beyond 4k", words)
    plt.close(figure)


def test_a_few_short_rows_leave_no_empty_decades(tmp_path):
    values = np.append(np.repeat(np.arange(4000, 4096), 5), 3)
    plt, figure = drawn([("corpus", Distribution("sequence length", values, "tokens"))], tmp_path / "a.svg")
    (axis,) = figure.axes
    assert axis.get_xlim()[0] > 3900
    assert axis.get_xlabel() == "tokens (0.2% outside)"
    ticks = [label.get_text() for label in axis.get_xticklabels()]
    assert len(set(ticks)) == len(ticks) > 2
    plt.close(figure)


def test_whole_numbers_have_a_bin_each_and_a_handful_no_histogram(tmp_path):
    few = Distribution("cluster size", np.array([3, 5, 9]), "documents")
    many = Distribution("references of a pair", DRAWS.integers(1, 4, 100), "references")
    plt, figure = drawn([("pairs", few), ("pairs", many)], tmp_path / "a.svg")
    first, second = figure.axes
    assert not first.patches
    assert [line.get_xdata().tolist() for line in first.lines] == [[3, 5, 9]]
    edges = np.unique(second.patches[0].get_xy()[:, 0])
    assert edges.tolist() == [0.5, 1.5, 2.5, 3.5, 4.5][: len(edges)]
    plt.close(figure)


def test_of_many_sources_the_largest_are_drawn(tmp_path):
    found = [("documents", lengths(30 + number, 100, f"source-{number}")) for number in range(12)]
    plt, figure = drawn(found, tmp_path / "a.svg")
    words = " ".join(text.get_text() for text in figure.axes[0].texts)
    assert set(re.findall(r"source-\d+", words)) == {f"source-{number}" for number in range(5, 12)}
    assert "5 more, with fewer values, left out" in words
    plt.close(figure)
