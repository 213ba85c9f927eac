"""ContractNLI: 607 contracts, each of which entails, contradicts or does not mention each of 17 hypotheses.

Source: Koreeda and Manning 2021, "ContractNLI", section 3; fields as read by stanfordnlp/contract-nli-bert:
contract_nli/dataset/loader.py. Files ``train.json``, ``dev.json``, ``test.json``, each one object::

    {"documents": [{"id": 34, "text": "...", "spans": [[0, 50]], "annotation_sets": [{"annotations":
         {"nda-1": {"choice": "Entailment", "spans": [3, 7]}}}]}],
     "labels": {"nda-1": {"hypothesis": "..."}}}

Attribute ``evidence`` holds the [start, stop) characters of the evidence.
"""

from __future__ import annotations

from typing import Any

from corpora.readers.raw_fields import id_of, list_of, object_of, require_text, task_of_questions
from corpora.readers.raw_tasks import Place, RawDocument, RawPair, RawTask
from corpora.readers.records import BadRecord
from corpora.readers.task_files import json_object, whole_files

OPTIONS = {"Entailment": "Entailment", "Contradiction": "Contradiction", "NotMentioned": "Not mentioned"}
Contract = tuple[dict[str, Any], dict[str, Any]]  # its document, and the labels of the file


def contracts(data: bytes, place: Place) -> list[tuple[str, Contract]]:
    """List the contracts of a file, each with all hypotheses."""
    file = json_object(data)
    labels = object_of(file, "labels")
    return [(str(number), (document, labels)) for number, document in enumerate(list_of(file, "documents", dict))]


def parse(contract: Contract, place: Place) -> RawTask:
    """Parse a contract and its hypotheses."""
    document, labels = contract
    key = id_of(document, "id")
    sets = list_of(document, "annotation_sets", dict)
    if len(sets) != 1:
        raise BadRecord("annotation_sets", f"{len(sets)} sets of annotations, where the data set has one")
    annotations = object_of(sets[0], "annotations")
    spans = list_of(document, "spans", list)

    def pair(label: str) -> RawPair:
        annotation = object_of(annotations, label)
        choice = require_text(annotation, "choice")
        if choice not in OPTIONS:
            raise BadRecord("unknown_label", f"{label}: 'choice' is {choice!r}, not one of {', '.join(OPTIONS)}")
        numbers = list_of(annotation, "spans", int)
        return RawPair(
            pair_id=f"{key}_{label}",
            documents=(key,),
            query=require_text(object_of(labels, label), "hypothesis"),
            targets=(OPTIONS[choice],),
            options=tuple(OPTIONS.values()),
            attributes={"hypothesis": label, "evidence": [spans[n] for n in numbers if 0 <= n < len(spans)]},
        )

    return task_of_questions([RawDocument(key, require_text(document, "text"))], annotations, pair)


READER = whole_files(contracts, parse, r"(train|dev|test)\.json")
