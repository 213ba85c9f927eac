"""Stores other than S3: the client that each URL gets, and one line with the cure where it lacks credentials."""

from __future__ import annotations

import subprocess
from types import SimpleNamespace

import pytest

from corpora.errors import FarspanError
from corpora.storage import files
from corpora.storage.stores import credentials, remote


@pytest.fixture
def asked(monkeypatch):
    """The requests of Arrow; each is refused with ``answer[0]``."""
    remote._connected.cache_clear()
    credentials.require_azure.cache_clear()
    uris, answer = [], ["no answer"]

    def from_uri(uri):
        uris.append(uri)
        raise OSError(answer[0])

    monkeypatch.setattr(remote.fs, "FileSystem", SimpleNamespace(from_uri=from_uri))
    monkeypatch.setattr(credentials, "require_azure", lambda root: None)
    yield uris, answer
    remote._connected.cache_clear()


@pytest.mark.parametrize(
    ("path", "uri"),
    [
        ("gs://bucket/a/b", "gs://bucket/?retry_limit_seconds=60"),
        ("gcs://bucket/a/b", "gcs://bucket/?retry_limit_seconds=60"),
        ("abfs://container@account.dfs.core.windows.net/a", "abfs://container@account.dfs.core.windows.net/"),
        ("abfss://container@account.dfs.core.windows.net/a", "abfss://container@account.dfs.core.windows.net/"),
        ("hdfs://namenode:8020/a", "hdfs://namenode:8020/"),
        ("viewfs://cluster/a", "viewfs://cluster/"),
    ],
)
def test_arrow_opens_its_own_stores(asked, path, uri):
    uris, _ = asked
    with pytest.raises(FarspanError, match=r"no answer; finished work is kept"):
        files.exists(path)
    assert uris == [uri]


@pytest.mark.parametrize(
    ("path", "reason", "cure"),
    [
        ("gs://bucket/a", "UNAVAILABLE: Could not create a OAuth2 access token", "GOOGLE_APPLICATION_CREDENTIALS"),
        ("abfs://c@a/b", "Failed to get token from DefaultAzureCredential", "AZURE_CLIENT_ID"),
        ("hdfs://namenode:8020/a", "Unable to load libjvm", "JAVA_HOME and HADOOP_HOME"),
        ("hdfs://namenode:8020/a", "Prior attempt to load libhdfs failed", "JAVA_HOME and HADOOP_HOME"),
        ("hdfs://namenode:8020/a", "HDFS connection failed", "the namenode's name and port"),
    ],
)
def test_a_client_without_credentials_is_told_what_it_needs(asked, path, reason, cure):
    asked[1][0] = f"{reason}\non the second line"
    with pytest.raises(FarspanError) as caught:
        files.read_bytes(path)
    assert str(caught.value).startswith(f"{path}: {reason} on the second line; ")
    assert cure in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_places_where_java_was_looked_for_are_left_out(asked):
    asked[1][0] = "Unable to load libjvm\n" + "dlopen(/usr/lib/jvm/libjvm.so) failed\n" * 100
    with pytest.raises(FarspanError, match=r"hdfs://n:1/a: Unable to load libjvm; install Hadoop's client"):
        files.exists("hdfs://n:1/a")


@pytest.mark.parametrize("status", [-6, 1, 0])
def test_azure_is_tried_where_it_can_abort(monkeypatch, status):
    credentials.require_azure.cache_clear()
    monkeypatch.setattr(subprocess, "run", lambda command, **_: subprocess.CompletedProcess(command, status))
    if status < 0:
        with pytest.raises(FarspanError, match=r"abfs://c@a: no credentials for Azure were found; set AZURE_CLIENT_ID"):
            credentials.require_azure("abfs://c@a")
    else:
        credentials.require_azure("abfs://c@a")
    credentials.require_azure.cache_clear()
