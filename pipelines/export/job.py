"""``farspan export``: files for other trainers from documents, a corpus or a mask set.

A task writes the files of one or more neighbouring shards, so the bytes do not depend on the number of workers. Formats
with a file that lists all others have a last task for it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import Any, TypeAlias

import numpy as np

from corpora.errors import FarspanError
from corpora.options import record_options
from corpora.schemas.corpus import open_corpus
from corpora.storage.files import read_bytes, write_bytes
from corpora.storage.manifest import Manifest, Receipt
from corpora.storage.manifest_file import read_manifest
from corpora.storage.shards import list_shards
from objectives.api.plugins import plugin_errors
from objectives.api.special_tokens import BEGIN, END, PAD
from pipelines.engine.artefacts import Parent, absolute, declare_derived_job
from pipelines.engine.job import Job, Report, Stage, Task, make_sharded_stage, work_paths
from pipelines.export.format import Format, Frame, Items, Part
from pipelines.export.formats import FORMATS
from pipelines.export.sources import CorpusItems, DocumentItems, MaskItems, Shards, open_masks
from pipelines.options import Export

Source: TypeAlias = DocumentItems | CorpusItems | MaskItems

_TOTALS = ("rows", "documents", "tokens", "padding", "targets", "max_tokens")


def plan(options: Export) -> Job:
    """Check the artefact against the format and declare one task per file, or group of files."""
    output, folder = absolute(options.output), absolute(options.artefact)
    parent = Parent(folder, read_manifest(folder))
    format = FORMATS[options.to]
    source, shards, length = _choose_source(options, format, parent)
    frame = _choose_frame(options, format, parent.manifest, length)
    groups = np.array_split(np.arange(len(shards)), min(options.files or len(shards), len(shards)))
    names = [f"part-{index:05d}-of-{len(groups):05d}" for index in range(len(groups))]
    entries = work_paths(output, "entries", len(groups), ".list")
    chosen = [tuple(shards[number] for number in group) for group in groups]
    rows = [sum(one.rows.rows for one in group) for group in chosen]
    work = partial(_write_part, options.to, output, source, frame, str(parent.manifest.tokenizer["fingerprint"]))
    stages = [make_sharded_stage("export", work, "rows", rows, shards=chosen, name=names, entries=entries)]
    if format.index:
        index = partial(write_index, options.to, output, entries)
        stages.append(Stage("index", [Task("index", {}, len(groups))], index, "files"))
    return declare_derived_job(
        output,
        parent,
        stages,
        format="farspan.export",
        config=record_options(
            options,
            unit=options.unit or ("documents" if isinstance(source, DocumentItems) else "rows"),
            layout=source.layout if isinstance(source, MaskItems) else None,
            length=length,
            dtype=frame.dtype,
            eos_id=frame.eos,
            bos_id=frame.bos,
            pad_id=None if frame.width is None else frame.pad,
            files=len(groups),
        ),
        seed=parent.manifest.seed,
        special_tokens=parent.manifest.special_tokens,
    )


def _choose_source(options: Export, format: Format, parent: Parent) -> tuple[Source, list[Shards], int | None]:
    """Return the items of an artefact, its shards, and the sequence length of rows."""
    manifest, unit = parent.manifest, options.unit
    kind = manifest.format
    if kind != "farspan.masks" and options.layout:
        raise FarspanError(f"--layout {options.layout}: is for mask sets, and {options.artefact} is {kind!r}")
    shards = [Shards(shard) for shard in parent.shards]
    if kind == "farspan.documents":
        if unit == "rows":
            raise FarspanError(f"--unit rows: {options.artefact} has documents; make a corpus of them, and export it")
        return DocumentItems(options.split == "held-out"), shards, None
    if kind == "farspan.corpus":
        fixed = unit != "documents" and format.room is not None
        length = (options.length or int(manifest.config["sequence_length"])) if fixed else None
        return CorpusItems(unit or "rows"), shards, length
    if kind != "farspan.masks":
        raise FarspanError(f"{options.artefact}: is {kind!r}; give documents, a corpus or a mask set")
    if unit == "documents":
        raise FarspanError("--unit documents: the rows of a mask set stay rows; leave it out, or export the corpus")
    layout = options.layout or ("seq2seq" if format.pairs else "stream")
    if layout == "seq2seq" and not format.pairs:
        raise FarspanError(
            f"--to {options.to}: has no columns for source and target; give --layout stream, or --to parquet"
        )
    if not format.loss:
        able = ", ".join(name for name, one in FORMATS.items() if one.loss)
        raise FarspanError(
            f"--to {options.to}: cannot say which ids are targets, so source and target would both be trained on; "
            f"give --to one of {able}"
        )
    return _choose_masked_source(options, format, parent, layout)


def _choose_masked_source(
    options: Export, format: Format, parent: Parent, layout: str
) -> tuple[Source, list[Shards], int | None]:
    """Return the items of a mask set, as ``_choose_source`` does."""
    masks = open_masks(parent.folder)
    corpus = open_corpus(absolute(options.corpus) if options.corpus else masks.parent_folder)
    masks.check_parent(corpus)
    rows = list_shards(corpus.folder, corpus.manifest)
    shards = [Shards(rows[number % len(rows)], shard) for number, shard in enumerate(parent.shards)]
    totals = parent.manifest.totals
    longest = totals["max_source_length"] + totals["max_target_length"]
    fixed = layout == "stream" and format.room is not None
    return MaskItems(parent.folder, layout, not format.bounded), shards, (options.length or longest) if fixed else None


def _choose_frame(options: Export, format: Format, manifest: Manifest, length: int | None) -> Frame:
    """Choose the ids around text and the type of ids."""
    masked = manifest.format == "farspan.masks"
    if masked and (options.bos or options.eos_id is not None or options.bos_id is not None):
        raise FarspanError(
            "--bos, --bos-id, --eos-id: a mask set is rendered with its own begin and end; leave them out"
        )
    owned = manifest.special_tokens if masked else manifest.tokenizer["owned_tokens"]
    eos = _find_id(options, owned, "eos", END)
    bos = _find_id(options, owned, "bos", BEGIN) if options.bos else None
    width = None if length is None else length + (format.room or 0)
    pad = 0 if width is None else _find_id(options, owned, "pad", PAD)
    ids = [number for number in (eos, bos, pad, *manifest.special_tokens.values()) if number is not None]
    vocab_size = max(int(manifest.tokenizer["vocab_size"]), 1 + max(ids))
    if length is not None and width is not None:
        _check_length(options, manifest, length, width)
    dtype = format.choose_dtype(options.to, vocab_size, options.dtype)
    return Frame(dtype=dtype, eos=eos, bos=bos, pad=pad, width=width, domains=format.domains)


def _find_id(options: Export, owned: Mapping[str, int], role: str, name: str) -> int:
    """Return the id that the user gives for a role, else the tokenizer's."""
    chosen_id: int | None = getattr(options, f"{role}_id")
    if chosen_id is None and name not in owned:
        cure = f"give --{role}-id ID"
        if role == "pad":
            cure += ", or --unit documents, which needs no padding"
        raise FarspanError(f"{options.artefact}: its tokenizer has no {name}, which files of {options.to} need; {cure}")
    return owned[name] if chosen_id is None else chosen_id


