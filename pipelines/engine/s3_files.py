"""S3, and stores that speak like it, behind farspan's few file operations: Arrow's client, set up by Beam's flags.

Beam's own S3 files build a client for each operation, fetch 16 MiB for a read of any size and publish what a failing
writer has written. Only deleting is left to them, and needs boto3: Arrow takes three requests a file, and puts an empty
object in the place of the folder.
"""

from __future__ import annotations

import io
import os
import re
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import lru_cache
from typing import Any, BinaryIO, cast

import pyarrow as pa
from apache_beam.io.aws.s3io import S3IO
from apache_beam.io.filesystem import FileSystem
from apache_beam.io.filesystems import FileSystems
from apache_beam.options.pipeline_options import PipelineOptions, S3Options
from botocore.exceptions import BotoCoreError
from pyarrow import fs

from corpora.errors import FarspanError

BUFFER = 1 << 20  # bytes that a small read fetches; a smaller file comes whole, with one request
_UPLOAD = 32 << 20  # bytes of a file held in memory on their way

_LEAVE = "it was replaced or deleted while it was read; leave inputs alone while a job runs"
_CURES = {  # by what Arrow and boto3 call the error
    r"access.?denied|invalid.?access.?key|signature.?does|(expired|invalid).?token|secret_key|access_key|credentials": (
        "check --s3_access_key_id and --s3_secret_access_key, or AWS's own variables or profile, and the key's rights "
        "to list, read, write and delete there"
    ),
    r"network.?connection|could not connect|timeout": "check --s3_endpoint_url and the network; finished work is kept",
    r"no.?such.?bucket|invalid bucket name": "make the bucket, or mend its name or --s3_endpoint_url",
    r"no.?such.?key|resource.?not.?found|invalid.?range|\b416\b": _LEAVE,
    r"\b301\b|region": "give the bucket's --s3_region_name",
}


class S3Files:
    """``s3://bucket/key``. Every operation takes its settings from what Beam was given last.

    Raises:
        FarspanError: from every operation, where the store refuses or does not answer. Never ``OSError``, which readers
            take for a damaged file.
        FileNotFoundError: there is no such object.
    """

    def open(self, path: str) -> BinaryIO:
        try:
            file = _Object(path)
        except FileNotFoundError:
            with _explained(path):
                bucket = _client().get_file_info(_key(path).partition("/")[0])
            if bucket.type == fs.FileType.NotFound:
                raise _refusal(path, "no such bucket") from None
            raise
        return io.BytesIO(file.readall()) if file.size <= BUFFER else io.BufferedReader(file, BUFFER)

    @contextmanager
    def create(self, path: str) -> Iterator[BinaryIO]:
        # Arrow's stream publishes what it holds whenever it is closed or forgotten, also by a body that raises. So the
        # body writes to local disk, and what is whole goes up in a thread, which no interrupt reaches.
        with tempfile.NamedTemporaryFile(prefix="farspan-upload-") as file:
            yield cast(BinaryIO, file)
            file.flush()
            with _explained(path), ThreadPoolExecutor(1) as pool:
                pool.submit(_upload, file.name, path).result()

    def exists(self, path: str) -> bool:
        with suppress(FileNotFoundError):
            return self.size(path) >= 0
        return False

    def size(self, path: str) -> int:
        return _Object(path).size

    def match(self, pattern: str) -> list[str]:
        """``*`` stops at a slash and ``**`` does not, as in all of Beam's file systems."""
        if self.exists(pattern):  # as it stands, whatever glob signs its name has
            return [pattern]
        prefix = re.split(r"[*?\[]", pattern)[0]
        if prefix == pattern:
            return []
        folder = prefix.rpartition("/")[0]
        matches = re.compile(FileSystem.translate_pattern(pattern)).match
        below = pattern.removeprefix(folder + "/")
        return [path for path in _list(folder, recursive="/" in below or "**" in below) if matches(path)]

    def walk(self, folder: str) -> list[str]:
        return _list(folder, recursive=True)

    def delete(self, paths: list[str]) -> None:
        if paths:
            with _explained(paths[0]):
                answers = S3IO(options=dict(_settings(FileSystems._pipeline_options))).delete_files(paths)
            for path, error in answers:
                if error:
                    raise _refusal(path, error.message)


