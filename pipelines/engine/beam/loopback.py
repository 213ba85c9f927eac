"""Restriction of Beam's own servers to connections from this machine.

The embedded runner and Beam's job service open their ports on all interfaces, without authentication, so anyone who
reaches one can send a worker pickled code. Their clients connect to ``localhost`` anyway; here, servers bind to it too.
"""

from __future__ import annotations

from typing import Any

import grpc


class LoopbackGrpc:
    """The module ``grpc``, except that servers open insecure ports on ``localhost`` only."""

    def __getattr__(self, name: str) -> Any:
        return getattr(grpc, name)

    @staticmethod
    def server(*arguments: Any, **options: Any) -> grpc.Server:
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
