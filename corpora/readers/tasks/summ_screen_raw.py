"""SummScreen with the original text, not tokenised: one file per episode.

Source and splits as in ``summ_screen``. The published files with the original text name no splits and include episodes
that the authors filtered out. So the lines of the tokenised files determine the episodes and their splits::

    SummScreen/{ForeverDreaming,TVMegaSite}/{fd,tms}_{train,dev,test}.json   {"filename": "..."}
    SummScreen_raw/{fd,tms}/FILENAME                   {"Transcript": ["..."], "Recap": ["..."], "Show Title": "..."}

``SummScreen_raw`` is beside ``SummScreen``, or in it.
"""

from __future__ import annotations

import re
from typing import Any

from corpora.readers.records import BadRecord
from corpora.readers.task_data.declaration import Place, RawTask
from corpora.readers.task_data.fields import filled_text, text_beside
from corpora.readers.task_data.files import json_lines, json_object
from corpora.readers.tasks import summ_screen

_FOLDERS = ("../../SummScreen_raw/", "../SummScreen_raw/")  # from the folder of the lines


def parse(record: dict[str, Any], place: Place) -> RawTask:
    """Parse the episode that a line names, and its recap."""
    name = filled_text(record, "filename")
    site = re.match("fd|tms", place.name)
    if site is None or "/" in name or name.startswith("."):
        raise BadRecord("unsafe_name", f"{name[:100]!r} in {place.name} is not the file of an episode of fd or tms")
    episode = json_object(text_beside(place, *(f"{folder}{site[0]}/{name}" for folder in _FOLDERS)).encode())
    return summ_screen.parse({**episode, "filename": name}, place)


READER = json_lines(parse, summ_screen.FILES)
