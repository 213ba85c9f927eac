"""The worker of another engine, the service that it asks, and SIGTERM to a process that shares a job."""

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
import json
import os
import signal
import subprocess
import sys
import time

import pytest
from apache_beam.portability.api import beam_fn_api_pb2, beam_fn_api_pb2_grpc, beam_runner_api_pb2
from apache_beam.runners.worker import sdk_worker_main

from corpora.errors import FarspanError
from pipelines import harness
from pipelines.interrupts import Interrupts, Terminated


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


def typed(endpoint: str):
    arguments = ["--id=1-1", f"--provision_endpoint={endpoint}", "--control_endpoint=c:1", "--logging_endpoint=l:1"]
    return harness._parser().parse_args(arguments)


@pytest.fixture
def ran(monkeypatch):
    """The environment that Beam's worker would run with."""
    monkeypatch.setattr(os, "environ", os.environ.copy())
    monkeypatch.setattr(sdk_worker_main, "main", lambda arguments: seen.update(os.environ))
    seen: dict[str, str] = {}
    return seen


def test_a_worker_runs_with_the_options_of_its_pipeline(ran):
    service = Provision({"s3_endpoint_url": "http://store", "s3_verify": "x"})
    with served(service) as endpoint:
        harness.work(typed(endpoint))
    assert service.workers == ["1-1"]
    assert ran["WORKER_ID"] == "1-1"
    assert json.loads(ran["PIPELINE_OPTIONS"])["beam:option:s3_endpoint_url:v1"] == "http://store"
    assert ran["CONTROL_API_SERVICE_DESCRIPTOR"] == 'url: "engine:1"\n'  # the engine's answer goes first
    assert ran["LOGGING_API_SERVICE_DESCRIPTOR"] == 'url: "l:1"\n'
    assert ran["RUNNER_CAPABILITIES"] == "beam:protocol:x:v1"
    assert "STATUS_API_SERVICE_DESCRIPTOR" not in ran


def test_packages_are_not_installed(ran):
    def staged(name: str):
        payload = beam_runner_api_pb2.ArtifactStagingToRolePayload(staged_name=name)
        return beam_runner_api_pb2.ArtifactInformation(role_payload=payload.SerializeToString())

    listed = staged("submission_environment_dependencies.txt")
    with served(Provision({}, [listed])) as endpoint:
        harness.work(typed(endpoint))
    message = r"installs nothing, and the pipeline brings requirements\.txt; leave out"
    refused = Provision({}, [listed, staged("requirements.txt")])
    with served(refused) as endpoint, pytest.raises(FarspanError, match=message):
        harness.work(typed(endpoint))


def test_a_pool_starts_farspans_worker_and_listens_on_this_machine_alone(tmp_path):
    """The worker asks the engine for its options, here in vain, as the packages are refused."""
    payload = beam_runner_api_pb2.ArtifactStagingToRolePayload(staged_name="requirements.txt")
    packages = [beam_runner_api_pb2.ArtifactInformation(role_payload=payload.SerializeToString())]
    command = [sys.executable, "-P", "-m", "pipelines.harness", "--worker_pool", "--service_port=0"]
    with (
        (tmp_path / "errors").open("wb") as errors,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True) as pool,
        served(service := Provision({}, packages)) as endpoint,
    ):
        try:
            address = pool.stdout.readline().strip().rpartition("=")[2]
            request = beam_fn_api_pb2.StartWorkerRequest(worker_id="1-7")
            request.provision_endpoint.url = endpoint
            with grpc.insecure_channel(address) as channel:
                beam_fn_api_pb2_grpc.BeamFnExternalWorkerPoolStub(channel).StartWorker(request, wait_for_ready=True)
            end = time.monotonic() + 60
            while "brings requirements.txt" not in (tmp_path / "errors").read_text():
                assert time.monotonic() < end
                time.sleep(0.1)
        finally:
            pool.terminate()
    assert address.startswith("localhost:")
    assert service.workers == ["1-7"]


def test_without_an_engine_it_says_what_it_is_for(monkeypatch):
    monkeypatch.setenv("PYTHONSAFEPATH", "1")  # as the program sets it; it would stay for the tests after this one
    with pytest.raises(SystemExit, match="give --worker_pool; --id and --provision_endpoint are given by an engine"):
        harness.main([])


def terminate() -> None:
    os.kill(os.getpid(), signal.SIGTERM)


def wait() -> None:
    """Python code in which signals arrive."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        time.sleep(0.001)


def test_between_tasks_it_ends_at_once():
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(Terminated), Interrupts(60):
        terminate()
        wait()
    assert signal.getsignal(signal.SIGTERM) is before


def test_at_work_it_ends_after_the_task(capsys):
    done = []
    with Interrupts(60) as interrupts, pytest.raises(Terminated), interrupts.working():
        terminate()
        done.append(True)
    assert done
    assert "SIGTERM: ends after this task, at most 60 s from now" in capsys.readouterr().err


@pytest.mark.parametrize(("grace", "signals"), [(0.01, 1), (60, 2)])
def test_after_the_time_of_grace_or_a_second_signal_it_does_not_wait(grace, signals):
    with Interrupts(grace) as interrupts, pytest.raises(Terminated), interrupts.working():
        for _ in range(signals):
            terminate()
        wait()
        pytest.fail("the task went on")
