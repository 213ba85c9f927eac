"""Receipts of tasks: malformed ones are refused, and their fold does not depend on order."""

from __future__ import annotations

import pytest

from corpora.storage.manifest import Receipt, ShardInfo, fold
from corpora.storage.sealed_json import seal, unseal
from corpora.storage.shards import shard_name
from corpora.storage.strict_json import StructureError


def receipt(index):
    shard = ShardInfo(shard_name(index, 3), index, 10 * index, 100, "0" * 64)
    counts = {"a": {"read": 3, "written": 2, "rejected": 1}}
    return Receipt(f"t{index}", (shard,), {"tokens": index, "max_tokens": index}, counts, {"broken_json": 1})


def test_the_fold_does_not_depend_on_order():
    receipts = [Receipt.from_json(receipt(index).to_json()) for index in range(3)]
    assert fold(receipts) == fold(receipts[::-1])
    assert fold(receipts)["totals"] == {"tokens": 3, "max_tokens": 2}
    assert fold(receipts)["counts"]["a"]["read"] == 9


def test_a_file_of_several_damaged_ranges_loses_at_most_its_bytes():
    receipts = [Receipt(f"t{index}", damage={"a": {"x": lost, "y": 1}}) for index, lost in enumerate((70, 90))]
    count = fold(receipts, [{"path": "a:x", "bytes": 100}, {"path": "a:y", "bytes": 100}])["counts"]["a"]
    assert (count["damaged_files"], count["lost_bytes"]) == (2, 102)


@pytest.mark.parametrize(
    "changes",
    [
        {"task": "../x"},
        {"task": None},
        {"shards": [{}]},
        {"shards": {}},
        {"totals": {"tokens": "1"}},
        {"totals": []},
        {"counts": {"a": {"guessed": 1}}},
        {"counts": {"a": 1}},
        {"rejects": {"a": -1}},
        {"more": 1},
    ],
)
def test_receipts_that_nobody_wrote_are_refused(changes):
    values = unseal(receipt(1).to_json())
    assert Receipt.from_json(seal(values)) == receipt(1)
    with pytest.raises(StructureError):
        Receipt.from_json(seal({**values, **changes}))
