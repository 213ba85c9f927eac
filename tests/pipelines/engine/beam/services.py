"""The service of an engine that gives a worker its options."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import grpc
from google.protobuf import json_format, struct_pb2

import pipelines.engine.beam.apache  # noqa: F401 (quietly, before other parts of Beam)

from apache_beam.portability.api import (  # isort: skip
    beam_provision_api_pb2,
    beam_provision_api_pb2_grpc,
    endpoints_pb2,
)


class Provision(beam_provision_api_pb2_grpc.ProvisionServiceServicer):
    """Answers every worker with the same options."""

    def __init__(self, options: Mapping[str, Any], dependencies=()) -> None:
        struct = json_format.ParseDict({f"beam:option:{k}:v1": v for k, v in options.items()}, struct_pb2.Struct())
        self.info = beam_provision_api_pb2.ProvisionInfo(
            pipeline_options=struct,
            control_endpoint=endpoints_pb2.ApiServiceDescriptor(url="engine:1"),
            runner_capabilities=["beam:protocol:x:v1"],
            dependencies=dependencies,
        )
        self.workers: list[str] = []

    def GetProvisionInfo(self, request, context):
        self.workers += [value for key, value in context.invocation_metadata() if key == "worker_id"]
        return beam_provision_api_pb2.GetProvisionInfoResponse(info=self.info)


@contextmanager
def served(service: Provision) -> Iterator[str]:
    """``host:port`` of a service."""
    server = grpc.server(ThreadPoolExecutor(4))
    beam_provision_api_pb2_grpc.add_ProvisionServiceServicer_to_server(service, server)
    port = server.add_insecure_port("localhost:0")
    server.start()
    try:
        yield f"localhost:{port}"
    finally:
        server.stop(0)
