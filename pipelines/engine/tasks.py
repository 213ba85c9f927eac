"""One task: its work, its receipt, and its error message."""

from __future__ import annotations

import os
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import pyarrow as pa

from corpora.errors import FarspanError, StoreError, from_os_error, one_line, out_of_memory
from corpora.reporting import note
from corpora.storage import files
from corpora.storage.files import write_bytes
from corpora.storage.manifest import Receipt
from pipelines.engine.folder import FolderGone, require_begun
from pipelines.engine.job import REPEAT, WORK, Report, Task

FAILURES = 3
"""Processes that may fail with a task before the job ends."""
_CORRECT = "finished tasks are kept: correct this, then run the same command again to resume"
_PATIENCE = 20.0  # seconds that an attempt waits for the receipt of another one, whose file has its name
_LOOK = 0.5  # seconds between two checks for it


class TaskFailed(FarspanError):
    """A task's failure; the message names the task and the cure.

    ``for_good``: the input or the options caused it, so no other process needs to try.
    """

    def __init__(self, message: str, for_good: bool) -> None:
        super().__init__(message)
        self.for_good = for_good

    def __reduce__(self) -> tuple[type[TaskFailed], tuple[str, bool]]:
        return TaskFailed, (str(self), self.for_good)


def report_nothing(stage: str, task: str, units: int, rejects: int = 0) -> None:
    """Ignore progress; the driver learns of the end of the task by its receipt."""


@dataclass(frozen=True)
class RunTask:
    """Does one task and writes its receipt, unless there is one; ``looked``: the caller has just seen none.

    ``report`` is called with a stage, a task, its units done so far and, at its end, the number of rejected records.
    """

    stage: str
    work: Callable[[Task, Report], Receipt]
    output: str
    report: Callable[..., None] = report_nothing
    looked: bool = False

    def __call__(self, task: Task) -> str:
        """Do a task and return its name."""
        try:
            report = partial(self.report, self.stage, task.name)
            receipt = perform(task, self.work, self.output, report, looked=self.looked)
        except FolderGone:
            raise
        except (Exception, SystemExit) as error:  # a plug-in that exits with status 0 would end the job as done
            require_begun(self.output)
            raise _failure(task, error, self.output) from error
        finally:
            pa.default_memory_pool().release_unused()  # a long job then needs no more memory than its largest task
        self.report(self.stage, task.name, task.units, sum(receipt.rejects.values()) if receipt else 0)
        return task.name


class _DoneElsewhere(Exception):
    """Another attempt at the task has written the receipt."""


def perform(
    task: Task,
    work: Callable[[Task, Report], Receipt],
    output: str,
    report: Report,
    *,
    looked: bool = False,
    patience: float = _PATIENCE,
) -> Receipt | None:
    """Do a task and write its receipt, unless another attempt at it has written one, before or meanwhile.

    Attempts may overlap: engines repeat tasks whose worker is silent but alive, and the results of some stages differ
    in their last bits from machine to machine. Before a file appears under its name, the receipt is looked for again.
    Then the file is created and not replaced, where the store can do that: of two attempts that differ, the first one's
    file stays, and the other attempt waits ``patience`` seconds for the receipt. A file that has none by then is
    replaced. Returns the receipt; None if another attempt has written it.
    """
    attempt = _Attempt(output, os.path.join(output, WORK, f"{task.name}.json"), patience)
    try:
        if not looked:
            attempt.require_open()
        with files.guard_creation(attempt.require_open, attempt.give_way):
            receipt = work(task, report)
        # The receipt of an attempt that was taken for dead describes a file that no longer exists, and is replaced.
        checks = [partial(require_begun, output)] if attempt.replaced else [attempt.require_open, attempt.give_way]
        with files.guard_creation(*checks):
            write_bytes(attempt.receipt, receipt.to_json())
        return receipt
    except _DoneElsewhere:
        return None
    except Exception:
        if not files.exists(attempt.receipt):
            raise
        return None  # the task is done; this attempt may have missed files that the end of the job removed


@dataclass
class _Attempt:
    """An attempt at a task beside others; ``replaced`` once a file of another one, silent for too long, made room."""

    output: str
    receipt: str
    patience: float
    replaced: bool = False

    def require_open(self) -> None:
        if files.exists(self.receipt):
            raise _DoneElsewhere
        require_begun(self.output)

    def give_way(self) -> None:
        """Let another attempt, whose file has the name of this one's, write its receipt."""
        last = time.monotonic() + self.patience
        while not files.exists(self.receipt):
            if self.replaced or time.monotonic() >= last:
                self.replaced = True
                return
            time.sleep(_LOOK)
        raise _DoneElsewhere


def note_retry(error: TaskFailed) -> None:
    """Note that another process will do a task that failed."""
    note(f"{str(error).removesuffix(f'; {REPEAT}').removesuffix(REPEAT)}; passed on to another process")


def message_bytes(text: str) -> bytes:
    """Encode a message, in which a file's name may have bytes that are no text, as lone surrogates."""
    return text.encode(errors="backslashreplace")


def is_for_good(text: str) -> bool:
    """Return True if the message of a failed task says that only the user can correct it."""
    return text.rstrip().endswith(_CORRECT)


def _failure(task: Task, error: BaseException, output: str) -> TaskFailed:
    """Make the error to show for a task's exception, with the cure."""
    for_good = isinstance(error, FarspanError) and not isinstance(error, StoreError)
    cured = from_os_error(error, output) if isinstance(error, OSError) else None
    if cured or isinstance(error, StoreError):
        text = f"{cured or error}; {REPEAT}"
    elif out_of_memory(error):
        text = f"out of memory ({one_line(error) or type(error).__name__}); {REPEAT}"
    else:
        text = f"{error}\n{_CORRECT}" if for_good else f"{traceback.format_exc()}{REPEAT}"
    return TaskFailed(f"task {task.name} failed: {text}", for_good)
