"""Beam's flags for object stores (``--s3_endpoint_url``, ...), passed to the clients of ``corpora``."""

from __future__ import annotations

from collections.abc import Sequence

from corpora.storage.stores import s3
from pipelines.engine.beam.apache import FileSystems, PipelineOptions, S3Options


def use_flags(flags: Sequence[str]) -> None:
    """Set up the stores of this process by Beam's flags; for those left out, AWS's variables and profile count."""
    use_options(PipelineOptions(list(flags)))


def use_flags_of_pipeline() -> None:
    """Set up the stores of a worker, on any machine, by the flags of its pipeline."""
    if FileSystems._pipeline_options is not None:
        use_options(FileSystems._pipeline_options)


def use_options(options: PipelineOptions) -> None:
    """Set up the stores of this process by Beam's options."""
    s3.use_settings(options.view_as(S3Options).get_all_options(drop_default=True, current_only=True))
