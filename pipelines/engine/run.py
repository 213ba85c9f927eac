"""Running a job: on processes of this machine, shared with processes anywhere, or on an engine of Beam."""

from __future__ import annotations

from corpora.errors import FarspanError, from_os_error
from corpora.storage.manifest import Manifest
from corpora.storage.manifest_file import read_manifest
from pipelines.engine.claims import lock_folder
from pipelines.engine.folder import begin, finalize, require_begun
from pipelines.engine.job import REPEAT, Job
from pipelines.engine.options import EMBEDDED, Engine
from pipelines.engine.progress import ProgressBars
from pipelines.engine.tasks import RunTask


def run_job(job: Job, engine: Engine) -> Manifest:
    """Run or resume a job and return the manifest; a finished artefact is left as it is."""
    if not 0 <= job.error_budget <= 1:
        raise FarspanError(f"--error-budget {job.error_budget}: give a share from 0 to 1")
    try:
        if engine.engine == "cooperative":
            from pipelines.engine.participant import run_stages

            return run_stages(job, engine)
        with lock_folder(job.output, engine.lease):
            return _run_locked(job, engine)
    except OSError as error:
        if cured := from_os_error(error, job.output):
            raise FarspanError(f"{cured}; {REPEAT}") from error
        raise


def _run_locked(job: Job, engine: Engine) -> Manifest:
    """Run a job whose folder this process has locked."""
    if engine.needs_beam():  # a missing package, or a folder that workers do not see, is an error before work begins
        from pipelines.engine.beam.engine import require_shared

        if engine.runner != EMBEDDED:
            require_shared(engine, job.output)
    done = begin(job)
    if done is None:
        return read_manifest(job.output)
    widest = max((sum(task.name not in done for task in stage.tasks) for stage in job.stages), default=0)
    if widest:
        with ProgressBars(job.stages) as bars:
            for stage in job.stages:
                bars.restore(stage, done)
            workers = engine.worker_count(widest, job.work_bytes, job.workers)
            if engine.needs_beam():
                from pipelines.engine.beam.pipeline import run_on_beam

                run_on_beam(job, engine, done, bars)
            elif workers > 1:
                from pipelines.engine.local import run_on_workers

                run_on_workers(job, done, bars.report, workers, engine)
            else:
                for stage in job.stages:
                    run = RunTask(stage.name, stage.work, job.output, bars.report)
                    for task in stage.tasks:
                        if task.name not in done:
                            run(task)
    require_begun(job.output)
    return finalize(job.output, job.error_budget)
