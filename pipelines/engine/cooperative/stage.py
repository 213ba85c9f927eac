"""A process's part in a stage: claim and do tasks, then wait for the others or take over tasks of dead ones."""

from __future__ import annotations

import os
import random
import time
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress

from corpora.errors import FarspanError
from corpora.storage import files
from pipelines.engine.cooperative.interrupts import Interrupts, TaskDoneElsewhere
from pipelines.engine.cooperative.order import Pace, by_size, claims_per_listing, listing_cost, order_of
from pipelines.engine.job import Task
from pipelines.engine.paths import WORK, claims_folder
from pipelines.engine.presence.claims import Claims, next_generation
from pipelines.engine.presence.identity import Identity
from pipelines.engine.presence.member import IDLE, Member

ATTEMPTS = 4
"""Processes that may die with a task before the job ends."""
_LOOKED_AT = 64  # claims of others that are checked at a time
_RATES = {True: 500.0, False: 4.0}  # requests a second while waiting, on local folders and elsewhere


class JobGone(Exception):
    """The job was finished or deleted while this process worked on it."""


class SharedStage:
    """The tasks of a stage that are not done, as one process sees them.

    Args:
        output: folder of the job.
        number: of the stage.
        tasks: those without receipt.
        member: this process.
        interrupts: of this process.
        run: does a task and writes its receipt.
        seen: called with each task that another process has done.
        wait: pauses for some seconds.
    """

    def __init__(
        self,
        output: str,
        number: int,
        tasks: Iterable[Task],
        member: Member,
        interrupts: Interrupts,
        run: Callable[[Task], object],
        seen: Callable[[Task], object] = lambda task: None,
        wait: Callable[[float], object] = time.sleep,
    ) -> None:
        self._work, self._member, self._interrupts = os.path.join(output, WORK), member, interrupts
        self._run, self._seen, self._wait = run, seen, wait
        self._missing = {task.name: task for task in order_of(tasks, member.identity.name)}
        self._claims = Claims(os.path.join(claims_folder(output), str(number)), member.identity.name)
        self._owners: dict[str, tuple[int, str | None]] = {}  # task -> generation and owner of its claim
        self._requests = 0  # of the present look
        self._pace = Pace(_RATES[files.is_local(output)])

    def finish(self) -> None:
        """Do tasks until all of the stage are done, by this process or others.

        Raises:
            FarspanError: a task failed, here or elsewhere, or too many processes died with it.
            JobGone, FileNotFoundError: the job was finished or deleted.
        """
        if not self._missing:
            return
        if files.is_local(self._claims.folder):
            with suppress(FileExistsError):
                os.mkdir(self._claims.folder)
        self._do_unclaimed()
        self._do_inherited()

    def _do_unclaimed(self) -> None:
        """Do tasks as long as there are unclaimed ones."""
        jump = random.Random(self._member.identity.name).randrange
        cost = claims_per_listing(len(self._missing), local=files.is_local(self._work))
        taken, wasted = self._claims.first(), 0
        for group in by_size(self._missing.values()):
            free = deque(task for task in group if task.name not in taken)
            free.rotate(jump(len(group)))
            while free:
                task = free.popleft()
                self.require_sound()
                if self._claims.create(task.name):
                    self._do(task, 1)
                    continue
                wasted += 1
                if wasted >= cost:
                    taken, wasted = self._claims.first(), 0
                    free = deque(task for task in free if task.name not in taken)
                free.rotate(jump(len(group)))

    def _do_inherited(self) -> None:
        """Wait until all tasks are done, and do those that dead processes leave."""
        idle = False
        while True:
            self._requests = 0
            changed = self._see_receipts()
            if not self._missing:
                break
            self._member.look()
            self.require_sound()
            if inherited := self._inherit():
                if idle:
                    self._member.unmark(IDLE)
                    idle = False
                self._do(*inherited)
                continue
            if not idle:
                self._member.mark(IDLE)
                idle = True
            self._wait(self._pace.after(self._requests, changed))
        if idle:
            self._member.unmark(IDLE)

    def require_sound(self) -> None:
        """Check that the job is still active.

        Raises:
            FarspanError: another process reported a failure.
            JobGone: the folder is gone.
        """
        if failure := self._member.failure():
            raise FarspanError(failure)
        if self._member.gone:
            raise JobGone

    def _do(self, task: Task, generation: int) -> None:
        receipt = self._receipt(task.name)
        try:
            with self._interrupts.working(lambda: files.exists(receipt)):
                self._run(task)
        except TaskDoneElsewhere:
            return
        except BaseException:
            with suppress(FarspanError, OSError):
                if not files.exists(receipt):
                    self._claims.give_back(task.name, generation)
            raise
        self._missing.pop(task.name, None)

    def _see_receipts(self) -> bool:
        """Forget the tasks that are done; True if there were any."""
        cost = listing_cost(len(self._missing))
        if len(self._missing) > 4 * cost:
            present = {*files.names(self._work)}
            done = [name for name in self._missing if f"{name}.json" in present]
        else:
            cost = len(self._missing)
            done = [name for name in self._missing if files.exists(self._receipt(name))]
        self._requests += cost
        for name in done:
            self._seen(self._missing.pop(name))
        return bool(done)

    def _inherit(self) -> tuple[Task, int] | None:
        """Claim a task whose claim was given back, or whose process is dead."""
        for name in [*self._missing][:_LOOKED_AT]:
            generation, owner = self._owners.get(name) or self._read_owner(name, 1)
            if owner == self._member.identity.name:
                return self._missing[name], generation  # the store had answered otherwise
            dead = owner is not None and self._member.dead(owner)
            if dead:
                generation, owner = self._read_owner(name, generation)  # given back before it left?
            following = next_generation(generation, owner, dead)
            if following is None:
                continue
            if following > ATTEMPTS:
                raise FarspanError(self._deaths(name, generation, owner))
            self._requests += 1
            if self._claims.create(name, following):
                return self._missing[name], following
            self._read_owner(name, following)
        return None

    def _read_owner(self, name: str, generation: int) -> tuple[int, str | None]:
        self._requests += 1
        self._owners[name] = (generation, self._claims.owner_of(name, generation))
        return self._owners[name]

    def _deaths(self, name: str, generation: int, owner: str | None) -> str:
        """Make the error for a task that kills its processes, and delete its claims for the next start."""
        for number in range(1, generation + 1):
            self._claims.give_back(name, number)
        last = Identity.parse(owner or "") or "an unknown one"
        return (
            f"task {name} failed: {generation} processes ended in the middle of it, at last {last} (out of memory is "
            "the usual reason, or a time limit shorter than the task); finished tasks are kept: run the same command "
            "again to resume, with more memory or time"
        )

    def _receipt(self, name: str) -> str:
        return os.path.join(self._work, f"{name}.json")
