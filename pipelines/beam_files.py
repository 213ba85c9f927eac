"""Beam's file systems (S3, GCS, HDFS, ...) behind farspan's few file operations."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO

from apache_beam.io.filesystem import CompressionTypes
from apache_beam.io.filesystems import FileSystems

from corpora.files import Files, LocalFiles, temporary_name

_RAW = CompressionTypes.UNCOMPRESSED  # readers decompress: Beam's own decompression hides a truncated gzip


def files_for(path: str) -> Files:
    """The local disk for a plain path, Beam's file systems for ``scheme://``."""
    return BeamFiles() if "://" in path else LocalFiles()


class BeamFiles:
    """Whatever Beam reaches. Object stores publish a file when it is closed; others by renaming a temporary one."""

    def open(self, path: str) -> BinaryIO:
        return FileSystems.open(path, compression_type=_RAW)

    @contextmanager
    def create(self, path: str) -> Iterator[BinaryIO]:
        # Beam publishes what was written even when the body raises, so only a complete file gets its name.
        temporary = temporary_name(path)
        file = FileSystems.create(temporary, compression_type=_RAW)
        try:
            yield file
            file.close()
            FileSystems.rename([temporary], [path])
        except BaseException:
            file.close()
            self.delete([temporary])
            raise

    def exists(self, path: str) -> bool:
        return FileSystems.exists(path)

    def size(self, path: str) -> int:
        found = FileSystems.match([path])[0].metadata_list
        if not found:
            raise FileNotFoundError(f"{path}: no such file")
        return found[0].size_in_bytes

    def match(self, pattern: str) -> list[str]:
        return sorted(found.path for found in FileSystems.match([pattern])[0].metadata_list)

    def walk(self, folder: str) -> list[str]:
        return self.match(folder.rstrip("/") + "/**")

    def delete(self, paths: list[str]) -> None:
        present = [path for path in paths if self.exists(path)]
        if present:
            FileSystems.delete(present)
