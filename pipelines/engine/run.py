"""Running a job: with Beam, in this process, or shared with other processes."""

from __future__ import annotations

from corpora.errors import FarspanError, from_os_error
from corpora.storage.manifest import Manifest
from pipelines.engine.job import REPEAT, Job
from pipelines.engine.options import Engine
from pipelines.engine.presence.lock import locked


def run_job(job: Job, engine: Engine) -> Manifest:
    """Run or resume a job and return the manifest; a finished artefact is left as it is.

    Raises:
        FarspanError: the folder holds something else, another process works on it, a task failed, or the error budget
            is spent.
    """
    if not 0 <= job.error_budget <= 1:
        raise FarspanError(f"--error-budget {job.error_budget}: give a share from 0 to 1")
    try:
        if engine.engine == "cooperative":
            from pipelines.engine.cooperative import run as cooperative

            return cooperative.run_stages(job, engine)
        with locked(job.output, engine.lease):
            from pipelines.engine.beam.pipeline import run_stages

            return run_stages(job, engine)
    except OSError as error:
        if cured := from_os_error(error, job.output):
            raise FarspanError(f"{cured}; {REPEAT}") from error
        raise
