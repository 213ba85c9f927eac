"""Beam's own servers, open to this machine alone.

The embedded runner and Beam's job service open their ports on all interfaces, without a secret: whoever reaches one may
send a worker its work, as pickled code. Their clients are told ``localhost`` all the same, and so is the bind.
"""

from __future__ import annotations

from typing import Any

import grpc


class LoopbackGrpc:
    """The module ``grpc``, but for servers, whose insecure ports are opened on ``localhost`` whatever is asked for."""

    def __getattr__(self, name: str) -> Any:
        return getattr(grpc, name)

    @staticmethod
    def server(*arguments: Any, **options: Any) -> grpc.Server:
        server = grpc.server(*arguments, **options)
        add = server.add_insecure_port
        server.add_insecure_port = lambda address: add(f"localhost:{address.rpartition(':')[2]}")
        return server


def serve_on_loopback() -> None:
    """Put ``LoopbackGrpc`` into the modules of Beam that open servers; their addresses are no option of theirs."""
    from apache_beam.runners.portability import abstract_job_service, local_job_service
    from apache_beam.runners.portability.fn_api_runner import worker_handlers
    from apache_beam.runners.worker import worker_pool_main

    for module in (worker_handlers, local_job_service, abstract_job_service, worker_pool_main):
        module.grpc = LoopbackGrpc()  # type: ignore[attr-defined]
