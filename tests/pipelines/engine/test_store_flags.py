"""Flags of object stores, which set up their client."""

from __future__ import annotations

import pytest

from corpora.errors import FarspanError
from corpora.storage.stores import s3
from pipelines.engine.store_flags import use_store_flags


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
