"""Verification of a finished artefact against its manifest and the contract of docs/formats.md."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping

import pyarrow as pa

from corpora.errors import FarspanError
from corpora.schemas.pairs import PairSet
from corpora.storage import files
from corpora.storage.manifest import Manifest, ShardInfo
from corpora.storage.manifest_contents import tokenizer_fault
from corpora.storage.manifest_file import NAME, file_info, is_listed, read_manifest
from corpora.storage.ragged import Ragged
from corpora.storage.shards import local_copy, map_shard
from corpora.storage.stores.local_disk import is_temporary
from corpora.tokenizers.load import load_tokenizer_of
from corpora.verify.pairs import PairsCheck
from corpora.verify.rows import Check, CorpusCheck, DocumentsCheck, PredictionsCheck, Problems
from corpora.verify.vectors import ClustersCheck, NeighboursCheck, VectorsCheck

_CHECKS: dict[str, Callable[[Manifest], Check]] = {
    "farspan.documents": DocumentsCheck,
    "farspan.corpus": CorpusCheck,
    "farspan.vectors": VectorsCheck,
    "farspan.clusters": ClustersCheck,
    "farspan.neighbours": NeighboursCheck,
    "farspan.predictions": PredictionsCheck,
}
_ROWS = {
    "farspan.corpus": "sequences",
    "farspan.masks": "sequences",
    "farspan.pairs": "pairs",
    "farspan.predictions": "predictions",
}
"""Name of the total that counts the rows of a format; ``documents`` for other formats."""


def verify(folder: str, documents: str | None = None) -> list[str]:
    """List every problem of documents, a corpus, vectors, clusters, neighbours, pairs, predictions or an export.

    Checks manifest, tokenizer, checksums, schema, batch sizes, counts and every row; in a corpus also that the parts of
    each document add up. Of an export, it checks checksums and tokenizer.

    ``documents``: folder of the documents of pairs, if it was moved since the pairs were made.
    """
    manifest = read_manifest(folder)
    if manifest.format == "farspan.export":
        return list(check_other_files(folder, manifest))
    if manifest.format == "farspan.pairs":
        return list(_problems(folder, PairsCheck(PairSet(folder, documents))))
    if manifest.format not in _CHECKS:
        raise FarspanError(f"{folder}: {manifest.format!r} is none of {', '.join(_CHECKS)}")
    try:
        check = _CHECKS[manifest.format](manifest)
    except FarspanError as error:
        raise FarspanError(f"{os.path.join(folder, NAME)}: {error}") from error
    return list(_problems(folder, check))


def _problems(folder: str, check: Check) -> Problems:
    manifest = check.manifest
    yield from check_other_files(folder, manifest)
    yield from check_shards(folder, manifest, check.schema, check.shard)
    yield from check.end()
    yield from check_totals(manifest, check.counted)


def check_other_files(folder: str, manifest: Manifest) -> Problems:
    """Compare all files except the shards with the manifest: contents, number, and the tokenizer's identity."""
    for name, info in sorted(manifest.files.items()):
        try:
            with files.open(os.path.join(folder, name)) as file:
                actual = file_info(file)
        except OSError as error:
            yield f"{name}: {error.strerror}"
            continue
        if actual != info:
            yield f"{name}: {actual.bytes} bytes with sha256 {actual.sha256}, the manifest says {info}: damaged"
    present = {os.path.relpath(path, folder) for path in files.walk(folder)}
    for name in sorted(present - manifest.files.keys()):
        if os.path.dirname(name) and is_listed(name):
            yield f"{name}: not in the manifest"
    yield from _tokenizer(folder, manifest)


def check_shards(
    folder: str, manifest: Manifest, schema: pa.Schema, check: Callable[[str, list[pa.RecordBatch]], Problems]
) -> Problems:
    """Check structure and checksum of every shard, and run ``check`` on the batches of undamaged ones."""
    expected = {shard.name for shard in manifest.shards}
    present = {os.path.basename(path) for path in files.walk(os.path.join(folder, "shards")) if not is_temporary(path)}
    for name in sorted(present - expected):
        yield f"shards/{name}: not in the manifest"
    for shard in manifest.shards:
        if shard.name not in present:
            yield f"shards/{shard.name}: missing"
            continue
        with local_copy(os.path.join(folder, "shards", shard.name)) as path:
            faults, batches = _structure(path, manifest, shard, schema)
            yield from faults or check(f"shards/{shard.name}", batches)
    rows = sum(shard.rows for shard in manifest.shards)
    counted = manifest.totals.get(_ROWS.get(manifest.format, "documents"))
    if rows != counted:
        yield f"manifest.json: {rows} rows in shards, {counted} in totals"
    for source, count in manifest.counts.items():
        if count["read"] != count["written"] + count["filtered"] + count["rejected"]:
            yield f"manifest.json: counts of {source!r} do not reconcile: {count}"
    yield from _file_counts(manifest)


