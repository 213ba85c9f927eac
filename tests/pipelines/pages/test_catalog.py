"""Folders of artefacts and runs: what lies there, and what was made from what."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from corpora.errors import FarspanError
from pipelines.pages.catalog import Entry, find_entries
from pipelines.view.graph import HEIGHT, draw_graph
from tests.artefacts import make_corpus
from tests.pipelines.pages.invented import make_run
from trainer.data.config import SourceConfig


@pytest.fixture(scope="module")
def root(made, tmp_path_factory) -> Path:
    """Copies of the artefacts in folders of their own, a run, an unfinished job, and a damaged manifest."""
    root = tmp_path_factory.mktemp("root")
    for name, folder in made.items():
        shutil.copytree(folder, root / "data" / name)
    mixture = [SourceConfig(name="a", corpus=str(root / "data/corpus"), masks=str(root / "data/spans"))]
    make_run(str(root / "runs" / "one"), mixture, made["corpus"])
    (root / "half" / "_work").mkdir(parents=True)
    shutil.copytree(made["pairs"], root / "broken")
    (root / "broken" / "manifest.json").write_text("{")
    return root


def test_all_are_found_with_their_parents(root):
    entries = {entry.title: entry for entry in find_entries([str(root)])}
    kinds = {title: (entry.kind, entry.state) for title, entry in entries.items()}
    assert kinds == {
        "broken": ("artefact", "unreadable"),
        "data/corpus": ("corpus", "finished"),
        "data/documents": ("documents", "finished"),
        "data/first": ("predictions", "finished"),
        "data/pairs": ("pairs", "finished"),
        "data/second": ("predictions", "finished"),
        "data/sentences": ("masks", "finished"),
        "data/spans": ("masks", "finished"),
        "half": ("job", "unfinished"),
        "runs/one": ("run", "stopped"),
    }
    parents = {entry.name: set(entry.parents) for entry in entries.values() if entry.parents}
    assert parents == {
        "first": {"pairs"},
        "pairs": {"documents"},
        "second": {"pairs"},
        "sentences": {"corpus"},
        "spans": {"corpus"},
        "one": {"corpus", "spans"},
    }
    assert entries["data/spans"].rows == 2 * entries["data/corpus"].rows
    assert entries["data/corpus"].size > 0


def test_equal_names_are_told_apart(root, made, tmp_path):
    make_corpus(str(tmp_path / "corpus"), seed=1)
    names = [entry.name for entry in find_entries([made["corpus"], str(tmp_path)])]
    assert names == ["corpus", "corpus-2"]
    with pytest.raises(FarspanError, match="holds no artefact and no run"):
        find_entries([str(tmp_path / "nowhere")])


def test_parents_stand_left_of_what_was_made_from_them(root):
    entries = find_entries([str(root)])
    graph = draw_graph(entries)
    places = {entry.name: (x, y) for entry, x, y in graph.boxes}
    assert len(set(places.values())) == len(entries)
    for entry in entries:
        assert all(places[parent][0] < places[entry.name][0] for parent in entry.parents)
    assert len(graph.edges) == 6  # that from the corpus to the run goes through its masks
    columns: dict[int, list[int]] = {}
    for x, y in places.values():
        columns.setdefault(x, []).append(y)
    assert all(b - a > HEIGHT for ys in columns.values() for a, b in zip(sorted(ys), sorted(ys)[1:], strict=False))


def test_a_circle_of_parents_is_drawn():
    ends = [Entry(name, name, name, "run", parents=(other,)) for name, other in (("a", "b"), ("b", "a"))]
    assert len(draw_graph(ends).boxes) == 2
