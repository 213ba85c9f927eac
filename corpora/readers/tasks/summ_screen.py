"""SummScreen: transcripts of television episodes and their recaps, from ForeverDreaming (fd) and TVMegaSite (tms).

Source: Chen et al. 2022, "SummScreen", section 3; layout as read by mingdachen/SummScreen: data_utils.py, and
tensorflow_datasets: summarization/summscreen::

    SummScreen/{ForeverDreaming,TVMegaSite}/{fd,tms}_{train,dev,test}.json
    {"filename": "...", "Transcript": ["..."], "Recap": ["..."]}
    SummScreen_raw/{fd,tms}/FILENAME    {"Transcript": ["..."], "Recap": ["..."], "Show Title": "..."}

``--format summ-screen-raw`` reads the original text, one file per episode. These files name no splits and include
episodes that the authors filtered out, so the lines of the tokenised files determine the episodes and their splits.
"""

from __future__ import annotations

import re
from typing import Any

from corpora.readers.raw_fields import require_text, require_texts, text_beside
from corpora.readers.raw_tasks import Place, RawDocument, RawPair, RawTask, text_key
from corpora.readers.records import BadRecord
from corpora.readers.task_files import json_lines, json_object

_FILES = r"(fd|tms)_(train|dev|test)\.json"
_RAW_FOLDERS = ("../../SummScreen_raw/", "../SummScreen_raw/")  # from the folder of the lines


def parse(record: dict[str, Any], place: Place) -> RawTask:
    """Parse an episode and its recap."""
    text = "\n".join(require_texts(record, "Transcript"))
    recap = "\n".join(require_texts(record, "Recap"))
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


def parse_raw(record: dict[str, Any], place: Place) -> RawTask:
    """Parse the episode that a line names, and its recap."""
    name = require_text(record, "filename")
    site = re.match("fd|tms", place.name)
    if site is None or "/" in name or name.startswith("."):
        raise BadRecord("unsafe_name", f"{name[:100]!r} in {place.name} is not the file of an episode of fd or tms")
    episode = json_object(text_beside(place, *(f"{folder}{site[0]}/{name}" for folder in _RAW_FOLDERS)).encode())
    return parse({**episode, "filename": name}, place)


READER = json_lines(parse, _FILES)
RAW_READER = json_lines(parse_raw, _FILES)
