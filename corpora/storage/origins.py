"""Paths of an artefact's parents, in a hidden file beside its manifest.

The manifest names a parent by its checksum only, so equal artefacts have equal manifests wherever they were made.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any

from corpora.errors import FarspanError
from corpora.storage import files
from corpora.storage.files import read_bytes, write_bytes
from corpora.storage.strict_json import StructureError, decode, seal, unseal

NAME = ".origins.json"
_ORIGINS: Any = Mapping[str, str]


def relative_path(output: str, parent: str) -> str:
    """Return the path to record for a parent: relative if both are on local disk or in one bucket.

    A relative path stays valid if both are moved together.
    """
    if _store_of(output) != _store_of(parent):
        return parent
    return os.path.relpath(os.path.realpath(parent), os.path.realpath(output))  # also right for URLs


def write_origins(folder: str, origins: Mapping[str, str]) -> None:
    """Record the paths of parents by role: ``parent`` for that of the manifest, and others."""
    write_bytes(os.path.join(folder, NAME), seal(origins))


def find_parent(folder: str) -> str | None:
    """Return the recorded folder of the parent, which may no longer exist; None if none is recorded."""
    return find_origin(folder, "parent")


def find_origin(folder: str, role: str) -> str | None:
    """Return the recorded folder of the ``parent`` or of a corpus's ``neighbours``; None if none is recorded."""
    path = _read_origins(folder).get(role)
    return path and resolve(folder, path)


def parent_folder(folder: str, flag: str) -> str:
    """Return the recorded folder of the parent."""
    parent = find_parent(folder)
    if parent is None:
        raise FarspanError(
            f"{folder}: {NAME}, which names the folder of its parent, was not copied with it; give it: {flag} FOLDER"
        )
    if files.is_local(parent) and not os.path.exists(parent):
        raise FarspanError(f"{folder}: its parent is no longer in {parent}; if it was moved, give it: {flag} FOLDER")
    return parent


def _read_origins(folder: str) -> Mapping[str, str]:
    path = os.path.join(folder, NAME)
    try:
        origins: Mapping[str, str] = decode(_ORIGINS, unseal(read_bytes(path)))
        return origins
    except FileNotFoundError:
        return {}
    except StructureError as error:
        raise FarspanError(f"{path}: not a record of the artefact's parents ({error}); delete it") from error


def resolve(folder: str, path: str) -> str:
    """Resolve a path that may be relative to ``folder``, on local disk or in a bucket."""
    if not files.is_local(path) or os.path.isabs(path):
        return path
    if files.is_local(folder):  # the path was written relative to the real folder
        return os.path.normpath(os.path.join(os.path.realpath(folder), path))
    start = len(_store_of(folder))
    return folder[:start] + os.path.normpath(os.path.join(folder[start:], path))


def _store_of(path: str) -> str:
    """Return ``scheme://bucket``; empty for local disk."""
    store = re.match(r"\w+://[^/]*", path)
    return store[0] if store else ""
