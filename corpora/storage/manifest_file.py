"""The manifest in the folder of an artefact, the other files that it lists, and the paths of the artefact's parents.

A folder with a manifest is finished; one without is unfinished and can be resumed from the receipts in ``_work/``.
The manifest names a parent by its checksum only, so equal artefacts have equal manifests wherever they were made. The
paths of parents are in a hidden file beside it.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from glob import escape as glob_escape
from glob import glob
from typing import Any, BinaryIO

from corpora.errors import FarspanError
from corpora.storage import files
from corpora.storage.files import read_bytes, write_bytes
from corpora.storage.manifest import FileInfo, Manifest
from corpora.storage.manifest_contents import FORMATS, fault
from corpora.storage.stores.local_disk import is_temporary
from corpora.storage.strict_json import StructureError, decode, parse_json, seal, unseal

NAME = "manifest.json"
EXPORT_NAME = ".farspan.json"  # name in an export, whose readers may take every file that is not hidden for data
NAMES = (NAME, EXPORT_NAME)
CARD = "README.md"  # derived from the manifest, which therefore does not list it
_RESTORE = "restore it from its source, or make the artefact again"


def manifest_path(folder: str) -> str | None:
    """Return the path of a folder's manifest; None if it has none."""
    paths = (os.path.join(folder, name) for name in NAMES)
    return next(filter(files.exists, paths), None)


def manifest_name(format: str) -> str:
    """Return the name of the manifest of an artefact with this format."""
    return EXPORT_NAME if format == "farspan.export" else NAME


def write_manifest(folder: str, manifest: Manifest) -> None:
    """Write the manifest of a folder."""
    write_bytes(os.path.join(folder, manifest_name(manifest.format)), manifest.to_json())


def read_manifest(folder: str, format: str | None = None) -> Manifest:
    """Read and check a manifest, of any format unless one is given."""
    path = manifest_path(folder)
    if path is None:
        if any(files.walk(os.path.join(folder, "_work"))):
            raise FarspanError(f"{folder}: unfinished, no {NAME}; run the same command again to resume it")
        inside = " or ".join(sorted(glob(os.path.join(glob_escape(folder), "*", NAME)))[:3]).replace(f"/{NAME}", "")
        cure = f"give one that it contains, such as {inside}" if inside else "give the folder that a farspan job wrote"
        raise FarspanError(f"{folder}: no farspan artefact, no {NAME}; {cure}")
    try:
        data = read_bytes(path)
        if kind := _other_kind(data):
            raise FarspanError(f"is {kind!r}, which no job makes; give the folder of an artefact")
        manifest = Manifest.from_json(data)
        if wrong := fault(manifest):
            raise StructureError(wrong)
    except (StructureError, OSError) as error:
        raise FarspanError(f"{path}: not a manifest of farspan ({error}); {_RESTORE}") from error
    except FarspanError as error:
        raise FarspanError(f"{path}: {error}") from None
    if format is not None and manifest.format != format:
        raise FarspanError(f"{folder}: is {manifest.format!r} where {format!r} is needed; give another folder")
    return manifest


def _other_kind(data: bytes) -> str | None:
    """Return the format of a file that is another manifest of farspan than an artefact's, e.g. a model's.

    An artefact's has shards, and a model's has none.
    """
    values = parse_json(data)
    kind = values.get("format") if isinstance(values, dict) and "shards" not in values else None
    return kind if isinstance(kind, str) and kind.startswith("farspan.") and kind not in FORMATS else None


def manifest_sha256(folder: str) -> str:
    """Return the hexadecimal sha256 of a folder's manifest, which names the artefact."""
    return hashlib.sha256(read_bytes(manifest_path(folder) or os.path.join(folder, NAME))).hexdigest()


def file_info(file: BinaryIO) -> FileInfo:
    """Return size and sha256 of the rest of an open file."""
    digest, size = hashlib.sha256(), 0
    while data := file.read(1 << 20):
        digest.update(data)
        size += len(data)
    return FileInfo(size, digest.hexdigest())


def list_files(folder: str, known: Mapping[str, FileInfo] | None = None) -> dict[str, FileInfo]:
    """Return the ``files`` entry of a manifest: all files in the folder that are neither shards nor hidden.

    Reads several at a time, because each request to an object store takes long, and none that is ``known``.
    """
    names = [os.path.relpath(path, folder) for path in files.walk(folder)]
    names = [name for name in names if is_listed(name)]

    def info(name: str) -> FileInfo:
        if known and name in known:
            return known[name]
        with files.open(os.path.join(folder, name)) as file:
            return file_info(file)

    with ThreadPoolExecutor(8) as pool:
        return dict(zip(names, pool.map(info, names), strict=True))


def is_listed(path: str) -> bool:
    """Return True if a manifest lists the file: not shards, ``_work/``, hidden or temporary files, manifest, card."""
    folder = path.partition("/")[0]
    return (
        not is_temporary(path)
        and path not in (NAME, CARD)
        and folder not in ("shards", "_work")
        and not os.path.basename(path).startswith(".")
    )


ORIGINS_NAME = ".origins.json"
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
    write_bytes(os.path.join(folder, ORIGINS_NAME), seal(origins))


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
            f"{folder}: {ORIGINS_NAME}, which names the folder of its parent, was not copied with it; give it: {flag} "
            "FOLDER"
        )
    if files.is_local(parent) and not os.path.exists(parent):
        raise FarspanError(f"{folder}: its parent is no longer in {parent}; if it was moved, give it: {flag} FOLDER")
    return parent


def _read_origins(folder: str) -> Mapping[str, str]:
    path = os.path.join(folder, ORIGINS_NAME)
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