def _check_length(options: Export, manifest: Manifest, length: int, width: int) -> None:
    """Check that the longest row that the manifest allows fits."""
    config, totals = manifest.config, manifest.totals
    cure = ""
    if manifest.format == "farspan.masks":
        longest = totals["max_source_length"] + totals["max_target_length"]
    else:
        more = 1 + options.bos - int(config["room_per_document"])  # per part, beyond what the corpus has reserved
        capacity = int(config["sequence_length"]) - int(config["room_per_sequence"])
        longest = capacity + more * (totals["max_documents"] if more > 0 else min(totals["max_documents"], 1))
        cure = ", or make the corpus with a larger --room-per-document" if more > 0 else ""
    if longest > width:
        raise FarspanError(
            f"--length {length}: a row may have {longest:,} ids with those around documents; give --length "
            f"{longest - width + length} or more{cure}"
        )


@plugin_errors()
def _write_part(
    to: str, output: str, source: Source, frame: Frame, vocabulary: str, task: Task, report: Report
) -> Receipt:
    """Write the files of some shards in the format ``to``; ``vocabulary`` names the tokenizer, for people."""
    part = Part(output, task.payload["name"], frame.dtype, vocabulary)
    totals = dict.fromkeys(_TOTALS, 0)
    batches = _count((items for shard in task.payload["shards"] for items in source(shard, frame)), totals, report)
    entries: Sequence[Mapping[str, Any]] = ()
    if first := next(batches, None):  # readers cannot open empty files
        entries = FORMATS[to].write(part, chain([first], batches))
    if FORMATS[to].index:
        write_bytes(task.payload["entries"], json.dumps(entries).encode())
    return Receipt(task.name, totals=totals, files=part.files)


def _count(batches: Iterable[Items], totals: dict[str, int], report: Report) -> Iterator[Items]:
    """Yield the batches that have items, and count these."""
    for items in batches:
        if not len(items):
            continue
        yield items
        totals["rows"] += len(items)
        totals["documents"] += items.documents
        totals["tokens"] += len(items.tokens.values) - items.padding
        totals["padding"] += items.padding
        totals["targets"] += items.targets
        totals["max_tokens"] = max(totals["max_tokens"], int(items.tokens.lengths.max()))
        report(totals["rows"])


def write_index(to: str, output: str, entries: Sequence[str], task: Task, report: Report) -> Receipt:
    """Write the files that list all others."""
    index = FORMATS[to].index
    assert index is not None
    listed = [entry for path in entries for entry in json.loads(read_bytes(path))]
    for name, data in index(listed).items():
        write_bytes(os.path.join(output, name), data)
    return Receipt(task.name)
