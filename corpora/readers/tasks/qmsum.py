"""QMSum: summaries of meetings for queries, general (about the whole meeting) and specific (about some turns).

Source: Zhong et al. 2021, "QMSum"; layout of Yale-LILY/QMSum: data/ALL/jsonl/{train,val,test}.jsonl, one meeting per
line::

    {"topic_list": [...], "general_query_list": [{"query": "...", "answer": "..."}],
     "specific_query_list": [{"query": "...", "answer": "...", "relevant_text_span": [["459", "530"]]}],
     "meeting_transcripts": [{"speaker": "...", "content": "..."}]}

Attribute ``turns`` has the first and last turn of each relevant span. Meetings have no id, so a hash of the text is the
key.
"""

from __future__ import annotations

from typing import Any

from corpora.readers.raw_fields import list_of, optional_text, require_text, task_of_questions
from corpora.readers.raw_tasks import Place, RawDocument, RawPair, RawTask, text_key
from corpora.readers.records import BadRecord
from corpora.readers.task_files import json_lines

_LISTS = {"general": "general_query_list", "specific": "specific_query_list"}


def parse(meeting: dict[str, Any], place: Place) -> RawTask:
    """Parse a meeting and its queries."""
    text = transcript(meeting)
    key = text_key(text)
    queries = [(kind, *item) for kind, name in _LISTS.items() for item in enumerate(list_of(meeting, name, dict))]

    def pair(item: tuple[str, int, dict[str, Any]]) -> RawPair:
        kind, number, query = item
        attributes: dict[str, Any] = {"kind": kind}
        if kind == "specific":
            attributes["turns"] = [turns_of(span) for span in list_of(query, "relevant_text_span", list)]
        return RawPair(
            pair_id=f"{key}_{kind}_{number}",
            documents=(key,),
            query=require_text(query, "query"),
            targets=(require_text(query, "answer"),),
            attributes=attributes,
        )

    return task_of_questions([RawDocument(key, text)], queries, pair)


def transcript(meeting: dict[str, Any]) -> str:
    """Join the turns, each a line ``speaker: content``."""
    turns = list_of(meeting, "meeting_transcripts", dict)
    said = [(optional_text(turn, "speaker"), optional_text(turn, "content")) for turn in turns]
    if not any(content.strip() for _, content in said):
        raise BadRecord("empty_text", "'meeting_transcripts' has no turn with content")
    return "\n".join(f"{speaker}: {content}" for speaker, content in said)


def turns_of(span: list[Any]) -> list[int]:
    """Parse the first and last turn of a span."""
    try:
        first, last = (int(turn) for turn in span)
    except (TypeError, ValueError) as error:
        raise BadRecord("broken_span", f"the span {str(span)[:100]} is not its first and last turn") from error
    return [first, last]


READER = json_lines(parse, r".*\.jsonl|.*\.zip")
