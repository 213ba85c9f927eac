"""Import of Apache Beam for all of ``pipelines``, without its warnings and with a clear message if it is missing."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from corpora.errors import from_extra


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep Beam's import from warning about Google's libraries and from adding a handler to the root logger."""
    handler, before = logging.NullHandler(), logging.root.manager.disable
    logging.root.addHandler(handler)
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(before)
        logging.root.removeHandler(handler)


with from_extra("pipelines", "running a job"), _quiet():
    import apache_beam as beam
    from apache_beam.io.filesystems import FileSystems
    from apache_beam.options.pipeline_options import PipelineOptions, S3Options

__all__ = ["FileSystems", "PipelineOptions", "S3Options", "beam"]
