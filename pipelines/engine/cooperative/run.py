"""A process's part in a job: join, do tasks stage by stage, and write the manifest or wait until another does.

Processes know each other only through files in ``_work/``. All are equal, and each may die at any time: others take
over its claims, and a task that was done twice has written its files once.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from functools import partial

from corpora.errors import FarspanError
from corpora.reporting import note
from corpora.storage import files
from corpora.storage.manifest import Manifest
from corpora.storage.manifest_file import NAME, read_manifest
from corpora.storage.stores.client_errors import Unsupported
from pipelines.engine.beam.remote.submission import read_submission
from pipelines.engine.beginning import begin, require_begun
from pipelines.engine.cooperative.interrupts import Interrupts
from pipelines.engine.cooperative.order import Pace
from pipelines.engine.cooperative.stage import ATTEMPTS, JobGone, SharedStage
from pipelines.engine.finalize import fold_receipts
from pipelines.engine.job import Job, Stage, Task
from pipelines.engine.options import Engine
from pipelines.engine.paths import WORK, claims_folder
from pipelines.engine.presence.claims import Claims, next_generation
from pipelines.engine.presence.identity import LAUNCHER, Identity
from pipelines.engine.presence.lock import refuse_drivers, shared
from pipelines.engine.presence.member import FAILED, IDLE, Member
from pipelines.engine.progress import ProgressBars
from pipelines.engine.tasks import RunTask, message_bytes, without_prefix

_FOLD = "manifest"  # the claim to write it
_RATE = 10.0  # requests a second of processes that wait for the manifest


def run_stages(job: Job, engine: Engine) -> Manifest:
    """Take part in a job until it is finished, and return the manifest.

    Raises:
        FarspanError: a process works in the folder alone, a task failed, here or elsewhere, or the error budget is
            spent.
        Terminated: the process was told to end.
    """
    with Interrupts(engine.grace) as interrupts, shared(job.output):
        if not _finished(job.output):
            _take_part(job, engine, interrupts)
        begin(job)  # finished: compares the job with the one that was done, and deletes what a dead process left
        return read_manifest(job.output)


def _finished(output: str) -> bool:
    return files.exists(os.path.join(output, NAME))


def _take_part(job: Job, engine: Engine, interrupts: Interrupts) -> None:
    """Work on a job together with other processes until it is finished."""
    member = Member(job.output, Identity.own(LAUNCHER, engine.lease), interrupts.look_elsewhere)
    part = _Part(job, member, interrupts)
    try:
        with member:
            member.require_exclusive()
            refuse_drivers(member, job.output)
            _refuse_submitted(job.output)
            part.take()
    except Unsupported as error:
        raise FarspanError(f"{error}; use --engine beam there") from error
    finally:
        unfinished = part.began and files.exists(os.path.join(job.output, WORK, "job.json"))
        if unfinished and not _finished(job.output):
            member.leave()
        else:
            member.disappear()


def _refuse_submitted(output: str) -> None:
    """Refuse a job that another engine has, whose workers may be at work.

    Raises:
        FarspanError: with the way to end it.
    """
    if submitted := read_submission(output):
        raise FarspanError(
            f"{output}: this job was handed to {submitted.runner} as {submitted.name}; run its command with "
            "--engine beam, which attaches to it or ends it"
        )


class _Part:
    """One process's part in a job.

    Attributes:
        began: the job was begun, or found begun.
    """

    def __init__(self, job: Job, member: Member, interrupts: Interrupts) -> None:
        self._job, self._member, self._interrupts = job, member, interrupts
        self.began, self._own = False, 0  # tasks done here

    def take(self) -> None:
        """Do tasks until the manifest is written, by this process or another."""
        try:
            done = begin(self._job)
            self.began = True
            if done is not None and not _finished(self._job.output):
                self._take(done)
        except (JobGone, FileNotFoundError):
            if not _finished(self._job.output):
                require_begun(self._job.output)
                raise
        if not self._own:
            note(f"{self._job.output}: other processes did all tasks")

    def _take(self, done: set[str]) -> None:
        totals = {stage.name: (sum(task.units for task in stage.tasks), stage.unit) for stage in self._job.stages}
        try:
            with ProgressBars(totals) as bars:
                for number, stage in enumerate(self._job.stages):
                    self._do_stage(number, stage, done, bars)
            self._end()
        except FarspanError as error:
            if self._member.failure() is None:
                self._member.mark(FAILED, message_bytes(str(error)))  # the others stop as well
            raise

    def _do_stage(self, number: int, stage: Stage, done: set[str], bars: ProgressBars) -> None:
        def seen(task: Task) -> None:
            bars.received(stage.name, task.name, task.units)

        for task in stage.tasks:
            if task.name in done:
                bars.restored(stage.name, task.name, task.units)
        run = partial(self._run, RunTask(stage.name, stage.work, self._job.output, bars.received, looked=True))
        tasks = [task for task in stage.tasks if task.name not in done]
        SharedStage(self._job.output, number, tasks, self._member, self._interrupts, run, seen).finish()

    def _run(self, run: RunTask, task: Task) -> None:
        try:
            run(task)
        except FarspanError as error:
            if _finished(self._job.output):
                raise JobGone from error
            raise FarspanError(without_prefix(error)) from error
        self._own += 1

    def _end(self) -> None:
        """Write the manifest, unless another process does."""
        claims = Claims(claims_folder(self._job.output), self._member.identity.name)
        pace, generation = Pace(_RATE), 1
        self._member.mark(IDLE)
        while not _finished(self._job.output):
            self._member.look()
            owner = claims.owner_of(_FOLD, generation)
            dead = owner is not None and self._member.dead(owner)
            following = next_generation(generation, owner, dead)
            if following is not None and claims.create(_FOLD, following):
                self._fold(claims, following)
                return
            generation = following or generation
            if failure := self._member.failure():
                raise FarspanError(failure)
            time.sleep(pace.after(3, changed=False))
        self._clean_after(claims, generation)

    def _fold(self, claims: Claims, generation: int) -> None:
        """Fold the receipts once no other process is at work, as one may be on a task that passed on from it."""
        pace = Pace(_RATE)
        try:
            if generation > ATTEMPTS:
                raise FarspanError(f"{self._job.output}: {ATTEMPTS} processes ended while they wrote the manifest")
            while self._member.busy(LAUNCHER):
                time.sleep(pace.after(1, changed=False))
                self._member.look()
            require_begun(self._job.output)
            fold_receipts(self._job.output, self._job.error_budget)
        except BaseException:
            with suppress(FarspanError, OSError):
                if not _finished(self._job.output):
                    claims.give_back(_FOLD, generation)
            raise

    def _clean_after(self, claims: Claims, generation: int) -> None:
        """Delete what a process that died after writing the manifest left."""
        owner = claims.owner_of(_FOLD, generation)
        if owner is not None and self._member.dead(owner):
            files.delete(files.walk(os.path.join(self._job.output, WORK)))
