"""An S3 server on this machine."""

import logging
import re
import socket
import urllib.request
from pathlib import Path

from moto.server import ThreadedMotoServer

from corpora.storage import files


def upload(folder: object, remote: str) -> None:
    """Copy all files of a local ``folder`` into the folder ``remote`` of a store."""
    for path in files.walk(str(folder)):
        files.write_bytes(f"{remote}/{Path(path).relative_to(str(folder))}", files.read_bytes(path))


class Store:
    """An S3 server on a free port that keeps a list of what it was asked.

    Attributes:
        settings: what ``corpora.storage.stores.connect.use_s3_settings`` needs to reach it.
        flags: the same as Beam's flags.
        requests: (method, ``/bucket/key``, query, range) of each request.
        cut: paths whose next answer breaks off in the middle.
        lost: (method, path) of requests that are carried out, and whose next answer is lost.
        unavailable: number of requests that are answered with 503 from now on.
        conditions: False if the store does not know ``If-None-Match``.
        refused: the next request whose path and query contain this is forbidden.
    """

    def __init__(self) -> None:
        logging.getLogger("werkzeug").setLevel(logging.CRITICAL)
        self._server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
        self._server.start()
        host, port = self._server.get_host_and_port()
        self.url = f"http://{host}:{port}"
        self.settings = self.settings_of("key")
        self.flags = self.flags_of("key")
        self.requests: list[tuple[str, str, str, str]] = []
        self.cut: set[str] = set()
        self.lost: set[tuple[str, str]] = set()
        self.unavailable = 0
        self.conditions = True
        self.refused = ""
        self._app, self._server._server.app = self._server._server.app, self._answer

    def settings_of(self, key: str) -> dict[str, str]:
        return {"s3_endpoint_url": self.url, "s3_access_key_id": key, "s3_secret_access_key": "secret",
                "s3_region_name": "us-east-1"}  # fmt: skip

    def flags_of(self, key: str) -> list[str]:
        return [f"--{name}={value}" for name, value in self.settings_of(key).items()]

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
        """True if a key that nobody was given is refused."""
        free = b"0" if checked else b"inf"  # requests before the first check
        plain = {"Content-Type": "text/plain"}
        urllib.request.urlopen(urllib.request.Request(f"{self.url}/moto-api/reset-auth", free, plain)).close()

    def asked(self, method: str, part: str) -> int:
        """Number of requests of ``method`` for a path that contains ``part``."""
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
        if self.unavailable:
            self.unavailable -= 1
            start_response("503 Slow Down", [("Content-Type", "application/xml")])
            return [b"<Error><Code>SlowDown</Code><Message>Reduce your request rate</Message></Error>"]
        if "HTTP_IF_NONE_MATCH" in environ and not self.conditions:
            start_response("501 Not Implemented", [("Content-Type", "application/xml")])
            return [b"<Error><Code>NotImplemented</Code><Message>A header you provided</Message></Error>"]
        body = self._app(environ, start_response)
        if entry[:2] in self.lost:
            self.lost.remove(entry[:2])
            b"".join(body)
            environ["werkzeug.socket"].shutdown(socket.SHUT_RDWR)
            return []
        if path in self.cut and entry[0] == "GET":
            self.cut.remove(path)
            whole = b"".join(body)
            return iter([whole[: len(whole) // 2]])
        return body
