"""A worker for Beam's engines: the boot program of Beam's containers, in Python.

For ``--environment_type=PROCESS``, whose command Flink starts itself, and for pools of workers (``EXTERNAL``)::

    farspan-worker --id=... --provision_endpoint=...     a worker; the engine gives the arguments
    farspan-worker --worker_pool                         a pool, which starts a worker when an engine asks for one

The worker gets the pipeline's options from the engine, and ends with the process that started it. Nothing is installed:
its environment must hold farspan.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading
import time
from collections.abc import Sequence
from typing import Any

from corpora.errors import FarspanError
from pipelines.environment import require_own_environment

_PROGRAM = os.path.join(os.path.dirname(sys.executable), "farspan-worker")
_SECONDS = 60  # timeout for an answer of the engine
_HARMLESS = "submission_environment_dependencies.txt"  # a list for people that Beam stages with every job


def main(arguments: Sequence[str] | None = None) -> None:
    """``farspan-worker`` and ``python -m pipelines.harness``."""
    os.environ["PYTHONSAFEPATH"] = "1"  # child processes do not import from the current folder
    require_own_environment()
    options = _parser().parse_known_args(arguments)[0]
    if options.worker_pool:
        serve(options.service_port)
    elif not (options.id and options.provision_endpoint):
        raise SystemExit("farspan-worker: give --worker_pool; --id and --provision_endpoint are given by an engine")
    else:
        os.dup2(2, 1)  # Beam's pool never reads a worker's output, so a full pipe would block the worker
        threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
        work(options)


def work(options: argparse.Namespace) -> None:
    """Work for an engine until it closes the connection or ends this process."""
    info = provision(options.provision_endpoint, options.id)
    refuse_packages(info)
    os.environ |= environment(options, info)
    from apache_beam.runners.worker import sdk_worker_main

    sdk_worker_main.main(sys.argv[:1])


def serve(port: int) -> None:
    """Serve Beam's pool on ``localhost`` until SIGINT or SIGTERM: anyone who reaches a pool can run code in it."""
    from pipelines.engine.beam.apache import serve_on_loopback

    serve_on_loopback()
    from apache_beam.runners.worker.worker_pool_main import BeamFnExternalWorkerPoolServicer

    address, server = BeamFnExternalWorkerPoolServicer.start(True, port, container_executable=_PROGRAM)
    print(f"farspan-worker: workers for --environment_type=EXTERNAL --environment_config={address}", flush=True)
    ended = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: ended.set())
    ended.wait()
    server.stop(0)


def provision(endpoint: str, worker: str) -> Any:
    """Ask the engine for ``ProvisionInfo``: the pipeline's options and the addresses of its services."""
    import grpc

    from pipelines.engine.beam.apache import beam  # noqa: F401 (quietly, before other parts of it)

    from apache_beam.portability.api import beam_provision_api_pb2, beam_provision_api_pb2_grpc  # isort: skip

    with grpc.insecure_channel(endpoint) as channel:
        service = beam_provision_api_pb2_grpc.ProvisionServiceStub(channel)
        request = beam_provision_api_pb2.GetProvisionInfoRequest()
        metadata = (("worker_id", worker),)
        return service.GetProvisionInfo(request, metadata=metadata, timeout=_SECONDS, wait_for_ready=True).info


def environment(options: argparse.Namespace, info: Any) -> dict[str, str]:
    """Environment variables that Beam's worker reads; the engine's answer goes before the arguments."""
    from apache_beam.portability.api import endpoints_pb2
    from google.protobuf import json_format, text_format

    def descriptor(endpoint: Any, argument: str) -> str:
        return text_format.MessageToString(endpoints_pb2.ApiServiceDescriptor(url=endpoint.url or argument))

    variables = {
        "WORKER_ID": options.id,
        "PIPELINE_OPTIONS": json_format.MessageToJson(info.pipeline_options),
        "CONTROL_API_SERVICE_DESCRIPTOR": descriptor(info.control_endpoint, options.control_endpoint),
        "LOGGING_API_SERVICE_DESCRIPTOR": descriptor(info.logging_endpoint, options.logging_endpoint),
        "RUNNER_CAPABILITIES": " ".join(info.runner_capabilities),
    }
    if info.status_endpoint.url:
        variables["STATUS_API_SERVICE_DESCRIPTOR"] = descriptor(info.status_endpoint, "")
    return variables


def refuse_packages(info: Any) -> None:
    """Refuse a pipeline whose packages should be installed here."""
    from apache_beam.portability.api import beam_runner_api_pb2

    read = beam_runner_api_pb2.ArtifactStagingToRolePayload.FromString
    names = {read(one.role_payload).staged_name or one.role_urn for one in info.dependencies}
    if brought := sorted(names - {_HARMLESS}):
        raise FarspanError(
            f"farspan-worker installs nothing, and the pipeline brings {', '.join(brought)}; leave out "
            "--requirements_file, --extra_package and --setup_file, and install what is needed on the workers"
        )


def _end_with(parent: int) -> None:
    """Exit when the process that started this one has ended; the engine gives the work to another worker."""
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(1)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="farspan-worker", description=__doc__.partition("\n")[0], allow_abbrev=False)
    parser.add_argument("--worker_pool", action="store_true", help="serve as a pool of workers")
    parser.add_argument("--service_port", type=int, default=50000, help="port of the pool (default: 50000)")
    for name in ("id", "logging_endpoint", "artifact_endpoint", "provision_endpoint", "control_endpoint"):
        parser.add_argument(f"--{name}", default="", help=argparse.SUPPRESS)
    return parser


if __name__ == "__main__":
    main()
