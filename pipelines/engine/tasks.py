"""One task: its work, its receipt, and what is said when it fails."""

from __future__ import annotations

import os
import re
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

import pyarrow as pa

from corpora.errors import FarspanError, from_os_error
from corpora.storage import files
from corpora.storage.files import read_bytes, write_bytes
from corpora.storage.manifest import Receipt
from pipelines.engine.beginning import ending, require_begun
from pipelines.engine.finalize import WORK
from pipelines.engine.job import REPEAT, Report, Task
from pipelines.engine.progress import Reporter

_MEND = "finished tasks are kept; the others stop there again until that is mended"
_TOLD = "farspan says: "  # prefix of a task's message to the driver, in its exception


@dataclass(frozen=True)
class RunTask:
    """Does one task and writes its receipt, unless the receipt exists."""

    stage: str
    work: Callable[[Task, Report], Receipt]
    output: str
    reporter: Reporter

    def __call__(self, task: Task) -> str:
        place = os.path.join(self.output, WORK, task.name)
        if not files.exists(f"{place}.json"):
            try:
                require_begun(self.output)
                receipt = self.work(task, lambda done: self.reporter(self.stage, task.name, done))
                write_bytes(f"{place}.json", receipt.to_json())
            except Exception as error:
                text = _told(error, self.output)
                with suppress(OSError, FarspanError):  # the disk may be full; a deleted folder is not created again
                    require_begun(self.output)
                    write_bytes(f"{place}.failed", text.encode())
                raise FarspanError(f"{_TOLD}task {task.name} failed: {text}") from error
            finally:
                pa.default_memory_pool().release_unused()  # a long job then needs no more memory than its largest task
        self.reporter(self.stage, task.name, task.units)
        return task.name


def _told(error: Exception, output: str) -> str:
    """The message to the user for a task's exception, with the cure."""
    if isinstance(error, OSError) and (cured := from_os_error(error, output)):
        return f"{cured}; {REPEAT}"
    return f"{error}\n{_MEND}" if isinstance(error, FarspanError) else f"{traceback.format_exc()}{REPEAT}"


def explain(work: str, error: Exception) -> FarspanError:
    """The error to show for what a runner raised: the message of the task that failed, where one did."""
    failed = ending(work, ".failed")
    if failed:
        reason = read_bytes(failed[0]).decode(errors="replace").strip()
        task = os.path.basename(failed[0]).removesuffix(".failed")
        return FarspanError(f"task {task} failed: {reason}")
    if told := re.search(rf"{_TOLD}(task [\w-]+ failed: .*?)(?: \[while running|$)", str(error), re.MULTILINE):
        return FarspanError(told[1])
    last = next((line for line in reversed(str(error).splitlines()) if line.strip()), type(error).__name__)
    return FarspanError(f"the runner stopped: {last}; finished tasks are kept")
