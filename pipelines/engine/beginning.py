"""Start of a job in its folder, and checks that the folder belongs to the job and still does later."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from typing import Any

from corpora.errors import FarspanError
from corpora.reporting import note
from corpora.storage import files
from corpora.storage.files import write_bytes
from corpora.storage.manifest_file import NAME, read_manifest
from corpora.storage.stores.local_disk import is_temporary
from corpora.storage.strict_json import seal
from pipelines.engine.finalize import read_start
from pipelines.engine.job import Job
from pipelines.engine.paths import WORK, remove_empty_folders, shows_presence


def check_output(output: str) -> None:
    """Check that a job may write to a folder: it is empty, or holds an artefact, finished or not."""

    def held() -> bool:
        places = (NAME, os.path.join(WORK, "job.json"))
        return any(files.exists(os.path.join(output, place)) for place in places)

    if held() or all(shows_presence(output, path) or is_temporary(path) for path in files.walk(output)):
        return
    if not held():  # and not started by another process meanwhile
        raise FarspanError(f"{output}: not empty and no farspan artefact; give --output a new or empty folder")


def begin(job: Job) -> set[str] | None:
    """Write the job's description into its folder, or compare it with the one there; the caller holds the lock.

    Returns:
        The names of the tasks that are done; None if the artefact is finished.
    """
    work = os.path.join(job.output, WORK)
    if files.exists(os.path.join(job.output, NAME)):
        finished = read_manifest(job.output)
        _refuse_changes(job.output, finished.job, job.head.job)
        files.delete(files.walk(work))
        remove_empty_folders(job.output)
        return None
    opened = os.path.join(work, "job.json")
    tasks = [task.name for stage in job.stages for task in stage.tasks]
    if files.exists(opened):
        _refuse_changes(job.output, read_start(opened).head.job, job.head.job)
        files.delete(ending(work, ".failed"))  # but no temporary file: another may still write it
    else:
        check_output(job.output)
    start = {"head": job.head.to_values(), "tasks": tasks}
    write_bytes(opened, seal({**start, "repeated_links": job.repeated_links, "origins": job.origins}))
    job.tokenizer(os.path.join(job.output, "tokenizer"))

    done = {os.path.basename(path).removesuffix(".json") for path in ending(work, ".json")}
    done.discard("job")  # the description itself
    left = sum(name not in done for name in tasks)
    if 0 < left < len(tasks):
        note(f"resuming: {len(tasks) - left} of {len(tasks)} tasks are done")
    return done


class FolderGone(FarspanError):
    """A job's folder was deleted, or the artefact finished, while this process worked on it."""


def require_begun(output: str) -> None:
    """Refuse to write to a folder that was deleted or finished meanwhile."""
    if not files.exists(os.path.join(output, WORK, "job.json")):
        if files.exists(os.path.join(output, NAME)):
            raise FolderGone(f"{output}: another job finished this artefact meanwhile; look at it, or make another")
        left = any(not path.startswith(os.path.join(output, WORK, "")) for path in files.walk(output))
        cure = f"delete {output} too, and run" if left else "run"
        place = os.path.join(output, WORK) if left else output
        raise FolderGone(f"{place}: was deleted while the job ran; {cure} the same command again to start over")


def _refuse_changes(output: str, before: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    now = json.loads(json.dumps(now))
    if before["format"] != now["format"]:
        raise FarspanError(f"{output}: holds {before['format']}, not {now['format']}; give --output another folder")
    changed = [f"{name} was {a!r}, is {b!r}" for name, a, b in _differences(before, now)]
    if changed:
        raise FarspanError(
            f"{output}: holds a job with another configuration: {'; '.join(changed[:5])}. "
            "Give --output another folder, or delete this one to make it again"
        )


def _differences(before: Any, now: Any, name: str = "") -> Iterator[tuple[str, Any, Any]]:
    if isinstance(before, Mapping) and isinstance(now, Mapping):
        for key in sorted({*before, *now}):
            yield from _differences(before.get(key), now.get(key), f"{name}.{key}" if name else key)
    elif before != now:
        yield name, _short(before), _short(now)


def _short(value: Any) -> Any:
    text = json.dumps(value)
    return value if len(text) <= 80 else text[:77] + "..."


def ending(folder: str, suffix: str) -> list[str]:
    """List the files below a folder whose paths end in ``suffix``."""
    return [path for path in files.walk(folder) if path.endswith(suffix)]
