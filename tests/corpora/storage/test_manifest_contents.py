"""Contents of manifests that are refused, with the place."""

from __future__ import annotations

import pytest

from corpora.errors import FarspanError
from corpora.storage.manifest_contents import fault, tokenizer_fault
from corpora.storage.manifest_file import read_manifest
from corpora.storage.sealed_json import seal
from tests.artefacts import tokenizer_entry
from tests.corpora.storage.test_manifest import receipt
from tests.corpora.storage.test_manifest_file import CONFIG, TOTALS, manifest

SHARDS = [vars(receipt(index).shards[0]) for index in range(3)]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"shards": [{**SHARDS[0], "name": "../../x"}]}, r"shards\[0\]\.name is"),
        ({"shards": [{**SHARDS[0], "name": "part-00000-of-00001.arrow/../x"}]}, r"shards\[0\]\.name is"),
        ({"shards": SHARDS[:2]}, "part-00000-of-00003.arrow' where 'part-00000-of-00002.arrow' is needed"),
        ({"shards": [SHARDS[1], SHARDS[0], SHARDS[2]]}, "where 'part-00000-of-00003.arrow' is needed"),
        ({"shards": [{**SHARDS[0], "rows": -1}]}, r"shards\[0\]\.rows is -1"),
        ({"shards": [{**SHARDS[0], "bytes": 2**63}]}, r"shards\[0\]\.bytes is 9223372036854775808"),
        ({"shards": [{**SHARDS[0], "sha256": "A" * 64}]}, r"shards\[0\]\.sha256 is"),
        ({"shards": None}, "shards is null; a list is needed"),
        ({"rows_per_batch": 0}, "rows_per_batch is 0"),
        ({"rows_per_batch": True}, "rows_per_batch is true"),
        ({"tokenizer": {}}, "tokenizer lacks fingerprint, vocab_size, owned_tokens"),
        ({"tokenizer": {**tokenizer_entry(), "vocab_size": 0}}, r"tokenizer\.vocab_size is 0"),
        ({"tokenizer": {**tokenizer_entry(), "vocab_size": 2**31}}, r"tokenizer\.vocab_size is 2147483648"),
        ({"tokenizer": {**tokenizer_entry(), "vocab_size": 1}}, "and vocab_size is 1"),
        ({"config": {}}, "config lacks"),
        ({"config": {**CONFIG, "sequence_length": "128"}}, r"config\.sequence_length is \"128\""),
        ({"totals": {}}, "totals lack sequences, "),
        ({"totals": {**TOTALS, "max_tokens": -1}}, r"totals\.max_tokens is -1"),
        ({"counts": {"a": {}}}, r"counts\.a lacks read"),
        ({"counts": {"a\0": {}}}, "without zero bytes"),
        ({"parent": {"path": "x"}}, "parent lacks manifest_sha256"),
        ({"inputs": [{"path": "x", "bytes": "y"}]}, r"inputs\[0\]\.bytes"),
        ({"files": {"../x": {"bytes": 0, "sha256": "0" * 64}}}, r"'\.\./x', which is not a plain path"),
        ({"files": {"/etc/passwd": {"bytes": 0, "sha256": "0" * 64}}}, "which is not a plain path"),
        ({"files": {"a/../../x": {"bytes": 0, "sha256": "0" * 64}}}, "which is not a plain path"),
        ({"files": {"shards/x": {"bytes": 0, "sha256": "0" * 64}}}, "which must not be listed there"),
        ({"format": "farspan.pears"}, "format 'farspan.pears' is unknown; known are farspan.documents"),
        ({"format": "farspan.pairs", "config": {"builder": "pairs"}}, "needs a parent, and this one has none"),
        ({"strange": 1}, 'has an unknown key "strange"'),
        ({"special_tokens": {"<pad>": 1.5}}, r"special_tokens\.<pad> is 1\.5"),
    ],
)
def test_wrong_contents_are_named(tmp_path, changes, message):
    values = {**manifest().to_values(), **changes}
    (tmp_path / "manifest.json").write_bytes(seal(values))
    with pytest.raises(FarspanError, match=message) as caught:
        read_manifest(str(tmp_path))
    assert "\n" not in str(caught.value)


class Other:
    """A tokenizer that agrees with the manifest but for what a test changes."""

    def __init__(self, **changes) -> None:
        self.__dict__.update({**tokenizer_entry(), **changes})


def test_the_first_difference_of_a_tokenizer_is_named():
    made, size = manifest(), tokenizer_entry()["vocab_size"]
    assert tokenizer_fault(made, Other()) is None
    assert tokenizer_fault(made, Other(fingerprint="x")).startswith("fingerprint 'x', the manifest says '")
    assert tokenizer_fault(made, Other(vocab_size=size + 1)) == f"vocab_size {size + 1}, the manifest says {size}"
    name, number = next(iter(tokenizer_entry()["owned_tokens"].items()))
    moved = Other(owned_tokens={name: number + 1})
    assert tokenizer_fault(made, moved) == f"{name!r} has id {number + 1}, the manifest says {number}"
    assert tokenizer_fault(made, Other(owned_tokens={})) is None, "an older tokenizer may own fewer"


def test_a_job_that_begins_has_no_shards_yet():
    empty = manifest(totals={}, shards=())
    assert fault(empty, finished=False) is None
    assert fault(empty).startswith("totals lack sequences")
