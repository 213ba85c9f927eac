"""ZeroSCROLLS: prompts whose document lies between two places."""

from __future__ import annotations

import pytest

from corpora.readers import ReadOptions
from tests.corpora.readers.tasks import read_documents, read_pairs, rejected_pairs, write_lines

ZERO = ReadOptions(format="zero-scrolls")
HEAD, TEXT, TAIL = "You are given a story.\n\nStory:\n", "The ferry left.\n\nNobody saw it.", "\n\nAnswer:\nWho saw it?"


def record(name: str, **changed: object) -> dict:
    prompt = HEAD + TEXT + TAIL
    places = {"document_start_index": len(HEAD), "document_end_index": len(HEAD + TEXT)}
    places |= {"query_start_index": len(HEAD + TEXT) + 2, "query_end_index": len(prompt)}
    return {"id": name, "pid": f"{name}_0", "input": prompt, "output": "Nobody.", **places, **changed}


def test_the_query_is_the_prompt_without_the_document(tmp_path):
    path = write_lines(tmp_path / "narrative_qa" / "validation.jsonl", [record("a"), record("b", output=None)])
    assert list(read_documents(path, ZERO).values()) == [TEXT]
    first, second = read_pairs(path, ZERO)
    assert first.query == "You are given a story.\n\nStory:\n\nAnswer:\nWho saw it?"
    assert (first.split, first.targets, second.targets) == ("validation", ("Nobody.",), ())
    assert first.attributes == {"subset": "narrative_qa"}


@pytest.mark.parametrize(
    "changed",
    [
        {"document_start_index": 70},
        {"document_end_index": 10_000},
        {"query_start_index": 0},
        {"query_start_index": None},
    ],
)
def test_wrong_places_are_rejected(tmp_path, changed):
    path = write_lines(tmp_path / "squality" / "test.jsonl", [record("a", **changed), record("b")])
    assert rejected_pairs(path, ZERO) == [("0", "wrong_index")]