def _file_counts(manifest: Manifest) -> Problems:
    """Compare the counts of raw files, if any, with each other and with the list of inputs."""
    inputs: dict[str, list[int]] = {}
    for entry in manifest.inputs:
        inputs.setdefault(entry["path"].partition(":")[0], []).append(entry["bytes"])
    counted = {source: count for source, count in manifest.counts.items() if "files" in count}
    if not counted:
        return  # not made from raw files
    for source in sorted(counted.keys() | inputs.keys()):
        count, sizes = manifest.counts.get(source, {}), inputs.get(source, [])
        for name, listed in (("files", len(sizes)), ("bytes", sum(sizes))):
            if count.get(name, 0) != listed:
                yield f"manifest.json: counts of {source!r} say {count.get(name, 0)} {name}, inputs list {listed}"
        for part, whole in (("damaged_files", "files"), ("lost_bytes", "bytes")):
            if count.get(part, 0) > count.get(whole, 0):
                yield (
                    f"manifest.json: counts of {source!r} say {count[part]} {part.replace('_', ' ')} of "
                    f"{count.get(whole, 0)}"
                )


def _structure(
    path: str, manifest: Manifest, shard: ShardInfo, schema: pa.Schema
) -> tuple[list[str], list[pa.RecordBatch]]:
    """Compare the local file of a shard with the manifest; return the problems, and its record batches."""
    name = f"shards/{shard.name}"
    try:
        with files.open(path) as file:
            info = file_info(file)
    except OSError as error:
        return [f"{name}: {error.strerror or error}"], []
    if info.bytes != shard.bytes:
        return [f"{name}: {info.bytes} bytes, the manifest says {shard.bytes}: truncated or replaced"], []
    if info.sha256 != shard.sha256:
        return [f"{name}: sha256 {info.sha256}, the manifest says {shard.sha256}: damaged"], []
    try:
        reader = map_shard(path)[1]
    except FarspanError as error:
        return [str(error)], []
    if not reader.schema.equals(schema):
        fault = _difference(reader.schema, schema)
        return [f"{name}: schema is not that of {manifest.format} with this manifest: {fault}"], []
    batches = [reader.get_batch(index) for index in range(reader.num_record_batches)]
    if invalid := list(_invalid(name, batches)):
        return invalid, batches
    faults: list[str] = []
    sizes = [batch.num_rows for batch in batches]
    if sum(sizes) != shard.rows:
        faults.append(f"{name}: {sum(sizes)} rows, the manifest says {shard.rows}")
    tokens = sum(Ragged.from_arrow(b.column("tokens")).lengths.sum() for b in batches if "tokens" in schema.names)
    if tokens != shard.tokens:
        faults.append(f"{name}: {tokens} tokens, the manifest says {shard.tokens}")
    if any(size != manifest.rows_per_batch for size in sizes[:-1]) or sizes[-1:] > [manifest.rows_per_batch]:
        faults.append(f"{name}: batches of {sorted(set(sizes))} rows, the manifest says {manifest.rows_per_batch}")
    return faults, batches


def _invalid(name: str, batches: list[pa.RecordBatch]) -> Problems:
    """Report columns whose offsets exceed their values, or with nulls where none is allowed."""
    for number, batch in enumerate(batches):
        try:
            batch.validate(full=True)
        except pa.ArrowInvalid as error:
            yield f"{name} batch {number}: {error}"
            continue
        for column, kind in zip(batch.columns, batch.schema, strict=True):
            values = getattr(column, "values", None)
            if (column.null_count and not kind.nullable) or (values is not None and values.null_count):
                yield f"{name} batch {number}: {kind.name} holds a null"


def _difference(actual: pa.Schema, expected: pa.Schema) -> str:
    """Describe the first column that differs from the expected schema."""
    for column in expected:
        if column.name not in actual.names:
            return f"there is no column {column.name!r}"
        if not actual.field(column.name).equals(column):
            return f"column {column.name!r} is {actual.field(column.name).type}, not {column.type}"
    return f"columns {', '.join(actual.names)}, not {', '.join(expected.names)}"


def _tokenizer(folder: str, manifest: Manifest) -> Problems:
    try:
        tokenizer = load_tokenizer_of(folder)
    except (FarspanError, OSError) as error:
        yield f"tokenizer/: {error}"
        return
    if wrong := tokenizer_fault(manifest, tokenizer):
        yield f"tokenizer/: {wrong}"


def check_totals(manifest: Manifest, counted: Mapping[str, int]) -> Problems:
    """Report differences between the manifest's totals and the contents of the shards."""
    for name, value in counted.items():
        if manifest.totals.get(name) != value:
            yield f"manifest.json: totals say {manifest.totals.get(name)} {name}, the shards hold {value}"
