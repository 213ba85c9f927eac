"""The command in this process, and an object store for it to read and write."""

from __future__ import annotations

import logging
import os
import re
import sys
import urllib.request
from collections.abc import Iterator

import pytest
from moto.server import ThreadedMotoServer

from pipelines.cli import main
from pipelines.engine.beam_files import files_for, use_flags


@pytest.fixture
def run(capsys, monkeypatch):
    """Run a command in this process: (status, output, errors)."""
    monkeypatch.setattr("pipelines.cli.leave", sys.exit)

    def call(*arguments):
        status = 0
        try:
            main([str(argument) for argument in arguments])
        except SystemExit as ended:
            status = int(ended.code or 0)
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    return call


class Store:
    """An S3 server on a free port that keeps a list of what it was asked.

    Attributes:
        flags: Beam's flags to reach it.
        requests: (method, ``/bucket/key``, query, range) of each request.
        cut: paths whose next answer breaks off in the middle.
        refused: the next request whose path and query contain this is forbidden.
    """

    def __init__(self) -> None:
        logging.getLogger("werkzeug").setLevel(logging.CRITICAL)
        self._server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
        self._server.start()
        host, port = self._server.get_host_and_port()
        self.url = f"http://{host}:{port}"
        self.flags = self.flags_of("key")
        self.requests: list[tuple[str, str, str, str]] = []
        self.cut: set[str] = set()
        self.refused = ""
        self._app, self._server._server.app = self._server._server.app, self._answer

    def flags_of(self, key: str) -> list[str]:
        return [f"--s3_endpoint_url={self.url}", f"--s3_access_key_id={key}", "--s3_secret_access_key=secret",
                "--s3_region_name=us-east-1"]  # fmt: skip

    def make_bucket(self, name: str) -> str:
        self.ask("PUT", f"/{name}")
        return f"s3://{name}"

    def ask(self, method: str, path: str) -> str:
        """A request that knows nothing of file systems; the answer's text."""
        with urllib.request.urlopen(urllib.request.Request(f"{self.url}{path}", method=method)) as answer:
            return answer.read().decode()

    def keys(self, bucket: str) -> list[str]:
        """All that is in a bucket, folder markers too."""
        return re.findall("<Key>(.*?)</Key>", self.ask("GET", f"/{bucket}"))

    def check_keys(self, checked: bool) -> None:
        """Whether a key that nobody was given is refused."""
        free = b"0" if checked else b"inf"  # requests before the first check
        plain = {"Content-Type": "text/plain"}
        urllib.request.urlopen(urllib.request.Request(f"{self.url}/moto-api/reset-auth", free, plain)).close()

    def asked(self, method: str, part: str) -> int:
        """How many requests of ``method`` were for a path that contains ``part``."""
        return sum(found == method and part in path for found, path, _, _ in self.requests)

    def ranges(self) -> list[list[str]]:
        """First and last byte of each range that was asked for."""
        return [found.removeprefix("bytes=").split("-") for *_, found in self.requests if found]

    def stop(self) -> None:
        self._server.stop()

    def _answer(self, environ, start_response):
        path = environ["PATH_INFO"]
        entry = (environ["REQUEST_METHOD"], path, environ["QUERY_STRING"], environ.get("HTTP_RANGE", ""))
        self.requests.append(entry)
        if self.refused and self.refused in f"{path}?{environ['QUERY_STRING']}":
            self.refused = ""
            start_response("403 Forbidden", [("Content-Type", "application/xml")])
            return [b"<Error><Code>AccessDenied</Code><Message>Access Denied</Message></Error>"]
        body = self._app(environ, start_response)
        if path in self.cut and entry[0] == "GET":
            self.cut.remove(path)
            whole = b"".join(body)
            return iter([whole[: len(whole) // 2]])
        return body


@pytest.fixture(scope="session")
def _store() -> Iterator[Store]:
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("AWS_")]:
            patch.delenv(name)
        patch.setenv("AWS_EC2_METADATA_DISABLED", "true")
        patch.setenv("AWS_CONFIG_FILE", os.devnull)
        patch.setenv("AWS_SHARED_CREDENTIALS_FILE", os.devnull)
        patch.setenv("AWS_MAX_ATTEMPTS", "1")
        patch.setenv("NO_PROXY", "127.0.0.1")
        store = Store()
        yield store
        store.stop()


@pytest.fixture
def store(_store: Store) -> Iterator[Store]:
    """The store, reached by this process's file systems; what it was asked before is forgotten."""
    use_flags(_store.flags)
    _store.requests.clear()
    yield _store
    use_flags([])


@pytest.fixture
def bucket(store: Store, request: pytest.FixtureRequest) -> Iterator[str]:
    """``s3://NAME``, empty."""
    place = store.make_bucket("bucket")
    yield place
    use_flags(store.flags)
    files_for(place).delete(files_for(place).walk(place))
