"""A job's folder from its start to its manifest: its description, checks of both, and the fold of receipts."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

from corpora.errors import FarspanError
from corpora.printing import format_count, printable
from corpora.readers.records import RESTORE
from corpora.reporting import note, result
from corpora.storage import files
from corpora.storage.files import read_bytes, write_bytes
from corpora.storage.manifest import COUNTS, FILE_COUNTS, Manifest, Receipt, TaskName, farspan_version, fold
from corpora.storage.manifest_contents import fault
from corpora.storage.manifest_file import NAMES, list_files, manifest_path, read_manifest, write_manifest, write_origins
from corpora.storage.shards import read_shard
from corpora.storage.stores.local_disk import is_temporary
from corpora.storage.strict_json import Natural, StructureError, decode, seal, unseal
from pipelines.cards.card import summary
from pipelines.cards.write import write_card
from pipelines.engine.claims import lock_folder
from pipelines.engine.job import WORK, Job, remove_empty_folders, shows_presence
from pipelines.engine.options import Finalize

_ANEW = "delete the folder and run the job's command again"


def check_output(output: str) -> None:
    """Check that a job may write to a folder: it is empty, or holds an artefact, finished or not."""
    if is_begun(output) or all(shows_presence(output, path) or is_temporary(path) for path in files.walk(output)):
        return
    if not is_begun(output):  # and not started by another process meanwhile
        raise FarspanError(f"{output}: not empty and no farspan artefact; give --output a new or empty folder")


def is_begun(output: str) -> bool:
    """True if a folder holds an artefact, finished or not."""
    return any(files.exists(os.path.join(output, place)) for place in (*NAMES, os.path.join(WORK, "job.json")))


def begin(job: Job) -> set[str] | None:
    """Write the job's description into its folder, or compare it with the one there; the caller holds the lock.

    Returns the names of the tasks that are done; None if the artefact is finished.
    """
    work = os.path.join(job.output, WORK)
    if manifest_path(job.output):
        finished = read_manifest(job.output)
        _refuse_changes(job.output, finished.job, job.head.job)
        files.delete(files.walk(work))
        remove_empty_folders(job.output)
        return None
    opened = os.path.join(work, "job.json")
    tasks = [task.name for stage in job.stages for task in stage.tasks]
    if files.exists(opened):
        started = read_start(opened)
        _refuse_changes(job.output, started.head.job, job.head.job)
        for name, version in job.versions.items():
            if started.versions.get(name) != version:
                raise FarspanError(f"{name}: was written to or replaced since the job began; {RESTORE}")
        # but no temporary file: another may still write it
        files.delete([path for path in files.walk(work) if path.endswith(".failed")])
    else:
        check_output(job.output)
    start = {"head": job.head.to_values(), "tasks": tasks}
    rest = {"repeated_links": job.repeated_links, "versions": job.versions, "origins": job.origins}
    write_bytes(opened, seal({**start, **rest}))
    job.tokenizer(os.path.join(job.output, "tokenizer"))

    names = [os.path.basename(path) for path in files.walk(work)]
    done = {name.removesuffix(".json") for name in names if name.endswith(".json") and name != "job.json"}
    left = sum(name not in done for name in tasks)
    if 0 < left < len(tasks):
        note(f"resuming: {len(tasks) - left} of {len(tasks)} tasks are done")
    return done


class FolderGone(FarspanError):
    """A job's folder was deleted, or the artefact finished, while this process worked on it."""


def require_begun(output: str) -> None:
    """Refuse to write to a folder that was deleted or finished meanwhile."""
    if not files.exists(os.path.join(output, WORK, "job.json")):
        if manifest_path(output):
            raise FolderGone(f"{output}: another job finished this artefact meanwhile; look at it, or make another")
        left = any(not path.startswith(os.path.join(output, WORK, "")) for path in files.walk(output))
        cure = f"delete {output} too, and run" if left else "run"
        place = os.path.join(output, WORK) if left else output
        raise FolderGone(f"{place}: was deleted while the job ran; {cure} the same command again to start over")


