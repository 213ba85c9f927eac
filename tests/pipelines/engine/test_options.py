"""The options of the engine, the choice of workers, and the flags of object stores."""

from __future__ import annotations

import os

import pytest

from corpora.errors import FarspanError
from corpora.storage.stores import s3
from pipelines.documents.options import Documents
from pipelines.engine.options import Engine, Finalize, use_store_flags
from tests.pipelines.typed import typed

SMALL, LARGE = 1 << 20, 1 << 30


def test_a_small_job_stays_in_this_process():
    assert Engine().worker_count(100, SMALL) == 1


def test_a_large_job_has_a_worker_for_each_core_but_no_more_than_tasks():
    cores = len(os.sched_getaffinity(0))
    assert Engine().worker_count(1000, LARGE) == cores
    assert Engine().worker_count(1, LARGE) == 1
    assert Engine(workers=7).worker_count(1000, SMALL) == 7
    assert Engine(workers=7).worker_count(3, SMALL) == 3
    assert Engine(workers=7).worker_count(0, SMALL) == 1


def test_workers_cannot_be_negative():
    with pytest.raises(FarspanError, match="--workers -1: give 0"):
        Engine(workers=-1)


def test_a_time_limit_cannot_be_negative():
    with pytest.raises(FarspanError, match="--worker-timeout -1: give a positive number of seconds"):
        Engine(worker_timeout=-1)


def test_the_budget_of_a_job_that_is_finalized_is_that_of_documents():
    assert typed(Finalize, "folder").error_budget == Documents.error_budget
    assert typed(Finalize, "folder --error-budget 0.5") == Finalize(output="folder", error_budget=0.5)


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ([], {}),
        (["--s3_endpoint_url=http://host:1/"], {"endpoint": "http://host:1"}),
        (["--s3_endpoint_url=https://host/a"], {"endpoint": "https://host/a"}),
        (["--s3_endpoint_url=host", "--s3_disable_ssl"], {"endpoint": "http://host"}),
        (["--s3_region_name=r"], {"region": "r"}),
        (["--s3_access_key_id=a", "--s3_secret_access_key=b", "--s3_session_token=c"],
         {"access_key_id": "a", "secret_access_key": "b", "session_token": "c"}),
    ],
)  # fmt: skip
def test_flags_set_up_the_client(monkeypatch, flags, expected):
    monkeypatch.setattr(s3, "_settings", ())
    use_store_flags(flags)
    arguments, client = s3.store_options()
    assert arguments["config"] == expected
    assert client == {"allow_http": expected.get("endpoint", "").startswith("http:")}


def test_a_certificate_is_read(monkeypatch, tmp_path):
    monkeypatch.setattr(s3, "_settings", ())
    use_store_flags([f"--s3_verify={tmp_path}/ca.pem"])
    with pytest.raises(FarspanError, match=r"--s3_verify .*/ca.pem: No such file or directory"):
        s3.store_options()
    (tmp_path / "ca.pem").write_bytes(b"certificate")
    assert s3.store_options()[1]["root_certificate"] == b"certificate"
