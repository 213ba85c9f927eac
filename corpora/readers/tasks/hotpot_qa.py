"""HotpotQA: questions that need two Wikipedia paragraphs, among distractors or paragraphs found by a search engine.

Source: Yang et al. 2018, "HotpotQA"; fields as read by hotpotqa/hotpot: prepro.py. One JSON array in each of
``hotpot_train_v1.1.json``, ``hotpot_dev_distractor_v1.json``, ``hotpot_dev_fullwiki_v1.json`` and
``hotpot_test_fullwiki_v1.json``, which has no answers::

    [{"_id": "...", "question": "...", "answer": "...", "type": "bridge", "level": "hard",
      "supporting_facts": [["Title", 0]], "context": [["Title", ["First sentence.", " Second."]]]}]

A paragraph's key is its title with a hash of the text, so two versions of it are two documents. Attribute
``supporting`` has the positions of the supporting paragraphs in the pair.
"""

from __future__ import annotations

from typing import Any

from corpora.readers.raw_fields import id_of, list_of, require_text
from corpora.readers.raw_tasks import Place, RawDocument, RawPair, RawTask, text_key
from corpora.readers.records import BadRecord
from corpora.readers.task_files import json_records


def parse(record: dict[str, Any], place: Place) -> RawTask:
    """Parse a question and its paragraphs."""
    paragraphs = [paragraph_of(item) for item in list_of(record, "context", list)]
    if not paragraphs:
        raise BadRecord("empty_text", "'context' has no paragraph")
    titles = [title for title, _ in paragraphs]
    facts = list_of(record, "supporting_facts", list) if "supporting_facts" in record else []
    supporting = {str(fact[0]) for fact in facts if fact}
    pair = RawPair(
        pair_id=id_of(record, "_id"),
        documents=tuple(document.key for _, document in paragraphs),
        query=require_text(record, "question"),
        targets=(require_text(record, "answer"),) if "answer" in record else (),
        attributes={
            **{name: record[name] for name in ("type", "level") if name in record},
            "supporting": [position for position, title in enumerate(titles) if title in supporting],
        },
    )
    return RawTask([document for _, document in paragraphs], [pair])


def paragraph_of(item: list[Any]) -> tuple[str, RawDocument]:
    """Return the title of a paragraph and its document."""
    match item:
        case [str(title), list(sentences)] if all(isinstance(sentence, str) for sentence in sentences):
            text = f"{title}\n{''.join(sentences).strip()}".strip()
            return title, RawDocument(f"{title}#{text_key(text)[:8]}", text)
    raise BadRecord("broken_paragraph", f"{str(item)[:100]} is not a title and a list of sentences")


READER = json_records(parse, r"hotpot_.*\.json")
