"""Writing and restoring checkpoints.

All ranks write into one folder with a temporary name, each its own shards. When every file is on the disk and its
sha256 known, rank 0 writes the manifest and renames the folder, so a checkpoint is complete or absent. A run that is
killed at any moment resumes from the last renamed folder, with any number of ranks and any parallel mode; every file is
compared with its sha256 first.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any

import torch.distributed as dist
from torch import nn
from torch.optim import Optimizer

from corpora.errors import FarspanError
from corpora.storage.files import sweep
from trainer.checkpoint.files import (
    FORMAT,
    MANIFEST,
    MODEL,
    OPTIMIZER,
    VERSION,
    delete,
    file_facts,
    find_fault,
    list_outdated,
    newest_first,
    read_manifest,
    remove,
    require_same_run,
    step_of,
    sync_folder,
)
from trainer.checkpoint.run_files import RunLock, read_record, write_sealed
from trainer.checkpoint.selection import CheckpointConfig, Selection, best_steps, write_best
from trainer.checkpoint.state import (
    Tensors,
    check_fit,
    copy_to_cpu,
    model_tensors,
    not_finite,
    optimizer_tensors,
    read_tensors,
    restore_optimizer,
    shards_of,
    sort_metadata,
    tensors_to_write,
    write_tensors,
)
from trainer.optim.optimizer import advise_calmer_settings
from trainer.parallel.distributed import PATIENCE, World, run_together


class Checkpoints:
    """The checkpoints of one run. Every rank has an instance and calls the same methods in the same order.

    ``restore`` comes first and locks the run's directory; ``finish`` comes last and unlocks it. As a context manager,
    an instance unlocks it after an error too.

    Attributes:
        selection: the evaluations so far; ``restore`` reads it from the checkpoint, ``save`` writes it into one.
    """

    def __init__(
        self,
        directory: Path,
        config: CheckpointConfig,
        world: World,
        identity: Mapping[str, Any],
        vocabulary: Mapping[str, Any],
        report: Callable[[str], None] = print,
    ) -> None:
        self._directory, self._config, self._report = directory, config, report
        self._identity, self._vocabulary = identity, vocabulary
        # Its own group, because a checkpoint is written while training uses the others.
        group = None if world.control is None else dist.new_group(backend="gloo", timeout=PATIENCE)
        self._world = replace(world, control=group)
        self._lock: RunLock | None = None
        self._start = 0
        self.selection = Selection(config.best)
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
        """Lock the directory and load the newest undamaged checkpoint, if any, into model and optimizer.

        Returns its number of finished updates; None if there is none.
        """
        run_together(self._world, self._acquire)
        path = self._newest_undamaged()
        if path is not None:
            require_same_run(path, self._identity)
        self._start = run_together(self._world, self._begin)[0]
        starts = run_together(self._world, self._read_start)
        if apart := [rank for rank, start in enumerate(starts) if start != self._start]:
            raise FarspanError(
                f"ranks {apart} do not see what rank 0 writes to {self._directory}; run.directory must lie on a file "
                "system that all machines share"
            )
        if path is None:
            return None
        check_fit(path / MODEL, model_tensors(model))
        # The optimizer first: PyTorch creates its state by a step, although of length zero.
        restore_optimizer(model, optimizer, path / OPTIMIZER, self._world.control)
        read_tensors(path / MODEL, model_tensors(model), self._world.control)
        manifest = read_manifest(path)
        self.selection = Selection.of_manifest(manifest, self._config.best)
        if self._world.first:
            write_best(self._directory, self.selection)
        return manifest["step"]

    def due(self, step: int) -> bool:
        """Tell whether ``checkpoint.every`` asks for a checkpoint of ``step``."""
        return step % self._config.every == 0

    def save(self, step: int, samples: int, model: nn.Module, optimizer: Optimizer) -> Path:
        """Write the checkpoint of ``step``, then delete those that the configuration does not keep.

        Waits for a checkpoint that is still being written. If asynchronous, the state is copied, and written while
        training continues; the next ``save`` or ``finish`` raises the error of a failed write.
        """
        self._wait()
        states = {MODEL: model_tensors(model), OPTIMIZER: optimizer_tensors(model, optimizer)}
        bad = run_together(self._world, lambda: self._check(states))
        if any(bad):
            newest = next((path.name for path in newest_first(self._directory)), "none")
            cure = advise_calmer_settings(self._identity.get("run", {}).get("precision"))
            raise FarspanError(
                f"after step {step}, {next(filter(None, bad))} holds values that are not finite; no checkpoint is "
                f"written, the newest is {newest}; {cure}"
            )
        states = {
            name: tensors_to_write(tensors, self._world.rank, self._world.size) for name, tensors in states.items()
        }
        path = self._directory / f"step-{step:08d}"
        if self._config.asynchronous:
            states = {name: copy_to_cpu(tensors) for name, tensors in states.items()}
            self._writing = self._writer.submit(self._write, path, step, samples, states, self.selection)
        else:
            self._write(path, step, samples, states, self.selection)
        return path

    def save_selection(self, step: int) -> None:
        """Write the selection into the checkpoint of ``step``, which is complete or being written."""
        self._wait()
        run_together(self._world, lambda: self._amend(self._directory / f"step-{step:08d}"))

    def finish(self) -> None:
        """Wait until the last checkpoint is written, and unlock the directory."""
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

    def _acquire(self) -> None:
        if self._world.first:
            self._lock = RunLock(self._directory)

    def _begin(self) -> int:
        if not self._lock:
            return 0
        sweep(str(self._directory))
        for abandoned in self._directory.glob("*.tmp-*"):  # left by a killed process
            remove(abandoned)
        return self._lock.begin()

    def _read_start(self) -> int:
        return read_record(self._directory).get("start", 0)

    def _newest_undamaged(self) -> Path | None:
        rank, size = self._world.rank, self._world.size
        names = run_together(self._world, lambda: [path.name for path in newest_first(self._directory)])[0]
        for path in (self._directory / name for name in names):
            faults = run_together(self._world, partial(find_fault, path, rank, size))
            if not any(faults):
                return path
            if self._world.first:
                fault = next(filter(None, faults))
                self._report(f"checkpoint {path} is damaged ({fault}); trying the one before it")
        if names:
            raise FarspanError(
                f"all {len(names)} checkpoints in {self._directory} are damaged; restore one, or delete the folder to "
                "start again"
            )
        return None

    def _check(self, states: Mapping[str, Tensors]) -> str | None:
        if self._lock:
            self._lock.require_newest()
        return next((f"{state} {name}" for state, tensors in states.items() for name in not_finite(tensors)), None)

    def _write(self, path: Path, step: int, samples: int, states: Mapping[str, Tensors], selection: Selection) -> None:
        temporary = path.with_name(f"{path.name}.tmp-{self._start}")
        try:
            shares = run_together(self._world, lambda: self._write_share(temporary, states))
            manifest = {
                "format": FORMAT,
                "format_version": VERSION,
                "step": step,
                "samples": samples,
                "identity": self._identity,
                "vocabulary": self._vocabulary,
                "selection": asdict(selection),
                "files": {name: facts for share in shares for name, facts in share.items()},
            }
            run_together(self._world, lambda: self._publish(temporary, path, step, manifest, selection))
        except OSError as error:
            raise FarspanError(
                f"the checkpoint of step {step} could not be written to {self._directory} ({error}); make room, then "
                "repeat the command to continue from the one before it"
            ) from error

    def _amend(self, path: Path) -> None:
        if not self._lock:
            return
        self._lock.require_newest()
        manifest = {**read_manifest(path), "selection": asdict(self.selection)}
        write_sealed(path / MANIFEST, manifest)
        write_best(self._directory, self.selection)

    def _write_share(self, temporary: Path, states: Mapping[str, Tensors]) -> dict[str, Any]:
        """Write this rank's files; return name -> bytes and sha256."""
        for name, tensors in states.items():
            write_tensors(temporary / name, tensors, self._world.control)
        files = [file for name in states for file in shards_of(temporary / name, self._world.rank)]
        for file in files:
            sort_metadata(file)
        return {str(file.relative_to(temporary)): file_facts(file) for file in files}

    def _publish(
        self, temporary: Path, path: Path, step: int, manifest: Mapping[str, Any], selection: Selection
    ) -> None:
        if not self._lock:
            return
        self._lock.require_newest()
        write_sealed(temporary / MANIFEST, manifest)
        for folder in (temporary / MODEL, temporary / OPTIMIZER, temporary):
            sync_folder(folder)
        if path.exists():  # damaged, or the run would have resumed from it
            delete(path)
        os.replace(temporary, path)
        sync_folder(self._directory)
        write_best(self._directory, selection)
        old = list_outdated(self._directory, step, self._config.keep, self._config.keep_every)
        best = best_steps([path for path in newest_first(self._directory) if path not in old])
        for outlived in old:
            if step_of(outlived) not in best:
                delete(outlived)
