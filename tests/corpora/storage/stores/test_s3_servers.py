"""An S3 server that is not Python: s3rver, of Node's packages (``npm install s3rver``), where it is installed."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time

import pytest

from corpora.schemas.documents import DocumentSet
from corpora.storage import files
from corpora.storage.copies.shard_cache import ShardCache
from corpora.storage.stores import s3
from corpora.verify.artefact import verify
from tests.artefacts import all_rows, make_documents
from tests.object_store import upload

SERVER = os.environ.get("FARSPAN_S3RVER") or shutil.which("s3rver")


@pytest.fixture
def bucket(tmp_path, monkeypatch):
    """``s3://farspan`` on a server of its own."""
    if SERVER is None:
        pytest.skip("needs s3rver: npm install s3rver, on PATH or named by FARSPAN_S3RVER")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [
        SERVER,
        "-d",
        str(tmp_path / "server"),
        "-a",
        "127.0.0.1",
        "-p",
        str(port),
        "--configure-bucket",
        "farspan",
    ]
    (tmp_path / "server").mkdir()
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        for _ in range(300):
            with socket.socket() as attempt:
                if not attempt.connect_ex(("127.0.0.1", port)):
                    break
            time.sleep(0.1)
        monkeypatch.setenv("AWS_REQUEST_CHECKSUM_CALCULATION", "when_required")  # as docs/engines.md says
        monkeypatch.setenv("AWS_RESPONSE_CHECKSUM_VALIDATION", "when_required")
        s3.use_settings(
            {
                "s3_endpoint_url": f"http://127.0.0.1:{port}",
                "s3_access_key_id": "S3RVER",
                "s3_secret_access_key": "S3RVER",
                "s3_region_name": "us-east-1",
            }
        )
        yield "s3://farspan"
        s3.use_settings({})
        server.kill()


def test_artefacts_are_written_read_verified_and_deleted_there(bucket, tmp_path):
    local = make_documents(str(tmp_path / "documents"), shards=3)
    upload(local, f"{bucket}/documents")
    assert verify(f"{bucket}/documents") == []
    assert all_rows(f"{bucket}/documents") == all_rows(local)
    cached = DocumentSet(f"{bucket}/documents")
    buffer = ShardCache(1 << 20, str(tmp_path / "cache")).map(cached.path(1), cached.manifest.shards[1])
    assert bytes(buffer) == files.read_bytes(f"{local}/shards/{cached.manifest.shards[1].name}")
    files.delete(files.walk(f"{bucket}/documents"))
    assert files.walk(bucket) == []
