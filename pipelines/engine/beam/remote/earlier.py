"""Jobs that an earlier run of the same command left on an engine: attaching to them, or making sure of their end."""

from __future__ import annotations

import time

from corpora.errors import FarspanError
from corpora.reporting import note
from corpora.storage import files
from pipelines.engine.beam.remote.jobs import cancel, is_running
from pipelines.engine.beam.remote.signs import BEAT_SECONDS, Sign, read_signs
from pipelines.engine.beam.remote.submission import Submission, forget, read_submission
from pipelines.engine.beam.remote.watch import Silence, Watch, silence_limits
from pipelines.engine.beginning import check_same
from pipelines.engine.job import Job
from pipelines.engine.options import Engine
from pipelines.engine.paths import WORK
from pipelines.engine.progress import ProgressBars

_POLL_SECONDS = 2.0


def settle(job: Job, engine: Engine) -> None:
    """Make sure that no engine works in a job's folder; wait for the end of a job that does.

    Temporary files can be deleted afterwards.

    Args:
        engine: of this start; its ``worker_timeout`` counts for a job that is attached to.

    Raises:
        FarspanError: the job there has another configuration, or its engine cannot be asked and workers still work.
    """
    submission = read_submission(job.output)
    if submission is None:
        return
    check_same(job)
    running = is_running(submission)
    if running:
        _attach(job, submission, engine.worker_timeout)
    elif running is None:
        _require_silence(job.output, submission)
    forget(job.output)


def _attach(job: Job, submission: Submission, worker_timeout: int) -> None:
    """Follow a job to its end; what it leaves undone is submitted again.

    Args:
        worker_timeout: seconds that workers may be silent; 0 for the engine's own limits.
    """
    note(f"attached to {submission}, which an earlier start left running; Ctrl-C cancels it")
    totals = {stage.name: (sum(task.units for task in stage.tasks), stage.unit) for stage in job.stages}
    try:
        with ProgressBars(totals) as bars:
            silence = Silence(*silence_limits(submission.runner, worker_timeout))
            watch = Watch(job, submission.attempt, silence, bars)
            while is_running(submission):
                watch.look()
                if watch.silence.too_long:
                    note(f"its workers have been silent for {watch.silence.seconds:.0f} s")
                    cancel(job.output, submission)
                    return
                time.sleep(_POLL_SECONDS)
    except BaseException:
        cancel(job.output, submission)
        raise


def _require_silence(output: str, submission: Submission) -> None:
    """Refuse to start while workers of a job whose engine cannot be asked are alive.

    Raises:
        FarspanError: naming one of them.
    """
    before = _at_work(output, submission)
    if not before:
        return
    note(f"{submission} cannot be asked for its state; seeing whether its workers live")
    for _ in range(4):  # several looks, because one beat may be late
        time.sleep(BEAT_SECONDS)
        for path, sign in _at_work(output, submission).items():
            if path not in before or before[path].beat != sign.beat:
                raise FarspanError(
                    f"{output}: {submission}, from {submission.driver}, still works here: {sign.worker} has task "
                    f"{next(iter(sign.tasks))} in hand. Cancel the job on its engine or wait for its end, then give "
                    "the same command again"
                )


def _at_work(output: str, submission: Submission) -> dict[str, Sign]:
    signs = read_signs(files.walk(f"{output}/{WORK}"))
    return {path: sign for path, sign in signs.items() if sign.tasks and sign.attempt == submission.attempt}
