"""Clients of stores: credentials and settings, and what a store or the network refuses, in one line with the cure."""

import os
import re
import socket
import sys
import time
import urllib.request

import huggingface_hub.constants
import obstore
import pytest
import transformers

from corpora.errors import FarspanError, StoreError
from corpora.storage import files
from corpora.storage.files import read_bytes, write_bytes
from corpora.storage.stores import client_errors, connect, object_store
from corpora.tokenizers.load import load_tokenizer

OPERATIONS = {
    "exists": files.exists,
    "walk": files.walk,
    "match": lambda path: files.match(path + "*"),
    "open": files.open,
    "write": lambda path: write_bytes(path, b"x"),
    "write large": lambda path: write_bytes(path, bytes(object_store._PART)),
    "delete": lambda path: files.delete([path]),
}


REFUSED = {  # a path and settings of S3 -> the message
    "no bucket": ("s3://nowhere/a", {}, r"s3://nowhere.*make the bucket, or mend its name"),
    "no name of a bucket": ("s3://a b/a", {}, r"s3://a b.*make the bucket, or mend its name"),
    "an unknown key": ("s3://bucket/a", {"s3_access_key_id": "stranger"}, r"s3://bucket.*--s3_access_key_id"),
    "half a key": ("s3://bucket/a", {"s3_secret_access_key": ""}, r"only .*check --s3_access_key_id"),
    "no answer": (
        "s3://bucket/a",
        {"s3_endpoint_url": "http://127.0.0.1:9"},
        r"s3://bucket.*127\.0\.0\.1.*check --s3_endpoint_url",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_refusal_of_any_operation_is_one_line(bucket, store, monkeypatch, case):
    path, settings, message = REFUSED[case]
    monkeypatch.setenv(connect.PATIENCE, "0.1" if case == "no answer" else "2")
    store.check_keys(case == "an unknown key")
    try:
        connect.use_s3_settings(store.settings | settings)
        for name in OPERATIONS:
            if (case, name) == ("no bucket", "exists"):  # all that the protocol tells is that it is not there
                assert not files.exists(path)
                continue
            with pytest.raises(FarspanError) as caught:
                OPERATIONS[name](path)
            assert re.fullmatch(f"{message}.*", str(caught.value)), name
    finally:
        store.check_keys(False)


def test_a_name_with_empty_parts_is_refused(bucket):
    with pytest.raises(FarspanError, match=r"^s3://bucket/a//b: Could not parse path: .*; give a name without empty p"):
        files.open(f"{bucket}/a//b")


def test_a_profile_is_read_by_boto3(bucket, store, tmp_path, monkeypatch):
    profile = tmp_path / "credentials"
    profile.write_text("[mine]\naws_access_key_id = key\naws_secret_access_key = secret\n")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(profile))
    monkeypatch.setenv("AWS_PROFILE", "mine")
    connect.use_s3_settings({"s3_endpoint_url": store.url, "s3_region_name": "us-east-1"})
    write_bytes(f"{bucket}/a", b"x")
    assert read_bytes(f"{bucket}/a") == b"x"
    monkeypatch.setitem(sys.modules, "boto3", None)
    connect._open.cache_clear()
    with pytest.raises(FarspanError, match=r"AWS's profile needs boto3: pip install 'farspan\[s3\]'"):
        files.exists("s3://b/a")


def test_a_forked_process_is_refused_instead_of_waiting_for_threads_that_it_lacks(bucket, monkeypatch):
    files.exists(f"{bucket}/a")
    process = os.getpid() + 1
    with monkeypatch.context() as patch:
        patch.setattr(os, "getpid", lambda: process)
        with pytest.raises(FarspanError, match=r"^s3://bucket: a process that was forked cannot .*start it by spawn"):
            files.exists(f"{bucket}/a")


def test_equal_settings_share_a_client_and_the_environment_may_hold_them(bucket, store, monkeypatch):
    first = connect.open_client(bucket, True, 60)
    connect.use_s3_settings(store.settings)
    assert connect.open_client(bucket, True, 60) is first
    monkeypatch.setenv("AWS_ENDPOINT_URL", store.url)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    connect.use_s3_settings({})
    connect._open.cache_clear()
    write_bytes(f"{bucket}/a", b"x")
    assert files.walk(bucket) == [f"{bucket}/a"]
    files.delete([f"{bucket}/a"])
    assert files.walk(bucket) == []
    connect._open.cache_clear()


def test_without_credentials_public_objects_are_read(bucket, store):
    request = urllib.request.Request(
        f"{store.url}/bucket/a", b"x", {"x-amz-acl": "public-read", "Content-Type": "text/plain"}, method="PUT"
    )
    urllib.request.urlopen(request).close()
    connect.use_s3_settings({"s3_endpoint_url": store.url})
    assert read_bytes(f"{bucket}/a") == b"x"


CLOUDS = {
    "gs://bucket/a/b": "GOOGLE_APPLICATION_CREDENTIALS",
    "gcs://bucket/a/b": "GOOGLE_APPLICATION_CREDENTIALS",
    "abfs://container@account.dfs.core.windows.net/a": "AZURE_CLIENT_ID",
    "abfss://container@account.dfs.core.windows.net/a": "AZURE_CLIENT_ID",
}


@pytest.mark.parametrize("path", CLOUDS)
@pytest.mark.parametrize("on_cloud", [True, False])
def test_google_and_azure_have_their_clients(path, on_cloud, monkeypatch):
    monkeypatch.setattr(connect, "_on_cloud_machine", lambda: on_cloud)
    client = connect.open_client(path[: path.index("/a")], True, 60)
    assert type(client).__name__ == ("GCSStore" if path.startswith("g") else "AzureStore")
    assert client.config.get("skip_signature", "false").lower() == ("false" if on_cloud else "true")
    assert client.retry_config["retry_timeout"].total_seconds() == float(os.environ[connect.PATIENCE])


@pytest.mark.parametrize(
    ("path", "reason", "cure"),
    [
        *((path, "Error performing GET http://x/y in 1ms - Server returned 401: x", CLOUDS[path]) for path in CLOUDS),
        *((path, "Error performing token request: GET http://x - 403", CLOUDS[path]) for path in CLOUDS),
        ("gs://bucket/a", "Error performing GET http://x in 1ms - HTTP error: error sending request", "the network"),
        ("hdfs://namenode:8020/a", "Unable to load libjvm", "JAVA_HOME and HADOOP_HOME"),
        ("hdfs://namenode:8020/a", "Prior attempt to load libhdfs failed", "JAVA_HOME and HADOOP_HOME"),
        ("hdfs://namenode:8020/a", "HDFS connection failed", "the namenode's name and port"),
        ("ftp://a/credentials", "no such luck", "finished work is kept: try again"),
    ],
)  # fmt: skip
def test_a_refusal_is_one_line_with_the_cure(path, reason, cure):
    error = client_errors.refusal(path, ValueError(f"Generic GCS error: {reason}\n\nDebug source:\nmuch"))
    assert str(error).startswith(f"{path}: ")
    assert cure in str(error)
    assert "\n" not in str(error)
    assert " in 1ms" not in str(error)


def test_the_places_where_java_was_looked_for_are_left_out():
    reason = "Unable to load libjvm\n" + "dlopen(/usr/lib/jvm/libjvm.so) failed\n" * 100
    error = client_errors.refusal("hdfs://n:1/a", OSError(reason))
    assert str(error).startswith("hdfs://n:1/a: Unable to load libjvm; install Hadoop's client")


def test_a_store_without_a_network_ends_in_seconds(monkeypatch):
    """Before its first answer, a store is asked for a few seconds only, whatever the patience."""
    monkeypatch.setenv(connect.PATIENCE, "600")
    monkeypatch.setattr(connect, "_FIRST", 0.2)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{closed.getsockname()[1]}"
    monkeypatch.setitem(
        connect.CLIENTS,
        "gs",
        lambda root, options, retry: obstore.store.S3Store(
            "b",
            config={"endpoint": url, "skip_signature": True},
            client_options={"allow_http": True},
            retry_config=retry,
        ),
    )  # fmt: skip
    start = time.monotonic()
    with pytest.raises(StoreError, match=r"^gs://bucket/a: .*127.0.0.1.*; check the network; finished work is kept$"):
        files.open("gs://bucket/a")
    assert time.monotonic() - start < 10


def test_the_hub_without_a_network_is_one_line(monkeypatch):
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{closed.getsockname()[1]}"
    monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", url)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(connect, "getproxies", dict)
    with pytest.raises(StoreError, match=rf"^hf://datasets/a/b/c: no connection to {url}; the hub cannot be reached; "):
        files.open("hf://datasets/a/b/c")
    asked = []

    def load(name, **options):
        asked.append(options["local_files_only"])
        raise OSError("not cached")

    monkeypatch.setattr(transformers.AutoTokenizer, "from_pretrained", load)
    with pytest.raises(FarspanError, match=r"^tokenizer 'nobody/nothing' is not a file or folder, .*check the name"):
        load_tokenizer("nobody/nothing")
    assert asked == [True], "its client must not try for a minute"
