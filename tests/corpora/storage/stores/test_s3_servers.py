"""An S3 server that is not Python: s3rver, of Node's packages, where ``make s3rver`` has installed it.

These tests need Node, and are not part of ``make test``.
"""

import os
import shutil
import socket
import subprocess
import time
from pathlib import Path

import pytest

from corpora.errors import FarspanError
from corpora.schemas.documents import DocumentSet
from corpora.storage import files
from corpora.storage.shard_cache import ShardCache
from corpora.storage.stores import connect
from corpora.verify.artefact import verify
from pipelines.engine.run import run_job
from tests.artefacts import all_rows, make_documents
from tests.object_store import upload
from tests.pipelines.engine.jobs import cooperative, shared_job

CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "farspan" / "s3rver-3.7.1"
SERVER = shutil.which("s3rver", path=f"{CACHE}/node_modules/.bin{os.pathsep}{os.environ.get('PATH', '')}")

pytestmark = pytest.mark.s3rver


@pytest.fixture
def bucket(tmp_path, monkeypatch):
    """``s3://farspan`` on a server of its own."""
    if SERVER is None:
        pytest.skip("needs s3rver, of Node's packages: make s3rver")
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
        connect.use_s3_settings(
            {
                "s3_endpoint_url": f"http://127.0.0.1:{port}",
                "s3_access_key_id": "S3RVER",
                "s3_secret_access_key": "S3RVER",
                "s3_region_name": "us-east-1",
            }
        )
        yield "s3://farspan"
        connect.use_s3_settings({})
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


def test_a_store_that_ignores_conditions_is_told_from_one_that_keeps_them(bucket, tmp_path):
    """Claims refuse it; a file that is written a second time takes the place of the first, as anywhere."""
    assert files.create_new(f"{bucket}/claim", b"first")
    assert files.create_new(f"{bucket}/claim", b"second")
    with pytest.raises(FarspanError, match=r"ignores If-None-Match\); use --workers there"):
        run_job(shared_job(f"{bucket}/out", {"write-00": 1}), cooperative())
    assert files.walk(f"{bucket}/out") == []
