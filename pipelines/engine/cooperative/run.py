"""A process's part in a job: join, do tasks stage by stage, and write the manifest or wait until another does.

Processes know each other only through files in ``_work/``. All are equal, and each may die at any time: others take
over its claims, and a task that was done twice has written its files once.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress

from corpora.errors import FarspanError
from corpora.reporting import note
from corpora.storage import files
from corpora.storage.manifest import Manifest
from corpora.storage.manifest_file import CARD, NAME, read_manifest
from corpora.storage.stores.client_errors import Unsupported
from pipelines.engine.beginning import FolderGone, begin, require_begun
from pipelines.engine.cooperative.interrupts import Interrupts
from pipelines.engine.cooperative.order import Pace
from pipelines.engine.cooperative.stage import DEATHS, LEAST_PAUSE, JobGone, SharedStage
from pipelines.engine.finalize import fold_receipts
from pipelines.engine.job import Job, Stage, Task
from pipelines.engine.options import Engine
from pipelines.engine.paths import WORK, claims_folder
from pipelines.engine.presence.claims import Claims, next_generation
from pipelines.engine.presence.identity import LAUNCHER, Identity
from pipelines.engine.presence.lock import refuse_drivers, shared
from pipelines.engine.presence.member import Member
from pipelines.engine.progress import ProgressBars
from pipelines.engine.tasks import RunTask, TaskFailed, message_bytes

_FOLD = "manifest"  # the claim to write it


def run_stages(job: Job, engine: Engine) -> Manifest:
    """Take part in a job until it is finished, and return the manifest."""
    with Interrupts(engine.grace) as interrupts, shared(job.output):
        if not _finished(job.output):
            try:
                _take_part(job, engine, interrupts)
            except TaskFailed:
                raise
            except (FarspanError, JobGone, FileNotFoundError) as error:
                if not _becomes_finished(job.output, engine.lease):
                    if not isinstance(error, FarspanError):
                        require_begun(job.output)
                    raise
        begin(job)  # finished: compares the job with the one that was done, and deletes what a dead process left
        return read_manifest(job.output)


def _finished(output: str) -> bool:
    return files.exists(os.path.join(output, NAME))


def _becomes_finished(output: str, lease: float) -> bool:
    """True if the manifest is there, or comes to be seen within a lease: network file systems cache that it was not.

    What is written with it has to be there.
    """
    last = time.monotonic() + lease
    while not _finished(output):
        if time.monotonic() >= last or {NAME, CARD}.isdisjoint(files.names(output)):
            return False
        time.sleep(min(1.0, lease / 10))
    return True


def _take_part(job: Job, engine: Engine, interrupts: Interrupts) -> None:
    """Work on a job together with other processes until it is finished."""
    member = Member(job.output, Identity.own(LAUNCHER, engine.lease), interrupts.look_elsewhere)
    try:
        with member:
            member.require_exclusive()
            refuse_drivers(member, job.output)
            done = begin(job)
            if done is not None and not _finished(job.output):
                _do_all(job, member, interrupts, done)
    except Unsupported as error:
        raise FarspanError(f"{error}; use --workers there") from error
    finally:
        member.disappear()


def _do_all(job: Job, member: Member, interrupts: Interrupts, done: set[str]) -> None:
    """Do tasks until the manifest is written, by this process or another."""
    own: list[str] = []

    def run(do: RunTask, task: Task) -> None:
        own.append(do(task))

    try:
        with ProgressBars(job.stages) as bars:
            for stage in job.stages:
                bars.restore(stage, done)
            take_stages(job.output, job.output, job.stages, done, member, interrupts, bars.received, run)
        _finish(job, member)
    except (FolderGone, JobGone):
        raise
    except FarspanError as error:
        if member.failure() is None:
            member.fail(message_bytes(str(error)))  # the others stop as well
        raise
    finally:
        if not own:
            note(f"{job.output}: other processes did all tasks")


def take_stages(
    output: str,
    place: str,
    stages: Sequence[Stage],
    done: set[str],
    member: Member,
    interrupts: Interrupts,
    reporter: Callable[..., None],
    run: Callable[[RunTask, Task], object] = lambda do, task: do(task),
) -> None:
    """Do tasks, stage by stage, until all are done, by this process or others.

    Args:
        place: folder of the claims, which have one of their own for each stage.
        reporter: told of the units done, also of tasks that others did.
        run: calls a ``RunTask``.
    """
    for number, stage in enumerate(stages):
        do = RunTask(stage.name, stage.work, output, reporter, looked=True)
        SharedStage(
            output,
            os.path.join(claims_folder(place), str(number)),
            [task for task in stage.tasks if task.name not in done],
            member,
            interrupts,
            lambda task, do=do: run(do, task),  # type: ignore[misc]
            lambda task, stage=stage: reporter(stage.name, task.name, task.units),  # type: ignore[misc]
        ).finish()


def _finish(job: Job, member: Member) -> None:
    """Write the manifest, unless another process does."""
    claims = Claims(claims_folder(job.output), member.identity.name)
    pace, generation = Pace(LEAST_PAUSE[files.is_local(job.output)]), 1
    while not _finished(job.output):
        owner = claims.owner_of(_FOLD, generation)
        dead = owner is not None and member.dead(owner.name)
        following = next_generation(generation, owner, dead)
        if following is not None and claims.create(_FOLD, following):
            _fold(job, claims, following)
            return
        generation = following or generation
        if failure := member.failure():
            raise FarspanError(failure)
        if member.gone:
            raise JobGone
        time.sleep(pace.pause())
    owner = claims.owner_of(_FOLD, generation)
    if owner is not None and member.dead(owner.name):  # it died after writing the manifest
        files.delete(files.walk(os.path.join(job.output, WORK)))


def _fold(job: Job, claims: Claims, generation: int) -> None:
    try:
        if generation > DEATHS:
            raise FarspanError(f"{job.output}: {DEATHS} processes ended while they wrote the manifest")
        require_begun(job.output)
        fold_receipts(job.output, job.error_budget)
    except BaseException:
        with suppress(FarspanError, OSError):
            if not _finished(job.output):
                claims.give_back(_FOLD, generation)
        raise
