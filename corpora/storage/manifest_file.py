"""The manifest in the folder of an artefact, and the other files that it lists.

A folder with a manifest is finished; one without is unfinished and can be resumed from the receipts in ``_work/``.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import BinaryIO

from corpora.errors import FarspanError
from corpora.storage import files
from corpora.storage.files import read_bytes, write_bytes
from corpora.storage.manifest import FileInfo, Manifest
from corpora.storage.manifest_contents import FORMATS, fault
from corpora.storage.stores.local_disk import is_temporary
from corpora.storage.strict_json import StructureError, parse_json

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
    """Read and check a manifest.

    Raises:
        FarspanError: no manifest (not an artefact, or unfinished), an unreadable one, another format or an unknown
            version.
    """
    path = manifest_path(folder)
    if path is None:
        unfinished = any(files.walk(os.path.join(folder, "_work")))
        cure = "run the same command again to resume it" if unfinished else "give the folder that a farspan job wrote"
        raise FarspanError(f"{folder}: {'unfinished' if unfinished else 'no farspan artefact'}, no {NAME}; {cure}")
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
