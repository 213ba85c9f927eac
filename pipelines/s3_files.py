"""S3, and stores that speak like it, behind farspan's few file operations; Beam's own ``--s3_...`` flags set it up.

Beam has S3 files of its own, but they build a client for each operation (50 ms of processor time), fetch 16 MiB for a
read of any size, publish what a failing writer has written, cannot write an empty object and retry for minutes where
nothing answers. Here one client serves a process, a read costs one request of about its size, and an object appears
when its last byte is there, without a copy under another name.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from typing import Any, BinaryIO, cast

from apache_beam.io.aws.clients.s3 import boto3_client
from apache_beam.io.filesystem import FileSystem
from apache_beam.io.filesystems import FileSystems
from apache_beam.options.pipeline_options import PipelineOptions, S3Options
from botocore.exceptions import BotoCoreError, ClientError

from corpora.errors import FarspanError

READ_AHEAD = 64 << 10  # bytes fetched beyond a read; doubled, up to the maximum, while reads follow one another
_MAX_READ_AHEAD = 8 << 20
PART_BYTES = 16 << 20  # an object has at most 10,000 parts
_DELETE_KEYS = 1000  # a request
_ATTEMPTS = 3

_RIGHTS = (
    "check --s3_access_key_id and --s3_secret_access_key, or AWS's own variables or profile, and the key's rights "
    "to list, read, write and delete there"
)
_ADDRESS = "check --s3_endpoint_url and the network; finished work is kept"
_CURES = {
    **dict.fromkeys(("403", "AccessDenied", "InvalidAccessKeyId", "SignatureDoesNotMatch"), _RIGHTS),
    **dict.fromkeys(("ExpiredToken", "InvalidToken", "NoCredentialsError", "PartialCredentialsError"), _RIGHTS),
    **dict.fromkeys(("EndpointConnectionError", "ConnectTimeoutError", "ReadTimeoutError", "SSLError"), _ADDRESS),
    **dict.fromkeys(("301", "PermanentRedirect", "AuthorizationHeaderMalformed"), "give the bucket's --s3_region_name"),
    "NoSuchBucket": "make the bucket, or mend its name or --s3_endpoint_url",
    "PreconditionFailed": "the object was replaced while it was read; leave inputs alone while a job runs",
}


class S3Files:
    """``s3://bucket/key``. Every operation takes its settings from what Beam was given last.

    Raises:
        FarspanError: from every operation, where the store refuses or does not answer. Never ``OSError``, which readers
            take for a damaged file.
        FileNotFoundError: there is no such object.
    """

    def open(self, path: str) -> BinaryIO:
        return cast(BinaryIO, io.BufferedReader(_Object(path), READ_AHEAD))

    @contextmanager
    def create(self, path: str) -> Iterator[BinaryIO]:
        upload = _Upload(path)
        try:
            yield cast(BinaryIO, upload)
            upload.publish()
        except BaseException:
            upload.abort()
            raise

    def exists(self, path: str) -> bool:
        try:
            self.size(path)
        except FileNotFoundError:
            return False
        return True

    def size(self, path: str) -> int:
        bucket, key = _place(path)
        if not key:
            raise FileNotFoundError(f"{path}: a bucket, no file")
        with _explained(path):
            return _client().head_object(Bucket=bucket, Key=key)["ContentLength"]

    def match(self, pattern: str) -> list[str]:
        """``*`` stops at a slash and ``**`` does not, as in all of Beam's file systems."""
        if self.exists(pattern):  # as it stands, whatever glob signs its name has
            return [pattern]
        prefix = re.split(r"[*?\[]", pattern)[0]
        if prefix == pattern:
            return []
        matches = re.compile(FileSystem.translate_pattern(pattern)).match
        return [path for path in self._list(prefix) if matches(path)]

    def walk(self, folder: str) -> list[str]:
        return self._list(folder.rstrip("/") + "/")

    def delete(self, paths: list[str]) -> None:
        keys: dict[str, list[str]] = {}
        for path in paths:
            bucket, key = _place(path)
            keys.setdefault(bucket, []).append(key)
        for bucket, names in keys.items():
            for first in range(0, len(names), _DELETE_KEYS):
                objects = [{"Key": name} for name in names[first : first + _DELETE_KEYS]]
                with _explained(f"s3://{bucket}"):
                    answer = _client().delete_objects(Bucket=bucket, Delete={"Objects": objects, "Quiet": True})
                for refused in answer.get("Errors", ())[:1]:
                    raise FarspanError(f"s3://{bucket}/{refused['Key']}: not deleted: {refused['Message']}; {_RIGHTS}")

    def _list(self, prefix: str) -> list[str]:
        bucket, key = _place(prefix)
        with _explained(prefix):
            pages = _client().get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=key)
            keys = [found["Key"] for page in pages for found in page.get("Contents", ())]
        return sorted(f"s3://{bucket}/{key}" for key in keys if not key.endswith("/"))  # "a/": a folder's marker


