"""Beam's flags for object stores."""

from __future__ import annotations

import pytest

from corpora.storage.stores import s3
from pipelines.engine.beam.stores import use_flags


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ([], {"endpoint_override": None, "scheme": "https", "access_key": None, "region": None}),
        (["--s3_endpoint_url=http://host:1/"], {"endpoint_override": "host:1", "scheme": "http"}),
        (["--s3_endpoint_url=https://host/a"], {"endpoint_override": "host/a", "scheme": "https"}),
        (["--s3_endpoint_url=host", "--s3_disable_ssl"], {"endpoint_override": "host", "scheme": "http"}),
        (["--s3_verify=ca.pem", "--s3_region_name=r"], {"tls_ca_file_path": "ca.pem", "region": "r"}),
        (["--s3_access_key_id=a", "--s3_secret_access_key=b", "--s3_session_token=c"],
         {"access_key": "a", "secret_key": "b", "session_token": "c"}),
    ],
)  # fmt: skip
def test_beams_flags_set_up_the_client(monkeypatch, flags, expected):
    monkeypatch.setattr(s3, "_settings", ())
    monkeypatch.setattr("pyarrow.fs.S3FileSystem", dict)
    use_flags(flags)
    assert expected.items() <= s3._client.__wrapped__(s3._settings).items()
