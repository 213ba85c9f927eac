"""The worker of another engine: what it asks for, what it refuses, and what it passes on to Beam."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time

import grpc
import pytest
from apache_beam.portability.api import beam_fn_api_pb2, beam_fn_api_pb2_grpc, beam_runner_api_pb2
from apache_beam.runners.worker import sdk_worker_main

from corpora.errors import FarspanError
from pipelines import harness
from tests.pipelines.engine.beam.services import Provision, served


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
