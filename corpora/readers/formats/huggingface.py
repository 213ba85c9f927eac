"""Folders saved by Hugging Face ``datasets`` (``save_to_disk``): their Arrow files with records.

A dataset is a folder with ``data-*.arrow`` (Arrow streams) and ``state.json``, which names them; a DatasetDict is a
folder of datasets. Other ``.arrow`` files beside them are caches of ``map`` and ``filter``.
"""

from __future__ import annotations

import posixpath
from collections.abc import Sequence
from dataclasses import replace

from corpora.errors import FarspanError
from corpora.readers.formats import arrow
from corpora.storage.files import read_user_json

READER = replace(arrow.READER, suffixes=())
_STATE = "state.json"


def data_files(paths: Sequence[str]) -> list[str]:
    """Remove descriptions and caches of saved datasets from the given files, keeping the order."""
    present = set(paths)
    named: dict[str, set[str]] = {}
    for path in paths:
        folder, name = posixpath.split(path)
        if name == _STATE and posixpath.join(folder, "dataset_info.json") in present:
            named[folder] = _read_names(folder)
            if missing := sorted(named[folder] - present):
                raise FarspanError(f"{path} names {missing[0]}, which is missing; save the dataset again")
    return [
        path
        for path in paths
        if posixpath.basename(path) != "dataset_dict.json" and path in named.get(posixpath.dirname(path), present)
    ]


def _read_names(folder: str) -> set[str]:
    path = posixpath.join(folder, _STATE)
    try:
        return {posixpath.join(folder, entry["filename"]) for entry in read_user_json(path)["_data_files"]}
    except (FarspanError, KeyError, TypeError) as error:
        raise FarspanError(f"{path}: not the state of a saved dataset ({error!r}); save the dataset again") from error
