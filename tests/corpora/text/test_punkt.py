"""The compiled boundaries are those of nupunkt itself, on ordinary and on adversarial text."""

import re
from pathlib import Path

import numpy as np
import nupunkt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corpora.text import punkt, utf8
from corpora.text.sentences import SentenceSplitter, load_splitter
from corpora.text.utf8 import byte_offsets

CHARACTERS = ".?!…'\"”’»)]}*([{“‘«:;,@#&-–_%/` \t\n\r\x00\x0b\x1c\x85\xa0\u2028\u3000aAbBiIvxZ019éÉßδΔǅשלم世😀"
CHARACTERS += "\u200b٣²\u212a\u0130"
WORDS = [". . .", " .", "...", "--", "''", "foo.)", "\n\n", "\r\n\r\n", "Mr.", "etc.", "Vlorë. ", "x" * 30, "." * 140]
WORDS += ["a.b.c.d " * 40, "No. They ", "Inc. xx, ", ". " * 20, "http://a.b/c.d?e "]
WORDS += [
    f"{word}. " for word in "(a) iv 12 12345678901 Dr U.S St century No e.g J.R.R A don't hello 1980s 1990".split()
]
WORDS += [f"{word} " for word in "123) I'm Army The It World! well-known. 3.14 ISBN".split()]

pieces = st.one_of(st.sampled_from(WORDS), st.sampled_from(CHARACTERS))
runs = st.tuples(pieces, st.integers(1, 200)).map(lambda run: run[0] * run[1])
marked = st.lists(st.one_of(pieces, pieces, pieces, runs), max_size=30).map("".join)
texts = st.one_of(marked, st.text(max_size=60))


@pytest.fixture(scope="module")
def splitter():
    return load_splitter("nupunkt")


def assert_equal(splitter, texts):
    """The compiled starts of texts, as characters and as bytes, are those of nupunkt's spans."""
    plain = SentenceSplitter("nupunkt", "", splitter.spans)
    expected = [plain.boundaries(text) for text in texts]
    data = [text.encode(errors="surrogatepass") for text in texts]
    found = splitter.compiled.starts(data)
    assert len(found) == len(texts)
    for text, encoded, want, starts in zip(texts, data, expected, found, strict=True):
        assert starts.tolist() == byte_offsets(encoded, want).tolist(), repr(text)


def test_the_installed_version_is_compared():
    """If this fails, read what changed in nupunkt's tokenizer before naming its version in ``COMPARED``."""
    assert nupunkt.__version__ in punkt.COMPARED
    assert load_splitter("nupunkt").compiled


@given(batch=st.lists(texts, max_size=8))
@settings(deadline=None, max_examples=60)
def test_boundaries_are_those_of_nupunkt(splitter, batch):
    assert_equal(splitter, batch)


@pytest.mark.slow
@given(batch=st.lists(texts, max_size=20))
@settings(deadline=None, max_examples=1_000)
def test_boundaries_are_those_of_nupunkt_on_much_more(splitter, batch):
    assert_equal(splitter, batch)


@pytest.mark.slow
def test_boundaries_of_real_text_are_those_of_nupunkt(splitter):
    """Source code, licences and documentation in several languages: 20 MB of the installed packages."""
    folder, size, batch = Path(nupunkt.__file__).parents[1], 0, []
    for path in sorted(folder.rglob("*")):
        if path.suffix in {".md", ".rst", ".txt", ".py", ".html"} or path.name.startswith("LICENSE"):
            batch.append(path.read_text("utf-8", errors="replace")[:1_000_000])
            size += len(batch[-1])
            if size > 20_000_000:
                break
    assert len(batch) > 100
    assert_equal(splitter, batch)


BY_HAND = [
    "",
    " ",
    "a",
    "a.",
    ".",
    ". ",
    " Foo. Bar",
    "Dr. Smith saw Mr. Jones at 5 p.m. on Monday. They spoke.",
    'He said: "Go." Then he left. (So he did.) "Why?" he asked. ‘Is it?’ Yes.',
    "1. Introduction\n2. Method. It is\n   (iv). More",
    "Wait . . . what? Wait. . . . Then. He left . . . She stayed. . . and went . ! Yes",
    "It cost 5. Then 6. \n\nThen he left in the U.S. Army. J. Smith. A.\n\nThe end. no. 5",
    "What?! No! ! ! Yes ? Yahoo! in 1995 ... And so on… He left… and went.",
    "a.)b He left.[1] She stayed.* They went.”x And.’ 1",
    "word. -- He. ) ] Bar. ) x",
    "\ud800. \udfff Foo. Bar",
]


