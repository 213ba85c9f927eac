"""Other file systems than the local disk: Beam's (GCS, HDFS, ...) behind farspan's few file operations, and S3."""

from __future__ import annotations

import glob
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import BinaryIO

from apache_beam.io.filesystem import CompressionTypes, FileSystem
from apache_beam.io.filesystems import FileSystems
from apache_beam.options.pipeline_options import PipelineOptions

from corpora.errors import FarspanError
from corpora.storage.files import Files, LocalFiles, temporary_name

_RAW = CompressionTypes.UNCOMPRESSED  # readers decompress: Beam's own decompression hides a truncated gzip


def use_flags(flags: Sequence[str]) -> None:
    """Set up the file systems of this process by Beam's flags (``--s3_endpoint_url``, ...).

    A pipeline does as much for the process that runs it and for its workers; what reads files before needs this.
    """
    FileSystems.set_options(PipelineOptions(list(flags)))


def files_for(path: str) -> Files:
    """The local disk for a plain path, S3 for ``s3://``, Beam's file systems for any other ``scheme://``.

    Raises:
        FarspanError: nothing installed knows the scheme.
    """
    scheme, remote, _ = path.partition("://")
    if not remote:
        return LocalFiles()
    if scheme == "s3":
        try:
            from pipelines.engine.s3_files import S3Files
        except ImportError as error:
            raise FarspanError(f"{path}: s3:// needs boto3; pip install 'farspan[s3]'") from error
        return S3Files()
    if scheme not in {system.scheme() for system in FileSystem.get_all_subclasses()}:
        raise FarspanError(
            f"{path}: no file system {scheme}:// is installed; add the one Beam has (apache-beam[gcp] for gs://), or "
            "copy the files to local disk"
        )
    return BeamFiles()


class BeamFiles:
    """Whatever Beam reaches, with a rename at the end of every write."""

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
        if not self.exists(path):
            raise FileNotFoundError(f"{path}: no such file")
        return FileSystems.get_filesystem(path).size(path)

    def match(self, pattern: str) -> list[str]:
        return sorted(found.path for found in FileSystems.match([pattern])[0].metadata_list)

    def walk(self, folder: str) -> list[str]:
        return self.match(glob.escape(folder.rstrip("/")) + "/**")

    def delete(self, paths: list[str]) -> None:
        present = [path for path in paths if self.exists(path)]
        if present:
            FileSystems.delete(present)
