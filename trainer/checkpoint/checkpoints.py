"""Checkpoints: folders that exist whole or not at all, and are checked byte by byte before they are believed.

All ranks write one folder under a temporary name, each its share; when every file is on the disk and its sha256 known,
rank 0 writes the manifest and renames the folder. A run that is killed at any moment goes on from the last folder that
was renamed, with any number of ranks and any parallel mode.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any

import torch.distributed as dist
from torch import nn
from torch.optim import Optimizer

from corpora.errors import FarspanError
from corpora.storage.files import sweep, write_bytes
from corpora.storage.temporary import temporary_name
from trainer.checkpoint.files import (
    FORMAT,
    MANIFEST,
    MODEL,
    OPTIMIZER,
    VERSION,
    file_facts,
    find_fault,
    newest_first,
    outdated,
    read_manifest,
    require_same_run,
    sync_folder,
)
from trainer.checkpoint.run_lock import RunLock, read_record
from trainer.checkpoint.state import (
    Tensors,
    check_fit,
    copied,
    model_tensors,
    not_finite,
    optimizer_tensors,
    read_tensors,
    restore_optimizer,
    shards_of,
    share_of,
    write_tensors,
)
from trainer.optim.optimizer import calmer
from trainer.parallel.distributed import PATIENCE, World


@dataclass(frozen=True, kw_only=True)
class CheckpointConfig:
    """When checkpoints are written, and which stay.

    Attributes:
        every: steps between checkpoints; there is always one at the end.
        keep: newest ones that stay.
        keep_every: those of steps that are multiples of this stay too; None for no others.
        asynchronous: training goes on while a checkpoint is written.

    Raises:
        FarspanError: counts below 1.
    """

    every: int = 1000
    keep: int = 3
    keep_every: int | None = None
    asynchronous: bool = True

    def __post_init__(self) -> None:
        for name in ("every", "keep", "keep_every"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise FarspanError(f"checkpoint.{name} is {value}; it must be at least 1")


class Checkpoints:
    """The checkpoints of one run. Every rank makes one, and calls its methods at the same places.

    ``restore`` comes first and takes the directory, ``finish`` comes last and gives it back; used as a context manager,
    it is given back after an error too.
    """

    def __init__(
        self,
        directory: Path,
        config: CheckpointConfig,
        world: World,
        identity: Mapping[str, Any],
        vocabulary: Mapping[str, Any] | None = None,
        report: Callable[[str], None] = print,
    ) -> None:
        """
        Args:
            directory: of all checkpoints of the run, on a file system that all ranks share.
            config: when to write, and what stays.
            world: who else takes part.
            identity: nested JSON values that must be equal for a run to be continued.
            vocabulary: of ``opening.run_vocabulary``; decides nothing about the run.
            report: told, on rank 0, about each damaged checkpoint that is passed over.
        """
        self._directory, self._config, self._report = directory, config, report
        self._identity, self._vocabulary = identity, vocabulary
        # A group of its own, because a checkpoint that is being written talks while the training talks in the others.
        group = None if world.control is None else dist.new_group(backend="gloo", timeout=PATIENCE)
        self._world = replace(world, control=group)
        self._lock: RunLock | None = None
        self._start = 0
        self._writer = ThreadPoolExecutor(1, "checkpoint")
        self._writing: Future[None] | None = None

    def __enter__(self) -> Checkpoints:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is None:
            self.finish()
        else:
            self._release()

    def restore(self, model: nn.Module, optimizer: Optimizer) -> int | None:
        """Take the directory, and load the newest whole checkpoint into model and optimiser, in place.

        Args:
            model: plain, DDP or FSDP2.
            optimizer: new, without state.

        Returns:
            The finished updates, or None where there is no checkpoint at all: both are left as they are.

        Raises:
            FarspanError: another process has the directory; every checkpoint is damaged; the newest whole one belongs
                to another run or version.
        """
        self._together(self._take)
        path = self._newest_whole()
        if path is not None:
            require_same_run(path, self._identity)
        self._start = self._together(self._begin)[0]
        if seen := [rank for rank, start in enumerate(self._together(self._seen_start)) if start != self._start]:
            raise FarspanError(
                f"ranks {seen} do not see what rank 0 writes to {self._directory}; run.directory must lie on a file "
                "system that all machines share"
            )
        if path is None:
            return None
        check_fit(path / MODEL, model_tensors(model))
        # The optimiser first, for making its state to be filled takes a step, if one of length zero.
        restore_optimizer(model, optimizer, path / OPTIMIZER, self._world.control)
        read_tensors(path / MODEL, model_tensors(model), self._world.control)
        return read_manifest(path)["step"]

    def save(self, step: int, samples: int, model: nn.Module, optimizer: Optimizer) -> Path:
        """Write the checkpoint of ``step``, then delete those that ``keep`` and ``keep_every`` let go.

        If asynchronous, the state is copied and written while training goes on; an error in writing is raised by the
        next ``save`` or ``finish``. One that is still being written is waited for.

        Args:
            step: finished updates.
            samples: the number of the next sample in the order of its stage, for readers; ``step`` determines it.
            model, optimizer: as in ``restore``, which was called before.

        Returns:
            The folder, there when it is written.

        Raises:
            FarspanError: a value that is not finite; another process has taken the run over; the disk is full or gone.
        """
        self._wait()
        states = {MODEL: model_tensors(model), OPTIMIZER: optimizer_tensors(model, optimizer)}
        bad = self._together(lambda: self._check(states))
        if any(bad):
            newest = next((path.name for path in newest_first(self._directory)), "none")
            cure = calmer(self._identity.get("run", {}).get("precision"))
            raise FarspanError(
                f"after step {step}, {next(filter(None, bad))} holds values that are not finite; no checkpoint is "
                f"written, the newest is {newest}; {cure}"
            )
        states = {name: share_of(tensors, self._world.rank, self._world.size) for name, tensors in states.items()}
        path = self._directory / f"step-{step:08d}"
        if self._config.asynchronous:
            states = {name: copied(tensors) for name, tensors in states.items()}
            self._writing = self._writer.submit(self._write, path, step, samples, states)
        else:
            self._write(path, step, samples, states)
        return path

    def finish(self) -> None:
        """Wait until the last checkpoint is written, and give the directory back.

        Raises:
            FarspanError: it could not be written.
        """
        try:
            self._wait()
        finally:
            self._release()

    def _wait(self) -> None:
        writing, self._writing = self._writing, None
        if writing:
            writing.result()

    def _release(self) -> None:
        self._writer.shutdown()
        if self._lock:
            self._lock.release()

    def _take(self) -> None:
        if self._world.first:
            self._lock = RunLock(self._directory)

    def _begin(self) -> int:
        if not self._lock:
            return 0
        sweep(str(self._directory))
        for abandoned in self._directory.glob("*.tmp-*"):  # by a writer that was killed, or put aside
            _remove(abandoned)
        return self._lock.begin()

    def _seen_start(self) -> int:
        return read_record(self._directory).get("start", 0)

    def _newest_whole(self) -> Path | None:
        rank, size = self._world.rank, self._world.size
        names = self._together(lambda: [path.name for path in newest_first(self._directory)])[0]
        for path in (self._directory / name for name in names):
            faults = self._together(partial(find_fault, path, rank, size))
            if not any(faults):
                return path
            if self._world.first:
                fault = next(filter(None, faults))
                self._report(f"checkpoint {path} is damaged ({fault}); trying the one before it")
        if names:
            raise FarspanError(
                f"all {len(names)} checkpoints in {self._directory} are damaged; restore one, or delete the folder to "
                "start anew"
            )
        return None

    def _check(self, states: Mapping[str, Tensors]) -> str | None:
        if self._lock:
            self._lock.require_newest()
        return next((f"{state} {name}" for state, tensors in states.items() for name in not_finite(tensors)), None)

    def _write(self, path: Path, step: int, samples: int, states: Mapping[str, Tensors]) -> None:
        temporary = path.with_name(f"{path.name}.tmp-{self._start}")
        try:
            shares = self._together(lambda: self._write_share(temporary, states))
            manifest = {
                "format": FORMAT,
                "format_version": VERSION,
                "step": step,
                "samples": samples,
                "identity": self._identity,
                "vocabulary": self._vocabulary,
                "files": {name: facts for share in shares for name, facts in share.items()},
            }
            self._together(lambda: self._publish(temporary, path, step, manifest))
        except OSError as error:
            raise FarspanError(
                f"the checkpoint of step {step} could not be written to {self._directory} ({error}); make room, then "
                "give the same command to go on from the one before it"
            ) from error

    def _write_share(self, temporary: Path, states: Mapping[str, Tensors]) -> dict[str, Any]:
        """This rank's files: name -> bytes and sha256."""
        for name, tensors in states.items():
            write_tensors(temporary / name, tensors, self._world.control)
        files = [file for name in states for file in shards_of(temporary / name, self._world.rank)]
        return {str(file.relative_to(temporary)): file_facts(file) for file in files}

    def _publish(self, temporary: Path, path: Path, step: int, manifest: Mapping[str, Any]) -> None:
        if not self._lock:
            return
        self._lock.require_newest()
        write_bytes(str(temporary / MANIFEST), json.dumps(manifest, indent=1).encode())
        for folder in (temporary / MODEL, temporary / OPTIMIZER, temporary):
            sync_folder(folder)
        if path.exists():  # only a damaged one can be in the way: a whole one would have been continued from
            _delete(path)
        os.replace(temporary, path)
        sync_folder(self._directory)
        for old in outdated(self._directory, step, self._config.keep, self._config.keep_every):
            _delete(old)

    def _together(self, work: Callable[[], Any]) -> list[Any]:
        """What ``work`` returns on each rank (JSON values), on every rank.

        Raises:
            FarspanError, OSError: it raised one on some rank; all ranks raise it.
        """
        said: dict[str, Any] = {}
        try:
            said["value"] = work()
        except FarspanError as error:
            said["refusal"] = str(error)
        except OSError as error:
            said["failure"] = str(error)
        all_said = self._world.gather(said)
        for one in all_said:
            if "refusal" in one:
                raise FarspanError(one["refusal"])
            if "failure" in one:
                raise OSError(one["failure"])
        return [one["value"] for one in all_said]


def _delete(checkpoint: Path) -> None:
    """Away with it in one step, then from the disk: a kill between leaves nothing that looks like a checkpoint."""
    aside = temporary_name(str(checkpoint))
    os.replace(checkpoint, aside)
    _remove(Path(aside))


def _remove(path: Path) -> None:
    """A folder, or a file that somebody has put in its place."""
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()