class _Object(io.RawIOBase):
    """An object's bytes, a request a read."""

    def __init__(self, path: str) -> None:
        self._path, self._position, self._reads = path, 0, 0
        self._file = _opened(path)
        self.size: int = self._file.size()

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._position = max(0, offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self.size}[whence])
        return self._position

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer).cast("B")
        data = self._read(len(view))
        view[: len(data)] = data
        return len(data)

    def readall(self) -> bytes:
        return self._read(self.size)

    def close(self) -> None:
        """Refuse what may be parts of two objects, which Arrow does not notice and fills with whatever bytes."""
        unsure = self._reads > 1 and not self.closed
        super().close()
        if unsure:
            with suppress(FileNotFoundError):
                if _opened(self._path).metadata() != self._file.metadata():
                    raise FarspanError(f"{self._path}: {_LEAVE}")

    def _read(self, count: int) -> bytes:
        count = min(count, self.size - self._position)
        if count <= 0:
            return b""
        with _explained(self._path):
            data = self._file.read_at(count, self._position)
        self._position += count
        self._reads += 1
        return data


def _upload(local: str, path: str) -> None:
    data = memoryview(pa.memory_map(local).read_buffer())
    with _client().open_output_stream(_key(path), compression=None) as stream:
        for start in range(0, len(data), _UPLOAD):
            stream.write(data[start : start + _UPLOAD])
            stream.flush()  # else Arrow would hold all of a large file in memory until it is sent


def _opened(path: str) -> Any:
    """Arrow's random access file, which has asked for the object's size and no more."""
    if "/" not in _key(path):
        raise FileNotFoundError(f"{path}: a bucket, no file")
    with _explained(path):
        return _client().open_input_file(_key(path))


def _list(folder: str, recursive: bool) -> list[str]:
    try:
        with _explained(folder):
            found = _client().get_file_info(fs.FileSelector(_key(folder), recursive=recursive))
    except FileNotFoundError:
        return []
    return sorted(f"s3://{info.path}" for info in found if info.type == fs.FileType.File)


def _key(path: str) -> str:
    """``bucket/key``, as Arrow has it."""
    return path.removeprefix("s3://").rstrip("/")


def _client() -> fs.S3FileSystem:
    return _client_of(_settings(FileSystems._pipeline_options))


@lru_cache(maxsize=4)
def _settings(options: PipelineOptions | None) -> tuple[tuple[str, Any], ...]:
    """The ``--s3_...`` flags among Beam's options; each pipeline brings options of its own, mostly with equal flags."""
    if options is None:
        return ()
    flags = options.view_as(S3Options).get_all_options(drop_default=True, current_only=True)
    return tuple(sorted(flags.items()))


@lru_cache(maxsize=4)
def _client_of(settings: tuple[tuple[str, Any], ...]) -> fs.S3FileSystem:
    """The client that the flags describe; safe to share between threads."""
    flags = dict(settings)
    url = flags.get("s3_endpoint_url") or os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
    scheme, _, endpoint = (url or "").rstrip("/").rpartition("://")
    return fs.S3FileSystem(
        access_key=flags.get("s3_access_key_id"),
        secret_key=flags.get("s3_secret_access_key"),
        session_token=flags.get("s3_session_token"),
        region=flags.get("s3_region_name"),
        endpoint_override=endpoint or None,
        scheme="http" if scheme == "http" or flags.get("s3_disable_ssl") else "https",
        tls_ca_file_path=flags.get("s3_verify"),
        allow_delayed_open=True,  # one request for a small object, where three would be
        connect_timeout=10,
        request_timeout=60,
        retry_strategy=fs.AwsStandardS3RetryStrategy(max_attempts=3),
    )


@contextmanager
def _explained(path: str) -> Iterator[None]:
    """One line that names the path and the cure, in place of what Arrow and boto3 raise."""
    try:
        yield
    except FileNotFoundError as error:
        raise FileNotFoundError(f"{path}: no such file") from error
    except (OSError, ValueError, BotoCoreError) as error:  # ArrowInvalid is a ValueError
        raise _refusal(path, str(error)) from error


def _refusal(path: str, reason: str) -> FarspanError:
    reason = " ".join(reason.split()).rstrip(".")
    named = reason.rpartition("AWS Error ")[2]  # before it stands the key, which may hold any word
    cures = (cure for words, cure in _CURES.items() if re.search(words, named, re.IGNORECASE))
    return FarspanError(f"{path}: {reason}; {next(cures, 'finished work is kept: try again')}")
