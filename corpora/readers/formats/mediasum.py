"""MediaSum: interviews as ``{id, program, date, url, title, summary, utt: [...], speaker: [...]}``.

It is published as one JSON array of 4.5 GB (``news_dialogue.json``), which is read interview by interview. A file with
one interview per line is read too. Source: Zhu et al. 2021, "MediaSum", section 3.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from corpora.readers import json_array
from corpora.readers.blocks import BlockBuilder, Reader
from corpora.readers.records import BadRecord, missing_field
from corpora.readers.streams import Line


def fields(path: str) -> dict[str, int]:
    """Map the fields of the first interviews, and ``text``, which the reader builds, to the characters in each."""
    lengths = json_array.fields(path)
    return {**lengths, "text": max(lengths.values(), default=0) + 1} if lengths else {}


def _add(block: BlockBuilder, line: Line) -> None:
    """Add an interview as a record: a line ``speaker: utterance`` for each turn, regardless of ``text_field``."""
    interview = line.record()
    block.add(line.offset, {**interview, block.options.text_field: dialogue(interview)}, line.data)


def dialogue(interview: dict[str, Any]) -> str:
    """Join the turns of an interview, one per line; line ends inside an utterance become spaces."""
    turns, speakers = interview.get("utt"), interview.get("speaker")
    for name, value in (("utt", turns), ("speaker", speakers)):
        if name not in interview:
            raise missing_field(interview, name)
        if not isinstance(value, list) or not all(isinstance(part, str) for part in value):
            raise BadRecord("broken_dialogue", f"{name!r} is not a list of strings")
    assert isinstance(turns, list)
    assert isinstance(speakers, list)
    if len(turns) != len(speakers):
        raise BadRecord("broken_dialogue", f"{len(turns)} utterances of {len(speakers)} speakers")
    pairs = ((" ".join(speaker.split()), " ".join(turn.split())) for speaker, turn in zip(speakers, turns, strict=True))
    return "\n".join(f"{speaker}: {turn}" if speaker else turn for speaker, turn in pairs if turn)


READER = Reader(
    json_array.plan, partial(json_array.read, add=_add), fields, published=True, beside=r"train_val_test_split\.json"
)
