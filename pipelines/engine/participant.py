"""A process's part in a job: join, claim and do tasks stage by stage, write the manifest or wait until another does.

Processes know each other only through files in ``_work/``. All are equal, and each may die at any time: others take
over its claims, and a task that was done twice has written its files once. The manifest is claimed as a task is.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from itertools import islice

from corpora.errors import FarspanError
from corpora.reporting import note
from corpora.storage import files
from corpora.storage.manifest import Manifest
from corpora.storage.manifest_file import CARD, NAMES, manifest_name, manifest_path, read_manifest
from corpora.storage.stores.client_errors import Unsupported
from pipelines.engine.claims import (
    Claims,
    Owner,
    create_folder,
    listing_cost,
    next_generation,
    pause_after,
    refuse_drivers,
    shuffle,
)
from pipelines.engine.folder import FolderGone, begin, fold_receipts, require_begun
from pipelines.engine.job import WORK, Job, Task, claims_folder
from pipelines.engine.members import LAUNCHER, Identity, Member
from pipelines.engine.options import Engine
from pipelines.engine.progress import ProgressBars
from pipelines.engine.tasks import FAILURES, RunTask, TaskFailed, message_bytes, note_retry
from pipelines.interrupts import Interrupts

_DEATHS = 4  # processes that may die with a task before the job ends
_LOOKED_AT = 8  # claims of others that are checked at a time
LEAST_PAUSE = {True: 0.05, False: 0.5}
"""Shortest seconds between two looks at the progress of others: on local folders, and elsewhere."""


def run_stages(job: Job, engine: Engine) -> Manifest:
    """Take part in a job until it is finished, and return the manifest."""
    with Interrupts(engine.grace) as interrupts, create_folder(job.output):
        if not manifest_path(job.output):
            try:
                _take_part(job, engine, interrupts)
            except TaskFailed:
                raise
            except (FarspanError, FileNotFoundError) as error:
                if not _becomes_finished(job.output, engine.lease):
                    if isinstance(error, FolderGone | FileNotFoundError):
                        require_begun(job.output)  # says what happened
                    raise
        begin(job)  # finished: compares the job with the one that was done, and deletes what a dead process left
        return read_manifest(job.output)


def _becomes_finished(output: str, lease: float) -> bool:
    """True if the manifest is there, or comes to be seen within a lease: network file systems cache that it was not.

    What is written with it has to be there.
    """
    last = time.monotonic() + lease
    while not manifest_path(output):
        if time.monotonic() >= last or {*NAMES, CARD}.isdisjoint(files.names(output)):
            return False
        time.sleep(min(1.0, lease / 10))
    return True


def _take_part(job: Job, engine: Engine, interrupts: Interrupts) -> None:
    """Work on a job together with other processes until it is finished."""
    try:
        with Member(job.output, Identity.own(LAUNCHER, engine.lease)) as member:
            member.require_exclusive()
            refuse_drivers(member, job.output)
            done = begin(job)
            if done is not None and not manifest_path(job.output):
                _do_all(job, member, interrupts, done)
    except Unsupported as error:
        raise FarspanError(f"{error}; use --workers there") from error


def _do_all(job: Job, member: Member, interrupts: Interrupts, done: set[str]) -> None:
    """Do tasks until the manifest is written, by this process or another."""
    own: list[str] = []
    try:
        with stop_others(member):
            with ProgressBars(job.stages) as bars:
                for stage in job.stages:
                    bars.restore(stage, done)
                for number, stage in enumerate(job.stages):
                    run = RunTask(stage.name, stage.work, job.output, bars.report, looked=True)
                    SharedStage(
                        job.output,
                        os.path.join(claims_folder(job.output), str(number)),
                        [task for task in stage.tasks if task.name not in done],
                        member,
                        interrupts,
                        lambda task, run=run: own.append(run(task)),  # type: ignore[misc]
                        lambda task, stage=stage: bars.report(stage.name, task.name, task.units),  # type: ignore[misc]
                    ).finish()
            if not manifest_path(job.output):
                SharedStage(
                    job.output,
                    claims_folder(job.output),
                    [Task("manifest", {}, 1)],
                    member,
                    interrupts,
                    lambda task: fold_receipts(job.output, job.error_budget),
                    receipt=lambda task: os.path.join(job.output, manifest_name(job.head.format)),
                ).finish()
    finally:
        if not own:
            note(f"{job.output}: other processes did all tasks")


@contextmanager
def stop_others(member: Member) -> Iterator[None]:
    """Pass an error of this process on to the others, which then stop; none if the folder is gone."""
    try:
        yield
    except FolderGone:
        raise
    except FarspanError as error:
        if member.failure is None:
            member.fail(message_bytes(str(error)))
        raise


class SharedStage:
    """The tasks of a stage that have no receipt, as one process, ``member``, sees them.

    ``claims`` is the folder of the stage's claims. ``run`` does a task and writes its receipt, whose path ``receipt``
    gives if it is not in ``_work/``; ``seen`` is called with each task that another process has done. A task begins
    once it is ``ready``.
    """

    def __init__(
        self,
        output: str,
        claims: str,
        tasks: Iterable[Task],
        member: Member,
        interrupts: Interrupts,
        run: Callable[[Task], object],
        seen: Callable[[Task], object] = lambda task: None,
        receipt: Callable[[str], str] | None = None,
        ready: Callable[[Task], bool] = lambda task: True,
    ) -> None:
        self._output, self._work = output, os.path.join(output, WORK)
        self._receipt = receipt or (lambda name: os.path.join(self._work, f"{name}.json"))
        self._member, self._interrupts = member, interrupts
        self._run, self._seen, self._ready = run, seen, ready
        self._missing = {task.name: task for task in shuffle(tasks, member.identity.name)}
        self._claims = Claims(claims, member.identity.name)
        self._owners: dict[str, tuple[int, Owner | None]] = {}  # task -> generation and owner of its claim
        self._failed: dict[str, float] = {}  # task that failed here -> time

    def finish(self) -> None:
        """Do tasks until all of the stage are done, by this process or others."""
        if not self._missing:
            return
        if files.is_local(self._claims.folder):
            with suppress(FileExistsError):
                os.mkdir(self._claims.folder)
        self._do_unclaimed()
        begun, least = time.monotonic(), LEAST_PAUSE[files.is_local(self._work)]
        while self._see_receipts():
            self.require_sound()
            if inherited := self._take_over():
                self._do(*inherited)
                begun = time.monotonic()
                continue
            time.sleep(pause_after(time.monotonic() - begun, least))

    def _do_unclaimed(self) -> None:
        """Do tasks as long as there are unclaimed ones; claims are listed again when that costs less than to try."""
        cost = listing_cost(len(self._missing), local=files.is_local(self._work))
        taken, wasted = self._claims.generations(), 0
        for task in [*self._missing.values()]:
            if task.name in taken or not self._ready(task):
                continue
            self.require_sound()
            if self._claims.create(task.name):
                self._do(task, 1)
                continue
            wasted += 1
            if wasted >= cost:
                taken, wasted = self._claims.generations(), 0

    def require_sound(self) -> None:
        """Check that the job is still active."""
        if self._member.failure:
            raise FarspanError(self._member.failure)
        if self._member.gone:
            raise FolderGone(f"{self._output}: was finished or deleted meanwhile; run the same command again")

    def _do(self, task: Task, generation: int) -> None:
        """Do a claimed task; one that fails by the store or this machine passes on to another process."""
        receipt = self._receipt(task.name)
        try:
            require_begun(self._output)  # the end of a job deletes its claims
            with self._interrupts.working():
                self._run(task)
        except TaskFailed as error:
            if error.for_good or generation >= FAILURES:
                self._member.fail(message_bytes(str(error)))  # the others stop as well, and then the task is free
                self._forget_claims(task.name, generation)
                raise
            self._claims.fail(task.name, generation, message_bytes(str(error)))
            self._failed[task.name] = time.monotonic()
            self._owners[task.name] = (generation, Owner(self._claims.owner, str(error)))
            note_retry(error)
            return
        except BaseException:
            with suppress(FarspanError, OSError):
                if not files.exists(receipt):
                    self._claims.give_back(task.name, generation)
            raise
        self._missing.pop(task.name, None)

    def _see_receipts(self) -> bool:
        """Forget the tasks that are done; True if others are left."""
        if len(self._missing) > 4 * listing_cost(len(self._missing), local=False):
            present = {*files.names(self._work)}
            done = [name for name in self._missing if f"{name}.json" in present]
        else:
            done = [name for name in self._missing if files.exists(self._receipt(name))]
        for name in done:
            self._seen(self._missing.pop(name))
        return bool(self._missing)

    def _take_over(self) -> tuple[Task, int] | None:
        """Claim a task whose claim was given back, or whose process failed or is dead.

        A few are looked at, and others the next time, so that the cost does not grow with the number of processes.
        """
        for name in [*islice((name for name, task in self._missing.items() if self._ready(task)), _LOOKED_AT)]:
            self._missing[name] = self._missing.pop(name)  # the last one now
            generation, owner = self._owners.get(name) or self._read_owner(name, 1)
            dead = owner is not None and self._member.dead(owner.name)
            if dead or (owner is not None and not owner.failure):
                generation, owner = self._read_owner(name, generation)  # given back, or failed meanwhile?
            following = next_generation(generation, owner, dead)
            if following is None or not self._may_try(name, owner):
                continue
            self._member.look_for_failure()
            self.require_sound()
            if following > _DEATHS:
                raise FarspanError(self._deaths(name, generation, owner))
            if self._claims.create(name, following):
                return self._missing[name], following
            self._read_owner(name, following)
        return None

    def _may_try(self, name: str, owner: Owner | None) -> bool:
        """False for a task that failed here, until no other process has taken it for the time of a lease."""
        if owner is None or owner.name != self._member.identity.name:
            return True
        return time.monotonic() - self._failed.get(name, -math.inf) >= self._member.identity.lease

    def _read_owner(self, name: str, generation: int) -> tuple[int, Owner | None]:
        self._owners[name] = (generation, self._claims.owner_of(name, generation))
        return self._owners[name]

    def _deaths(self, name: str, generation: int, owner: Owner | None) -> str:
        """Make the error for a task that kills its processes, and delete its claims for the next start."""
        self._forget_claims(name, generation)
        last = Identity.parse(owner.name if owner else "") or "an unknown one"
        return (
            f"task {name} failed: {generation} processes ended in the middle of it, at last {last} (out of memory is "
            "the usual reason, or a time limit shorter than the task); finished tasks are kept: run the same command "
            "again to resume, with more memory or time"
        )

    def _forget_claims(self, name: str, generation: int) -> None:
        for number in range(1, generation + 1):
            self._claims.give_back(name, number)
