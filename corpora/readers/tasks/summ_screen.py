"""SummScreen: transcripts of television episodes and their recaps, from ForeverDreaming (fd) and TVMegaSite (tms).

Source: Chen et al. 2022, "SummScreen", section 3; layout as read by mingdachen/SummScreen: data_utils.py, and
tensorflow_datasets: summarization/summscreen. Not checked against the original files. The splits are JSON lines of
tokenised text::

    SummScreen/{ForeverDreaming,TVMegaSite}/{fd,tms}_{train,dev,test}.json
    {"filename": "...", "Transcript": ["..."], "Recap": ["..."]}

The document has one line for each entry of the transcript, and the reference one for each entry of the recap. For the
original text without tokenisation, which SCROLLS uses, give ``--format summ-screen-raw``.
"""

from __future__ import annotations

import re
from typing import Any

from corpora.readers.task_data.declaration import Place, RawDocument, RawPair, RawTask, text_key
from corpora.readers.task_data.fields import filled_texts
from corpora.readers.task_data.files import json_lines

FILES = r"(fd|tms)_(train|dev|test)\.json"


def parse(record: dict[str, Any], place: Place) -> RawTask:
    """Parse an episode and its recap."""
    text = "\n".join(filled_texts(record, "Transcript"))
    recap = "\n".join(filled_texts(record, "Recap"))
    site = re.match("fd|tms", place.name)
    name = record.get("filename")
    key = f"{site[0]}/{name.removesuffix('.json')}" if site and isinstance(name, str) and name else text_key(text)
    show = record.get("Show Title")
    pair = RawPair(
        pair_id=key,
        documents=(key,),
        targets=(recap,),
        attributes={"show": show} if isinstance(show, str) and show else {},
    )
    return RawTask([RawDocument(key, text)], [pair])


READER = json_lines(parse, FILES)
