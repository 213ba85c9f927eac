"""Faults of single pairs, without a job."""

from __future__ import annotations

from corpora.readers import ReadOptions
from corpora.readers.options import PAIRS_OF
from corpora.readers.task_data.declaration import RawPair
from pipelines.pairs.tokenize import ReadPair, ReadPairs


def fault_of(pair: RawPair, format: str) -> str:
    read = ReadPairs("output", "documents", {"mine": ReadOptions(format=f"{PAIRS_OF}{format}")}, "data", ())
    found = read._fault(ReadPair(pair, "", "mine", "train.jsonl", "0", []), {})
    assert found is not None
    return found[1]


def test_a_pair_of_ones_own_without_answer_names_the_fields_that_may_hold_it():
    pair = RawPair(pair_id="p", documents=(), split="train", attributes={"summary": "Short.", "year": 1})
    told = "pair 'p' has no answer, and pairs of split train need one"
    hint = "; its other fields: summary, year; name that of the answer with --reference-field"
    assert fault_of(pair, "pairs") == told + hint
    assert fault_of(pair, "qasper") == told
