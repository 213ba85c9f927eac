"""Flink's REST service, as a small server answers for it."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from pipelines.engine.beam.flink import Flink, address_of

JOBS = [
    {"jid": "1", "name": "farspan-a", "state": "FAILED", "start-time": 5},
    {"jid": "2", "name": "farspan-a", "state": "RUNNING", "start-time": 9},
    {"jid": "3", "name": "another", "state": "RUNNING", "start-time": 10},
]


@pytest.fixture
def cluster():
    """A cluster with ``JOBS``; ``patched`` lists what it was asked to change."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            if self.path == "/jobs/overview":
                ended = [] if server.stubborn else [path.split("/")[2].partition("?")[0] for path in server.patched]
                jobs = [{**job, "state": "CANCELED"} if job["jid"] in ended else job for job in JOBS]
                self.answer({"jobs": jobs})
            elif self.path == "/jobs/2/exceptions":
                self.answer({"root-exception": None, "exceptionHistory": {"entries": [{"stacktrace": "Caused by: x"}]}})
            else:
                self.answer("nothing")

        def do_PATCH(self):
            server.patched.append(self.path)
            self.answer({})

        def answer(self, value):
            self.send_response(202)
            self.end_headers()
            self.wfile.write(json.dumps(value).encode())

        def log_message(self, *_):
            pass

    server = HTTPServer(("localhost", 0), Handler)
    server.patched, server.stubborn = [], False
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    yield server
    server.shutdown()


def test_jobs_are_found_by_their_name(cluster):
    flink = Flink(f"localhost:{cluster.server_port}")
    assert flink.last_error("farspan-a") == "Caused by: x"
    assert flink.last_error("farspan-b") == ""
    flink.cancel("farspan-a", 5)
    assert cluster.patched == ["/jobs/2?mode=cancel"]
    flink.cancel("farspan-b", 5)
    cluster.stubborn = True
    with pytest.raises(OSError, match="Flink does not end it"):
        flink.cancel("another", 0)


def test_a_cluster_that_is_not_there():
    with pytest.raises(OSError):
        Flink("http://localhost:9").last_error("farspan-a")


def test_the_address_of_a_master():
    assert address_of("flink:8081") == "http://flink:8081"
    assert address_of("https://flink/") == "https://flink/"
    assert [address_of(inside) for inside in ("[auto]", "[local]", "", None)] == [""] * 4
