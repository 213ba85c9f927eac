"""The manifest, which describes an artefact, and the receipts of tasks from which it is made."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Annotated, Any

from corpora.errors import FarspanError
from corpora.storage.strict_json import Natural, Positive, Sha256, StructureError, decode, seal, unseal

FORMAT_VERSION = 1
FILE_COUNTS = ("files", "damaged_files", "repeated_links", "bytes", "lost_bytes")
COUNTS = ("read", "written", "filtered", "rejected", "unread", "uses", "tokens", "held_out_tokens")


ShardName = Annotated[str, re.compile(r"part-\d{5,9}-of-\d{5,9}\.arrow")]  # a plain name, so always inside ``shards/``
TaskName = Annotated[str, re.compile(r"[\w-]{1,200}")]


@dataclass(frozen=True)
class ShardInfo:
    """One shard: file name in ``shards/``, number of rows and tokens, size in bytes and hex sha256."""

    name: ShardName
    rows: Annotated[int, range(2**40)]
    tokens: Natural
    bytes: Natural
    sha256: Sha256


@dataclass(frozen=True)
class FileInfo:
    """Size in bytes and hex sha256 of a file other than a shard."""

    bytes: Natural
    sha256: Sha256


@dataclass(frozen=True)
class Receipt:
    """The description of one finished task's output; the manifest is a fold over receipts."""

    task: TaskName  # unique in its job
    shards: tuple[ShardInfo, ...] = ()
    # numbers that are summed over tasks; of names that start with ``max_``, the maximum is taken
    totals: Mapping[str, Natural] = field(default_factory=dict)
    # source -> number of documents ``read``, ``written``, ..., or of tokens, by ``COUNTS``
    counts: Mapping[str, Mapping[str, Natural]] = field(default_factory=dict)
    # reason -> number of dead letters
    rejects: Mapping[str, Natural] = field(default_factory=dict)
    # source -> relative path of a damaged raw file -> number of its bytes lost
    damage: Mapping[str, Mapping[str, Natural]] = field(default_factory=dict)
    # path relative to the artefact -> each other file that the task wrote there
    files: Mapping[str, FileInfo] = field(default_factory=dict)

    def to_json(self) -> bytes:
        return seal(asdict(self))

    @classmethod
    def from_json(cls, data: bytes) -> Receipt:
        """Parse what ``to_json`` returns."""
        receipt = decode(cls, unseal(data))
        for source, numbers in receipt.counts.items():
            if strange := [name for name in numbers if name not in COUNTS]:
                raise StructureError(f"counts.{source} has an unknown key {strange[0]!r}")
        return receipt


