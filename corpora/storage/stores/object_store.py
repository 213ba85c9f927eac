"""Files on S3, Google's and Azure's stores, by obstore."""

from __future__ import annotations

import io
import mmap
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, cast

from corpora.errors import FarspanError
from corpora.storage.stores.client_errors import REPLACED, Unsupported, explain_errors, is_definite, is_passing, status
from corpora.storage.stores.connect import open_client, patience
from corpora.storage.stores.local_disk import FileState
from corpora.storage.stores.remote import BUFFER, RangeFile, RemoteStore

_TIMEOUT = 60  # seconds of an attempt
_RATE = 1 << 20  # bytes a second that an upload reaches at least
_PARTS = 9_000  # of an upload
_PART, _SENDERS = 16 << 20, 4  # bytes of a part at least, and parts sent at a time
_WHOLE = 5 << 30  # bytes that stores take in one request at most
_THREADS = 8  # requests at a time
_POLL = 0.2  # seconds between two attempts at a conditional request

_REQUEST = 16 << 20  # bytes of a request at most
_TAIL = 1 << 16  # bytes at the end that are read together: formats read their tables there piece by piece

_answered: set[str] = set()  # roots of stores that have answered this process


class ObjectStore(RemoteStore):
    """The operations of ``corpora.storage.files`` on an object store.

    An object appears when it is complete. Requests that fail are repeated by the client, for as long as
    ``connect.patience`` says.
    """

    def open(self, path: str) -> BinaryIO:
        size, version, head = self._begin(path)
        if size <= BUFFER:
            return io.BytesIO(head)
        tail = size - _TAIL
        kept = {0: head}  # start -> bytes

        def read(start: int, stop: int) -> bytes:
            """Read by one request, except in the first and last bytes of the file."""
            if start >= tail and tail not in kept:
                kept[tail] = self._read(path, version, tail, size)
            stop = min(stop, start + _REQUEST)
            parts = (part[start - first : stop - first] for first, part in kept.items() if first <= start)
            return next(filter(None, parts), b"") or self._read(path, version, start, stop)

        return io.BufferedReader(RangeFile(size, read), BUFFER)

    def _begin(self, path: str) -> tuple[int, str | None, bytes]:
        """Return the size of a file, its store's name for these contents, and its first bytes."""
        from obstore.exceptions import BaseError

        with explain_errors(path):
            try:
                result = self._ask("get", self._key(path), options={"range": (0, BUFFER)})
                return result.meta["size"], result.meta["e_tag"], bytes(result.bytes())
            except BaseError as error:
                outside = status(error) == 416 or "Invalid range" in str(error)
                if not outside or self.size(path):  # an empty object has no ranges
                    raise
                return 0, None, b""

    def _read(self, path: str, version: str | None, start: int, stop: int) -> bytes:
        """Read a range of a file."""
        from obstore.exceptions import PreconditionError

        condition = {"if_match": version} if version else {}
        with explain_errors(path):
            try:
                answer = self._ask("get", self._key(path), options={"range": (start, stop), **condition})
                return bytes(answer.bytes())
            except (FileNotFoundError, PreconditionError) as error:
                raise FarspanError(f"{path}: {REPLACED}") from error

    def state(self, path: str) -> FileState:
        with explain_errors(path):
            meta = self._ask("head", self._key(path))
        modified = str(meta["last_modified"].timestamp())
        return FileState(meta["size"], meta["e_tag"] or modified, modified)

    def list_paths(self, folder: str, recursive: bool) -> list[str]:
        prefix = folder.removeprefix(self._root).strip("/") or None
        with explain_errors(folder):
            if recursive:
                entries = [entry for chunk in self._ask("list", prefix, take=list) for entry in chunk]
            else:
                entries = list(self._ask("list_with_delimiter", prefix)["objects"])
        found = [(f"{self._root}/{entry['path']}", entry["size"]) for entry in entries]
        # obstore lists the marker of a folder, an empty object "folder/", by the folder's name
        return [path for path, size in found if size or self.exists(path)]

    @contextmanager
    def create(self, path: str, taken: Callable[[], None] | None = None) -> Iterator[BinaryIO]:
        with tempfile.NamedTemporaryFile(prefix="farspan-upload-") as file:
            yield cast(BinaryIO, file)
            file.flush()
            if taken is not None:
                with suppress(Unsupported):
                    if self._create_from(path, file.name):
                        return
                    taken()
            self._upload(path, file.name)

    def delete(self, paths: list[str]) -> None:
        keys = [self._key(path) for path in paths]

        def delete(key: str) -> None:
            with suppress(FileNotFoundError):
                self._ask("delete", key)

        with explain_errors(paths[0]):
            if self._root.startswith("s3:"):
                self._ask("delete", keys)  # a thousand in one request; those already gone are no error
            else:
                with ThreadPoolExecutor(_THREADS) as pool:
                    list(pool.map(delete, keys))

    def renew(self, path: str, data: bytes) -> bool:
        from obstore.exceptions import PreconditionError

        key = self._key(path)

        def attempt() -> bool:
            try:
                meta = self._ask("head", key)
                version = {name: meta[name] for name in ("e_tag", "version") if meta[name]}
                self._ask("put", key, data, mode=version, brief=True)
                return True
            except (FileNotFoundError, PreconditionError) as error:
                if "NoSuchBucket" in str(error):
                    raise
                if isinstance(error, PreconditionError) and status(error) != 404:  # perhaps our own, its answer lost
                    raise TimeoutError("another request for it is under way") from error
                return False

        with explain_errors(path):
            return self._insist(attempt)

    def create_new(self, path: str, data: Any) -> bool:
        """Put an object unless it exists, in one request.

        If the answer to a request is lost, the object may be there already when it is repeated: its contents decide.
        """
        from obstore.exceptions import AlreadyExistsError, BaseError, NotSupportedError

        # in steps of a minute, because objects with equal time-outs share a client
        key, timeout, lost = self._key(path), _TIMEOUT * (1 + len(data) // (_TIMEOUT * _RATE)), False

        def attempt() -> bool:
            nonlocal lost
            try:
                self._ask("put", key, data, mode="create", timeout=timeout, brief=True)
                return True
            except AlreadyExistsError as error:
                if not lost and is_definite(error):
                    return False
                if (equal := self._equals(path, data)) is None:  # another request for it is under way
                    raise TimeoutError("another request for it is under way") from error
                return equal
            except BaseError as error:
                if isinstance(error, NotSupportedError) or status(error) == 501:
                    raise Unsupported(f"{self._root}: the store refuses If-None-Match") from error
                lost = True
                raise

        with explain_errors(path):
            return self._insist(attempt)

    def _insist(self, attempt: Callable[[], bool]) -> bool:
        """Make a conditional request, which the client does not repeat in all cases, until the patience has ended."""
        end = time.monotonic() + patience(self._root in _answered)
        while True:
            try:
                return attempt()
            except Exception as error:
                if not is_passing(error) or time.monotonic() > end:
                    raise
            time.sleep(_POLL)

    def _create_from(self, path: str, local: str) -> bool:
        """Create an object from a local file unless one with other bytes exists."""
        size = os.path.getsize(local)
        if size > _WHOLE:
            raise Unsupported(f"{path}: too large for one request")
        with open(local, "rb") as file:
            data = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) if size else b""
        return self.create_new(path, data) or bool(self._equals(path, data))

    def _upload(self, path: str, local: str) -> None:
        size = os.path.getsize(local)
        part = max(_PART, -(-size // _PARTS))
        whole: Any = Path(local) if size > part else Path(local).read_bytes()
        with explain_errors(path):
            self._ask("put", self._key(path), whole, chunk_size=part, max_concurrency=_SENDERS, timeout=2 * _TIMEOUT)

    def _equals(self, path: str, data: Any) -> bool | None:
        """Compare an object with local bytes; None if there is no object."""
        try:
            with self.open(path) as file:
                view, start = memoryview(data), 0
                while part := file.read(_PART):
                    if view[start : start + len(part)] != part:
                        return False
                    start += len(part)
                return start == len(view)
        except FileNotFoundError:
            return None

    def _key(self, path: str) -> str:
        """Return the path inside the store."""
        if not (key := path.removeprefix(self._root).strip("/")):
            raise FileNotFoundError(f"{path}: a bucket, no file")
        return key

    def _ask(
        self,
        request: str,
        *arguments: Any,
        take: Callable[[Any], Any] = lambda answer: answer,
        timeout: int = _TIMEOUT,
        brief: bool = False,
        **options: Any,
    ) -> Any:
        """Make a request by the function of obstore that has its name, and return what ``take`` makes of the answer.

        ``timeout``: seconds of an attempt. ``brief``: True to repeat it for a few seconds only.
        """
        import obstore  # slow to import, and local work does not need it

        known = self._root in _answered
        try:
            client = open_client(self._root, known and not brief, timeout)
            answer = take(getattr(obstore, request)(client, *arguments, **options))
        except Exception as error:
            if status(error):
                _answered.add(self._root)
                if not known and not brief and is_passing(error):  # the store is there, and needs patience
                    return self._ask(request, *arguments, take=take, timeout=timeout, **options)
            raise
        _answered.add(self._root)
        return answer