class _Object(io.RawIOBase):
    """An object's bytes, read in ranges.

    The first request brings the size and the end: all of a small file, the footer of an Arrow file. The others bring
    what is asked for and ``READ_AHEAD`` more, so that a record batch's header and its body, or lines, are one request.
    """

    def __init__(self, path: str) -> None:
        self._path, self._position, self._ahead = path, 0, READ_AHEAD
        self._conditions: dict[str, str] = {}
        response, self._held = self._get(f"bytes=-{READ_AHEAD}")
        # (start, held): where in the object the bytes at hand begin, and these
        size = response.get("ContentRange", "").rpartition("/")[2]
        self._size = int(size) if size else len(self._held)
        self._start = self._size - len(self._held)
        self._conditions = {"IfMatch": response["ETag"]} if "ETag" in response else {}

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._position = max(0, offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence])
        return self._position

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer).cast("B")
        count = max(0, min(len(view), self._size - self._position))
        view[:count] = self._next(count)
        self._position += count
        return count

    def readall(self) -> bytes:
        data = bytes(self._next(max(0, self._size - self._position)))
        self._position += len(data)
        return data

    def _next(self, count: int) -> memoryview:
        """``count`` bytes from the position on, which are there."""
        stop, end = self._position + count, self._start + len(self._held)
        if count and not self._start <= self._position < stop <= end:
            follows = self._start <= self._position <= end
            kept = self._held[self._position - self._start :] if follows else b""
            self._ahead = min(2 * self._ahead, _MAX_READ_AHEAD) if follows else READ_AHEAD
            first, last = self._position + len(kept), min(self._size, stop + self._ahead) - 1
            self._start, self._held = self._position, kept + self._get(f"bytes={first}-{last}")[1]
        return memoryview(self._held)[self._position - self._start :][:count]

    def _get(self, wanted: str, attempts: int = _ATTEMPTS) -> tuple[Any, bytes]:
        """The answer to a ranged request, and its bytes."""
        bucket, key = _place(self._path)
        with _explained(self._path):
            try:
                answer = _client().get_object(Bucket=bucket, Key=key, Range=wanted, **self._conditions)
            except ClientError as error:
                if _code(error) == "InvalidRange":  # an empty object has no last byte
                    return {}, b""
                raise
            try:
                return answer, answer["Body"].read()
            except BotoCoreError:  # broken off in the middle, where botocore does not try again by itself
                if attempts == 1:
                    raise
        return self._get(wanted, attempts - 1)


class _Upload(io.RawIOBase):
    """An object in the making: one request for a small one, parts for a large one."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._place = dict(zip(("Bucket", "Key"), _place(path), strict=True))
        self._held = bytearray()
        self._upload: dict[str, str] = {}
        self._parts: list[dict[str, Any]] = []
        self._sent = 0

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._sent + len(self._held)

    def write(self, data: Any) -> int:
        view = memoryview(data).cast("B")
        self._held += view
        if len(self._held) >= PART_BYTES:
            self._send()
        return view.nbytes

    def publish(self) -> None:
        """Make the object visible, whole."""
        with _explained(self._path):
            if not self._upload:
                _client().put_object(**self._place, Body=self._held)
                return
            if self._held:
                self._send()
            _client().complete_multipart_upload(**self._place, **self._upload, MultipartUpload={"Parts": self._parts})

    def abort(self) -> None:
        """Have the store forget the parts; the failure that led here is the one to report."""
        if self._upload:
            with suppress(BotoCoreError, ClientError):
                _client().abort_multipart_upload(**self._place, **self._upload)

    def _send(self) -> None:
        with _explained(self._path):
            if not self._upload:
                self._upload = {"UploadId": _client().create_multipart_upload(**self._place)["UploadId"]}
            number = len(self._parts) + 1
            part = _client().upload_part(**self._place, **self._upload, PartNumber=number, Body=self._held)
        self._parts.append({"PartNumber": number, "ETag": part["ETag"]})
        self._sent += len(self._held)
        self._held = bytearray()


def _client() -> Any:
    return _client_of(_settings(FileSystems._pipeline_options))


@lru_cache(maxsize=4)
def _settings(options: PipelineOptions | None) -> tuple[tuple[str, Any], ...]:
    """The ``--s3_...`` flags among Beam's options; each pipeline brings options of its own, mostly with equal flags."""
    if options is None:
        return ()
    flags = options.view_as(S3Options).get_all_options(drop_default=True, current_only=True)
    return tuple(sorted(flags.items()))


@lru_cache(maxsize=4)
def _client_of(settings: tuple[tuple[str, Any], ...]) -> Any:
    """The boto3 client that Beam makes of its flags; safe to share between threads."""
    return boto3_client.Client(dict(settings)).client


def _place(path: str) -> tuple[str, str]:
    bucket, _, key = path.removeprefix("s3://").partition("/")
    return bucket, key


def _code(error: Exception) -> str:
    return error.response["Error"]["Code"] if isinstance(error, ClientError) else type(error).__name__


@contextmanager
def _explained(path: str) -> Iterator[None]:
    """One line that names the path and the cure, in place of what botocore raises."""
    try:
        yield
    except (ClientError, BotoCoreError) as error:
        code = _code(error)
        if code in ("404", "NoSuchKey"):
            raise FileNotFoundError(f"{path}: no such file") from error
        reason = " ".join(str(error).split()).rstrip(".")
        raise FarspanError(f"{path}: {reason}; {_CURES.get(code, 'finished work is kept: try again')}") from error
