"""Apache Beam for all of ``pipelines``: imported without its warnings, and kept from what a job does not want of it."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

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


with from_extra("pipelines", "running a job on Beam"), _quiet():
    import apache_beam as beam
    from apache_beam.options.pipeline_options import PipelineOptions

__all__ = ["PipelineOptions", "beam"]


class LoopbackGrpc:
    """The module ``grpc``, except that servers open insecure ports on ``localhost`` only.

    Beam's embedded runner, job service and worker pool open their ports on all interfaces, without authentication, so
    anyone who reaches one can send a worker pickled code. Their clients connect to ``localhost`` anyway.
    """

    def __getattr__(self, name: str) -> Any:
        import grpc

        return getattr(grpc, name)

    @staticmethod
    def server(*arguments: Any, **options: Any) -> Any:
        import grpc

        server = grpc.server(*arguments, **options)
        add = server.add_insecure_port
        server.add_insecure_port = lambda address: add(f"localhost:{address.rpartition(':')[2]}")
        return server


def serve_on_loopback() -> None:
    """Put ``LoopbackGrpc`` into the modules of Beam that open servers; they have no option for their address."""
    from apache_beam.runners.portability import abstract_job_service, local_job_service
    from apache_beam.runners.portability.fn_api_runner import worker_handlers
    from apache_beam.runners.worker import worker_pool_main

    for module in (worker_handlers, local_job_service, abstract_job_service, worker_pool_main):
        module.grpc = LoopbackGrpc()  # type: ignore[attr-defined]


@contextmanager
def without_interactive_labels() -> Iterator[None]:
    """Build and run pipelines as in a script, also where the process is IPython or a notebook's kernel.

    In IPython, Beam prefixes the cell's number to the labels of transforms. For that it imports its interactive runner,
    and with it its DataFrame API, which needs pandas and fails to import beside pandas 3.
    """
    from apache_beam import pipeline

    changed = {"is_in_ipython": lambda: False, "alter_label_if_ipython": lambda transform, input: None}
    before = {name: getattr(pipeline, name) for name in changed}
    vars(pipeline).update(changed)
    try:
        yield
    finally:
        vars(pipeline).update(before)
