"""Two hosts that share nothing but a network and an object store: TaskManagers in namespaces, with a /tmp of their own.

Skipped where the machine does not permit network namespaces.
"""

import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from moto.server import ThreadedMotoServer

from corpora.storage import files
from corpora.storage.files import read_bytes
from corpora.storage.stores import connect
from tests.flink.cluster import Cluster
from tests.flink.test_flink import documents, inputs  # noqa: F401 (a fixture)
from tests.object_store import upload
from tests.pipelines.conftest import run  # noqa: F401 (a fixture)

pytestmark = pytest.mark.flink
ROOT = Path(__file__).parents[2]
HERE = "10.77.0.1"
HOSTS = ("10.77.0.11", "10.77.0.12")


def ip(*words: str, check: bool = True) -> int:
    return subprocess.run(["ip", *words], capture_output=True, check=check).returncode


@pytest.fixture
def hosts() -> Iterator[list[tuple[str, list[str]]]]:
    """Two hosts beside this one: their addresses, and the words that start a command on each."""
    if ROOT.is_relative_to("/tmp"):
        pytest.skip("this checkout lies in /tmp, which each host has for itself")
    if shutil.which("ip") is None or ip("link", "add", "farspan0", "type", "bridge", check=False):
        pytest.skip("needs the right to make network namespaces (root, and the command ip)")
    made = []
    try:
        ip("addr", "add", f"{HERE}/24", "dev", "farspan0")
        ip("link", "set", "farspan0", "up")
        for number, address in enumerate(HOSTS):
            name, inside = f"farspan-host{number}", f"farspan{number}in"
            ip("netns", "add", name)
            ip("link", "add", f"farspan{number}out", "type", "veth", "peer", "name", inside, "netns", name)
            ip("link", "set", f"farspan{number}out", "master", "farspan0", "up")
            ip("-n", name, "addr", "add", f"{address}/24", "dev", inside)
            ip("-n", name, "link", "set", inside, "up")
            ip("-n", name, "link", "set", "lo", "up")
            own_tmp = 'mount -t tmpfs none /tmp && exec "$@"'
            made.append((address, ["ip", "netns", "exec", name, "unshare", "--mount", "sh", "-c", own_tmp, "sh"]))
        yield made
    finally:
        for number in range(len(HOSTS)):
            ip("netns", "del", f"farspan-host{number}", check=False)
        ip("link", "del", "farspan0", check=False)


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder for the cluster that is not in /tmp, which each host has for itself."""
    path = Path(tempfile.mkdtemp(dir="/var/tmp", prefix="farspan-flink-"))
    yield path
    shutil.rmtree(path)


def test_workers_share_an_object_store_and_nothing_else(hosts, folder, inputs, tmp_path, run):  # noqa: F811
    server = ThreadedMotoServer(ip_address=HERE, port=0, verbose=False)
    server.start()
    settings = {
        "s3_endpoint_url": f"http://{HERE}:{server.get_host_and_port()[1]}",
        "s3_access_key_id": "key",
        "s3_secret_access_key": "secret",
        "s3_region_name": "us-east-1",
    }
    stores = [f"--{name}={value}" for name, value in settings.items()]
    try:
        connect.use_s3_settings(settings)
        import boto3

        boto3.client("s3", endpoint_url=settings["s3_endpoint_url"], region_name="us-east-1", aws_access_key_id="key",
                     aws_secret_access_key="secret").create_bucket(Bucket="bucket")  # fmt: skip
        upload(inputs / "raw", "s3://bucket/raw")
        command = documents(inputs, "s3://bucket/documents")
        command[command.index("--input") + 1] = "s3://bucket/raw"
        with Cluster(folder, HERE, hosts) as cluster:
            flags = [flag for flag in cluster.flags() if flag != "--shared-folders"]
            status, _, errors = run(*command, *flags, *stores)
            assert status == 0, errors
        assert run(*documents(inputs, tmp_path / "documents"))[0] == 0
        connect.use_s3_settings(settings)
        local = {
            str(path.relative_to(tmp_path)): path for path in (tmp_path / "documents").rglob("*") if path.is_file()
        }
        local = {name: path.read_bytes() for name, path in local.items() if not Path(name).name.startswith(".")}
        paths = {path.removeprefix("s3://bucket/"): path for path in files.walk("s3://bucket/documents")}
        found = {name: read_bytes(path) for name, path in paths.items() if not Path(name).name.startswith(".")}
        assert found == local
    finally:
        connect.use_s3_settings({})
        server.stop()