def test_boundaries_by_hand(splitter):
    assert_equal(splitter, BY_HAND)


@pytest.mark.parametrize("character", [*CHARACTERS, ". ", "! ", ". .", "a. "])
def test_runs_of_one_character(splitter, character):
    assert_equal(splitter, [character * 30_000, "He left. " + character * 300 + " She stayed. They went."])


def test_passages_beyond_the_limits_are_hidden_as_from_nupunkt(splitter):
    crowd, stretch = "-. " * 10_000, "é?!" * 5_000
    parts = ["He left the house. Naïve. " * 50, crowd, "She stayed. ", stretch, " Wörter. " * 9_000, "x. y " * 5_000]
    assert_equal(splitter, ["".join(parts), "".join(parts[::-1]), "A. B.", stretch])


def test_starts_depend_on_no_other_text(splitter):
    """Any order, any division into batches, with and without what was decided before."""
    batch = [*BY_HAND, *(word * 50 + "Then. It is. " for word in WORDS)] * 2
    data = [text.encode(errors="surrogatepass") for text in batch]
    found = [row.tolist() for row in splitter.compiled.starts(data)]
    fresh = load_splitter("nupunkt").compiled
    assert [fresh.starts([text]).values.tolist() for text in reversed(data)] == found[::-1]


def test_next_words_that_stand_for_others_are_unknown_to_the_model(splitter):
    """Every word that the model knows, after an abbreviation, a number and an initial, and words that it does not."""
    parameters = nupunkt.load_default_model().parameters
    words = sorted({*parameters.sent_starters, *(second for _, second in parameters.collocations), "i", "qwer", "xx"})
    firsts = ["e.g.", "U.S.", "Mr.", "ca.", "n.", "12.", "so…", "well..."]
    lines = [
        "".join(f"On {first}{gap}{word} it\n" for first in firsts for gap in (" ", " \n\n")) for word in words[::3]
    ]
    assert_equal(splitter, ["".join(lines), "".join(line.title() for line in lines)])


def test_many_bytes_are_scanned_in_several_calls(splitter, monkeypatch):
    data = ["He left. She stayéd. ".encode() * count for count in (1, 3, 0, 40, 7)]
    expected = [row.tolist() for row in splitter.compiled.starts(data)]
    monkeypatch.setattr(punkt, "_AT_ONCE", 100)
    assert [row.tolist() for row in splitter.compiled.starts(iter(data))] == expected
    assert len(splitter.compiled.starts([])) == 0


def test_little_text_is_left_to_nupunkt():
    """Compiled code takes longer to load than nupunkt takes for it; the boundaries are the same."""
    text = "He left. She stayéd. He came. " * 20_000
    splitter = load_splitter("nupunkt")
    little = splitter.byte_boundaries([text[:3_000], ""])
    assert splitter.compiled._tables is None
    much = splitter.byte_boundaries([text, "", text])
    assert splitter.compiled._tables is not None
    assert much[0].tolist() == much[2].tolist()
    assert much[0][: len(little[0])].tolist() == little[0].tolist()
    assert byte_offsets(text, splitter.boundaries(text)).tolist() == much[0].tolist()


def test_other_models_are_left_to_nupunkt(monkeypatch):
    model = nupunkt.load_default_model()
    assert punkt.is_known(model)
    model.parameters.ortho_context["he"] = 2
    assert not punkt.is_known(model)
    monkeypatch.setattr(nupunkt, "__version__", "0.0.1")
    assert not punkt.is_known(nupunkt.load_default_model())
    assert load_splitter("nupunkt").compiled is None


def test_kinds_are_those_of_str_and_re():
    kinds = punkt.character_kinds()
    everything = "".join(map(chr, range(0x110000)))
    patterns = {utf8.SPACE: r"\s", utf8.LETTER: r"[^\W\d_]", utf8.DECIMAL: r"\d", utf8.MARK: "[.?!…]"}
    for bit, pattern in patterns.items():
        assert [found.start() for found in re.finditer(pattern, everything)] == np.flatnonzero(kinds & bit).tolist()
    lower = [code for code, character in enumerate(everything) if character.islower()]
    assert lower == np.flatnonzero(kinds & utf8.LOWER).tolist()
