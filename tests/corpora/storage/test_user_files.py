"""Files that users name: what is no readable file, or nested absurdly, is refused in one line, at once."""

from __future__ import annotations

import os

import pytest

from corpora.errors import FarspanError
from corpora.storage.user_files import read_user_file, read_user_json, read_user_toml


def test_values_come_back(tmp_path):
    (tmp_path / "a.json").write_text('{"b": 1, "b": [2]}')
    (tmp_path / "a.toml").write_text("a = 'é'\n", "utf-8")
    assert read_user_file(tmp_path / "a.toml") == "a = 'é'\n".encode()
    assert read_user_json(str(tmp_path / "a.json")) == {"b": [2]}
    assert read_user_json(tmp_path / "a.json", pairs=tuple) == (("b", 1), ("b", [2]))
    assert read_user_toml(tmp_path / "a.toml") == {"a": "é"}


@pytest.mark.parametrize("read", [read_user_file, read_user_json, read_user_toml])
def test_what_is_no_regular_file_is_refused(tmp_path, read):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("pipe")
    places = {"pipe": "a named pipe, not", "link": "a named pipe, not", "gone": "No such file", ".": "a folder, not"}
    for path, reason in {
        **{tmp_path / name: reason for name, reason in places.items()},
        "/dev/zero": "a device",
    }.items():
        with pytest.raises(FarspanError, match=rf"^{path}: {reason}.*; give a regular file"):
            read(path)


@pytest.mark.parametrize(
    ("read", "data", "reason"),
    [
        (read_user_json, b"[" * 100_000, "brackets are nested too deep"),
        (read_user_json, b'{"a":' * 100_000, "brackets are nested too deep"),
        (read_user_json, b"1" * 5000, "not JSON: .*digits"),
        (read_user_json, b"\xff", "not JSON"),
        (read_user_toml, b"a = " + b"[" * 100_000, "brackets are nested too deep"),
        (read_user_toml, b"a = " + b"1" * 5000, "not TOML: .*digits"),
        (read_user_toml, b"a = '\xff'", "not TOML"),
    ],
)
def test_what_cannot_be_parsed_is_refused(tmp_path, read, data, reason):
    (tmp_path / "a").write_bytes(data)
    with pytest.raises(FarspanError, match=rf"^{tmp_path}/a: .*{reason}") as error:
        read(tmp_path / "a")
    assert "\n" not in str(error.value)
