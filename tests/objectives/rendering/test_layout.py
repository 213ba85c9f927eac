"""Tokens that a layout adds to a source, and corpora that it refuses."""

import itertools
import re

import pytest

from corpora.errors import FarspanError
from objectives.api.protocol import CorpusFacts
from objectives.rendering.layout import Layout

TOKENS = (None, "<doc-sep>")
LAYOUTS = [Layout(begin, "<eos>", *edges) for begin in TOKENS for edges in itertools.product(TOKENS, repeat=3)]


def facts(tokens: int, parts: int, length: int, per_sequence: int, per_document: int) -> CorpusFacts:
    return CorpusFacts(32_000, {}, length, tokens, parts, per_sequence, per_document)


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
@pytest.mark.parametrize("parts", [0, 1, 4])
def test_positions_are_counted_as_they_are_rendered(layout, parts):
    document = [layout.before, "text", layout.after]
    row = [layout.begin, *([*document, layout.between] * parts)[:-1], layout.end]
    assert layout.around(parts) == sum(token not in (None, "text") for token in row)


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
@pytest.mark.parametrize(("per_sequence", "per_document"), itertools.product(range(3), range(4)))
def test_a_corpus_is_refused_where_a_row_may_not_fit_and_taken_where_the_cure_was_followed(
    layout, per_sequence, per_document
):
    parts, tokens = 5, 40
    length = tokens + per_sequence + per_document * parts
    # The corpus's fullest row is of 5 parts; one with other parts may be as full.
    full = facts(tokens + per_document * (parts - 1), parts, length, per_sequence, per_document)
    try:
        layout.check("test", full)
    except FarspanError as error:
        sequence, document = re.search(r"--room-per-sequence (\d) --room-per-document (\d)", str(error)).groups()
        layout.check("test", facts(tokens, parts, 1, int(sequence), int(document)))
        return
    for count in range(1, parts + 1):
        assert length - per_sequence - per_document * count + layout.around(count) <= length


def test_a_small_corpus_is_taken_without_room_for_all():
    Layout(between="<doc-sep>").check("test", facts(50, 3, 54, 0, 0))
    with pytest.raises(FarspanError, match="puts 2 positions around a sequence and 1 around a document"):
        Layout(between="<doc-sep>").check("test", facts(50, 3, 53, 0, 0))


def test_the_cure_leaves_the_room_that_there_is():
    """Or the next corpus would suit this objective and no other."""
    bare = Layout(begin=None, end=None, before="<doc-s>", after="</doc-s>")
    with pytest.raises(FarspanError, match="build it with --room-per-sequence 2 --room-per-document 2"):
        bare.check("test", facts(60, 3, 64, 2, 1))
