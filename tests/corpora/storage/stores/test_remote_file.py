"""Remote files read in any order, also while they are replaced."""

from __future__ import annotations

import io

import pytest

from corpora.errors import FarspanError
from corpora.storage import files
from corpora.storage.files import write_bytes
from corpora.storage.stores import remote


def test_reads_in_any_order_are_those_of_a_file(root):
    data = bytes(range(256)) * 8192  # two buffers
    write_bytes(f"{root}/a", data)
    expected = io.BytesIO(data)
    with files.open(f"{root}/a") as file:
        for offset, count in ((remote.BUFFER + 5, 10), (0, 3), (len(data) - 1, 10), (100, remote.BUFFER)):
            assert file.seek(offset) == expected.seek(offset)
            assert file.read(count) == expected.read(count)


def test_a_file_replaced_while_it_is_read_is_noticed(root):
    write_bytes(f"{root}/a", bytes(4 * remote.BUFFER))
    with (
        pytest.raises(FarspanError, match=r"/a: .*replaced or deleted while it was read"),
        files.open(f"{root}/a") as file,
    ):
        for _ in range(3):
            file.read(remote.BUFFER)
        write_bytes(f"{root}/a", b"new")
