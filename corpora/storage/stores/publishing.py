"""Uploading of whole files, so that none appears on a store before it is complete."""

from __future__ import annotations

import os
from contextlib import suppress

import pyarrow as pa
from fsspec import AbstractFileSystem
from pyarrow import fs

from corpora.storage.stores import s3
from corpora.storage.stores.exclusive import Unsupported, create_new, fsspec_below, publishes_whole
from corpora.storage.temporary import temporary_name

_UPLOAD = 32 << 20  # bytes of a file held in memory while it is sent
_ATOMIC = ("s3", "gcs")  # file systems where an object appears only when complete


class Publisher:
    """Uploads to one store, by keys inside Arrow's file system.

    Its methods raise the errors of the store's client.
    """

    def __init__(self, system: fs.FileSystem, root: str) -> None:
        """
        Args:
            root: ``scheme://authority`` of the store.
        """
        self._system, self._root, self._fsspec = system, root, fsspec_below(system)

    def publish(self, local: str, key: str, replace: bool) -> bool:
        """Send a local file; False if the store has a file with other bytes under that key and ``replace`` is False."""
        if not replace and (published := self._publish_new(local, key)) is not None:
            return published
        if self._system.type_name in _ATOMIC:
            self._send(local, key)
            return True
        temporary = temporary_name(key)
        try:
            self._system.create_dir(key.rpartition("/")[0], recursive=True)
            self._send(local, temporary)
            return self._move_over(local, temporary, key, replace)
        except BaseException:
            with suppress(Exception):
                self.delete(temporary)
            raise

    def _publish_new(self, local: str, key: str) -> bool | None:
        """Publish with ``replace=False`` on a store that creates whole files exclusively; None on other stores."""
        try:
            if self._system.type_name == "s3":
                bucket, _, name = key.partition("/")
                made = s3.upload_new(bucket, name, local)
            elif publishes_whole(self._system):
                with open(local, "rb") as file:
                    made = create_new(self._system, self._root, key, file.read())
            else:
                return None
        except Unsupported:
            return None
        return made or self._equal(local, key)

    def _send(self, local: str, key: str) -> None:
        data = memoryview(pa.memory_map(local).read_buffer())
        with self._system.open_output_stream(key, compression=None) as stream:
            for start in range(0, len(data), _UPLOAD):
                stream.write(data[start : start + _UPLOAD])
                stream.flush()  # otherwise Arrow holds a large file in memory until all is sent

    def _move_over(self, local: str, source: str, target: str, replace: bool) -> bool:
        """Move a file, also on stores that never move onto a file (HDFS); there, an equal file is kept.

        Args:
            local: local file with the contents of ``source``.
            replace: False to return False rather than replace a file with other bytes on such a store.
        """
        try:
            self._move(source, target)
        except OSError:
            if self._system.get_file_info(target).type != fs.FileType.File:
                raise
            equal = self._equal(local, target)
            if equal or not replace:
                self.delete(source)
                return equal
            aside = temporary_name(target)
            self._move(target, aside)
            try:
                self._move(source, target)
            except BaseException:
                self._move(aside, target)
                raise
            self.delete(aside)
        return True

    def _equal(self, local: str, key: str) -> bool:
        with open(local, "rb") as ours, self._system.open_input_file(key) as theirs:
            return os.path.getsize(local) == theirs.size() and all(
                part == theirs.read(len(part)) for part in iter(lambda: ours.read(_UPLOAD), b"")
            )

    def _move(self, source: str, target: str) -> None:
        if self._fsspec and self._fsspec.mv.__func__ is not AbstractFileSystem.mv:  # the base class's expands globs
            self._fsspec.mv(source, target)
        elif self._fsspec:
            self._fsspec.cp_file(source, target)
            self._fsspec.rm_file(source)
        elif self._system.type_name == "abfs":  # moves only in accounts with hierarchical names
            self._system.copy_file(source, target)
            self._system.delete_file(source)
        else:
            self._system.move(source, target)

    def delete(self, key: str) -> None:
        """Delete a file; one already gone is no error."""
        with suppress(FileNotFoundError):
            (self._fsspec.rm_file if self._fsspec else self._system.delete_file)(key)
