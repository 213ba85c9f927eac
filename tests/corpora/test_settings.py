"""Settings from text: ``KEY=VALUE`` is null, TOML, or a word."""

import pytest

from corpora.errors import FarspanError, nearest
from corpora.settings import assigned, assignment


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("density=0.1", 0.1),
        ("mean_span_lengths=[3, 5]", [3, 5]),
        ("separator=<eos>", "<eos>"),
        ("separator=null", None),
        ("separator = null ", None),
        ("separator='null'", "null"),
        ("separator=nulls", "nulls"),
        ("corpus=a=b", "a=b"),
        ("begin=true", True),
    ],
)
def test_values_are_null_toml_or_a_word(text, value):
    assert assignment(text) == (text.partition("=")[0].strip(), value)


@pytest.mark.parametrize("text", ["density", "=1", " =1", ""])
def test_what_is_no_assignment_is_refused(text):
    with pytest.raises(FarspanError, match="give KEY=VALUE"):
        assignment(text)


@pytest.mark.parametrize(
    "value", [None, True, 0.1, "a=b", 'a "b"', "ü", [3, 5], [["a"], []], {"name": "span", "options": {"density": 0.2}}]
)
def test_what_is_assigned_is_read_back(value):
    assert assignment(assigned("data.objective", value)) == ("data.objective", value)


def test_absurd_values_are_refused_or_text():
    with pytest.raises(FarspanError, match=r"--set a=\.\.\.: its brackets are nested too deep"):
        assignment("a=" + "[" * 60_000)
    assert assignment("a=" + "1" * 5000) == ("a", "1" * 5000)


def test_a_path_is_assigned_as_its_text(tmp_path):
    assert assignment(assigned("data.corpus", tmp_path)) == ("data.corpus", str(tmp_path))


def test_the_nearest_known_word_is_suggested_or_none():
    assert nearest("densty", ["seed", "density"]) == " (did you mean 'density'?)"
    assert nearest("zzz", ["seed", "density"]) == nearest("seed", []) == ""