@dataclass(frozen=True)
class Manifest:
    """The contents of ``manifest.json``, as docs/formats.md describes them."""

    format: str
    config: Mapping[str, Any]  # every option that affects the bytes of the artefact
    seed: int
    rows_per_batch: Positive  # rows in each Arrow record batch, the last of a shard excepted
    tokenizer: Mapping[str, Any]  # ``fingerprint``, ``vocab_size`` and ``owned_tokens`` (role -> id of its own token)
    special_tokens: Mapping[str, Natural] = field(default_factory=dict)  # name -> id, masks only
    parent: Mapping[str, str] | None = None  # ``manifest_sha256``; ``manifest_file`` stores its path
    inputs: tuple[Mapping[str, Any], ...] = ()  # ``path`` (relative) and ``bytes`` of raw files
    shards: tuple[ShardInfo, ...] = ()
    totals: Mapping[str, Natural] = field(default_factory=dict)
    counts: Mapping[str, Mapping[str, Natural]] = field(default_factory=dict)
    rejects: Mapping[str, Natural] = field(default_factory=dict)
    files: Mapping[str, FileInfo] = field(default_factory=dict)
    format_version: int = FORMAT_VERSION
    farspan_version: str = ""

    def to_json(self) -> bytes:
        return seal(self.to_values())

    def to_values(self) -> dict[str, Any]:
        """Return what ``from_values`` takes."""
        return asdict(replace(self, inputs=())) | {"inputs": self.inputs}  # plain already, and many

    @classmethod
    def from_json(cls, data: bytes) -> Manifest:
        """Parse what ``to_json`` returns."""
        values = unseal(data)
        if "format_version" not in values:
            raise StructureError("no format_version")
        return cls.from_values(values)

    @classmethod
    def from_values(cls, values: Any) -> Manifest:
        """Do the same as ``from_json`` for parsed JSON."""
        version = isinstance(values, dict) and values.get("format_version")
        if type(version) is int and version != FORMAT_VERSION:
            raise FarspanError(
                f"format_version {version} is unknown to farspan {farspan_version()} (it knows {FORMAT_VERSION}); "
                f"install the farspan that wrote it: {values.get('farspan_version')!r}"
            )
        return decode(cls, values)

    @property
    def rows(self) -> int:
        """Number of rows of the shards, or of an export's files."""
        return self.totals["rows"] if self.format == "farspan.export" else sum(shard.rows for shard in self.shards)

    @property
    def bytes(self) -> int:
        """Size of the shards, or of an export's files."""
        if self.format == "farspan.export":
            return sum(info.bytes for name, info in self.files.items() if not name.startswith("tokenizer/"))
        return sum(shard.bytes for shard in self.shards)

    @property
    def job(self) -> dict[str, Any]:
        """The fields that determine the bytes of the shards: two manifests with equal jobs describe equal shards."""
        keys = ("format", "format_version", "config", "seed", "rows_per_batch", "tokenizer", "special_tokens", "inputs")
        values = json.loads(json.dumps(self.to_values()))
        return {key: values[key] for key in keys} | {"parent": (values["parent"] or {}).get("manifest_sha256")}


def farspan_version() -> str:
    """Return the version of the installed distribution; ``0+source`` if it is not installed."""
    from importlib.metadata import PackageNotFoundError, version  # slow to import, and only writers need it

    try:
        return version("farspan")
    except PackageNotFoundError:
        return "0+source"


def fold(receipts: Iterable[Receipt], inputs: Iterable[Mapping[str, Any]] = ()) -> dict[str, Any]:
    """Combine receipts, in any order, into ``shards``, ``totals``, ``counts`` and ``rejects`` of a manifest.

    The counts of a source with damaged files include ``damaged_files`` and ``lost_bytes``. No file loses more bytes
    than ``inputs``, the manifest's entry, gives it, although several of its ranges may be damaged.
    """
    shards: list[ShardInfo] = []
    totals: dict[str, int] = {}
    counts: dict[str, dict[str, int]] = {}
    rejects: dict[str, int] = {}
    lost: dict[str, dict[str, int]] = {}  # source -> path -> bytes
    for receipt in receipts:
        shards += receipt.shards
        for name, value in receipt.totals.items():
            totals[name] = max(totals.get(name, 0), value) if name.startswith("max_") else totals.get(name, 0) + value
        for source, numbers in receipt.counts.items():
            row = counts.setdefault(source, dict.fromkeys(COUNTS, 0))
            for name, value in numbers.items():
                row[name] = row.get(name, 0) + value
        for reason, value in receipt.rejects.items():
            rejects[reason] = rejects.get(reason, 0) + value
        for source, damage in receipt.damage.items():
            files = lost.setdefault(source, {})
            for path, value in damage.items():
                files[path] = files.get(path, 0) + value
    sizes = {entry["path"]: entry["bytes"] for entry in inputs}
    for source, files in lost.items():
        row = counts.setdefault(source, dict.fromkeys(COUNTS, 0))
        row["damaged_files"] = len(files)
        row["lost_bytes"] = sum(min(value, sizes.get(f"{source}:{path}", value)) for path, value in files.items())
    return {
        "shards": tuple(sorted(shards, key=lambda shard: shard.name)),
        "totals": dict(sorted(totals.items())),
        "counts": dict(sorted(counts.items())),
        "rejects": dict(sorted(rejects.items())),
    }