def _refuse_changes(output: str, before: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    now = json.loads(json.dumps(now))
    if before["format"] != now["format"]:
        raise FarspanError(f"{output}: holds {before['format']}, not {now['format']}; give --output another folder")
    if changes := describe_changes(before, now):
        raise FarspanError(
            f"{output}: holds a job with another configuration: {changes}. "
            "Give --output another folder, or delete this one to make it again"
        )


def describe_changes(before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """Describe the first differences of two JSON objects; empty if there are none."""
    return "; ".join([f"{name} was {a!r}, is {b!r}" for name, a, b in _differences(before, now)][:5])


def _differences(before: Any, now: Any, name: str = "") -> Iterator[tuple[str, Any, Any]]:
    if isinstance(before, Mapping) and isinstance(now, Mapping):
        for key in sorted({*before, *now}):
            yield from _differences(before.get(key), now.get(key), f"{name}.{key}" if name else key)
    elif before != now:
        yield name, _short(before), _short(now)


def _short(value: Any) -> Any:
    text = json.dumps(value)
    return value if len(text) <= 80 else text[:77] + "..."


def command(options: Finalize) -> None:
    """Write the manifest and print its summary."""
    manifest = finalize(options.output, options.error_budget)
    result(f"{options.output}: {summary(manifest)}", output=options.output, totals=dict(manifest.totals))


def finalize(output: str, error_budget: float = 1.0) -> Manifest:
    """Fold the receipts of a job whose tasks are all done into the manifest."""
    with lock_folder(output):
        return fold_receipts(output, error_budget)


def fold_receipts(output: str, error_budget: float) -> Manifest:
    """Do the same as ``finalize``; the caller ensures that no other process works in the folder."""
    work = os.path.join(output, WORK)
    opened = os.path.join(work, "job.json")
    if manifest_path(output):
        return read_manifest(output)
    if not files.exists(opened):
        raise FarspanError(f"{output}: no job was started here; give the --output of an unfinished job")
    started = read_start(opened)
    paths = {name: os.path.join(work, f"{name}.json") for name in started.tasks}
    present = set(files.walk(output))  # one listing: a request per file would take minutes in an object store
    missing = [name for name, path in paths.items() if path not in present]
    if missing:
        raise FarspanError(
            f"{output}: {len(missing)} of {format_count(len(paths), 'task')} not done, such as {missing[0]}; run the "
            "job's command again"
        )
    folded = _fold(output, paths.values(), started.head.inputs)
    _check_shards(output, folded, present)
    _count_files(folded["counts"], started.head.inputs, started.repeated_links)
    _check_budget(output, folded, error_budget)
    # All tasks are done: temporary files are those of killed attempts, or of late ones, which will not publish them.
    files.delete(sorted(filter(is_temporary, present)))
    folded["files"] = list_files(output, folded["files"])
    manifest = replace(started.head, **folded, farspan_version=farspan_version())
    if wrong := fault(manifest):
        raise FarspanError(f"{output}: its receipts do not make one artefact ({wrong}); {_ANEW}")
    if started.origins:
        write_origins(output, started.origins)
    write_card(output, manifest)
    write_manifest(output, manifest)
    files.delete([opened])  # first, so that a process that can claim a task once more sees that the job is finished
    files.delete(files.walk(work))
    remove_empty_folders(output)
    return manifest


@dataclass(frozen=True)
class Start:
    """``_work/job.json``: the manifest without what receipts will say, all tasks, and entries of ``Job``."""

    head: Manifest
    tasks: tuple[TaskName, ...]
    repeated_links: Mapping[str, Natural]
    versions: Mapping[str, str]
    origins: Mapping[str, str]


def read_start(path: str) -> Start:
    """Read the ``job.json`` at ``path``."""
    try:
        start = decode(Start, unseal(read_bytes(path)))
        if wrong := fault(start.head, finished=False):
            raise StructureError(wrong)
        return start
    except StructureError as error:
        raise FarspanError(f"{path}: does not say which job was begun ({error}); {_ANEW}") from error


def _fold(output: str, receipts: Iterable[str], inputs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Read and fold receipts; threads hide the latency of object stores, and would only cost time on a local disk."""
    if files.is_local(output):
        read = list(map(_read_receipt, receipts))
    else:
        with ThreadPoolExecutor(8) as pool:
            read = list(pool.map(_read_receipt, receipts))
    return {**fold(read, inputs), "files": {name: info for receipt in read for name, info in receipt.files.items()}}


def _read_receipt(path: str) -> Receipt:
    try:
        receipt = Receipt.from_json(read_bytes(path))
        if f"{receipt.task}.json" != os.path.basename(path):
            raise StructureError(f"it is that of task {receipt.task}")
        return receipt
    except StructureError as error:
        raise FarspanError(
            f"{path}: not a receipt of farspan ({error}); delete it and run the job's command again, which does its "
            "task anew"
        ) from error


def _check_shards(output: str, folded: Mapping[str, Any], present: set[str]) -> None:
    """Check that all shards and other files that receipts list exist."""
    shards = {os.path.join("shards", shard.name): shard for shard in folded["shards"]}
    for name, info in {**shards, **folded["files"]}.items():
        path = os.path.join(output, name)
        if path not in present or (files.is_local(path) and files.size(path) != info.bytes):
            raise FarspanError(f"{path}: missing or cut short, though its task is done; {_ANEW}")


def _count_files(
    counts: dict[str, dict[str, int]], inputs: Sequence[Mapping[str, Any]], repeated_links: Mapping[str, int]
) -> None:
    """Give each source of raw files its ``FILE_COUNTS``."""
    for entry in inputs:
        source = entry["path"].partition(":")[0]
        row = counts.setdefault(source, dict.fromkeys(COUNTS, 0))
        for name in FILE_COUNTS:
            row.setdefault(name, 0)
        row["files"] += 1
        row["bytes"] += entry["bytes"]
        row["repeated_links"] = repeated_links.get(source, 0)


def _example(output: str, folded: Mapping[str, Any]) -> str:
    """The first record that was rejected for the most frequent reason, in words."""
    reason = max(folded["rejects"], key=lambda name: folded["rejects"][name], default=None)
    for path in sorted(files.walk(os.path.join(output, "rejects"))):
        for batch in read_shard(path):
            for row in batch.to_pylist():
                if row["reason"] == reason:
                    place = ":".join(row[name] for name in ("source", "path", "record") if row[name])
                    return printable(f"; the first {reason} is {place}: {' '.join(row['detail'].split())}")
    return ""


def _check_budget(output: str, folded: Mapping[str, Any], budget: float) -> None:
    counts = folded["counts"].values()

    def share(part: str, whole: str, say: str) -> tuple[float, str]:
        bad, number = (sum(row.get(name, 0) for row in counts) for name in (part, whole))
        return bad / max(number, 1), f"{bad:,} of {number:,} {say}"

    worst, damage = max(
        share("damaged_files", "files", "files are damaged"),
        share("lost_bytes", "bytes", "bytes lie in damaged places"),
        share("rejected", "read", "records were rejected"),
        key=lambda pair: pair[0],
    )
    if worst > budget:
        reasons = ", ".join(f"{reason} {count:,}" for reason, count in folded["rejects"].items())
        raise FarspanError(
            f"{output}: {damage} ({reasons}), more than the error budget of {budget:.2%}{_example(output, folded)}. "
            f"Look into {os.path.join(output, 'rejects')}; then repair the input and use a new folder, or "
            "run the same command with a larger --error-budget, which keeps the finished work"
        )
