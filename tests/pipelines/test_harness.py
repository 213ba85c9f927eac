"""The worker of another engine: what it asks for, what it refuses, and what it passes on to Beam."""

from __future__ import annotations

import json
import os

import pytest
from apache_beam.portability.api import beam_runner_api_pb2
from apache_beam.runners.worker import sdk_worker_main

from corpora.errors import FarspanError
from corpora.storage import files
from corpora.storage.stores import s3
from pipelines import harness
from pipelines.engine.beam.remote.about import OPTION, Driver
from pipelines.engine.beam.remote.signs import read_signs
from tests.pipelines.engine.beam.remote.services import Provision, served


def typed(endpoint: str, *more: str):
    arguments = ["--id=1-1", f"--provision_endpoint={endpoint}", "--control_endpoint=c:1", "--logging_endpoint=l:1"]
    return harness._parser().parse_args([*arguments, *more])


@pytest.fixture
def ran(monkeypatch):
    """The environment that Beam's worker would run with."""
    monkeypatch.setattr(os, "environ", os.environ.copy())
    monkeypatch.setattr(sdk_worker_main, "main", lambda arguments: seen.update(os.environ))
    seen: dict[str, str] = {}
    yield seen
    s3.use_settings({})


def option(driver: Driver) -> str:
    return driver.flag().partition("=")[2]


def test_a_worker_runs_with_the_options_of_its_pipeline(ran, tmp_path):
    service = Provision({OPTION: option(Driver(str(tmp_path))), "s3_endpoint_url": "http://store", "s3_verify": "x"})
    read, write = os.pipe()
    with served(service) as endpoint:
        harness.work(typed(endpoint, f"--ready_descriptor={write}"))
    assert os.read(read, 9) == b""  # closed: it runs
    os.close(read)
    assert service.workers == ["1-1"]
    assert ran["WORKER_ID"] == "1-1"
    assert json.loads(ran["PIPELINE_OPTIONS"])["beam:option:s3_endpoint_url:v1"] == "http://store"
    assert ran["CONTROL_API_SERVICE_DESCRIPTOR"] == 'url: "engine:1"\n'  # the engine's answer goes first
    assert ran["LOGGING_API_SERVICE_DESCRIPTOR"] == 'url: "l:1"\n'
    assert ran["RUNNER_CAPABILITIES"] == "beam:protocol:x:v1"
    assert "STATUS_API_SERVICE_DESCRIPTOR" not in ran
    assert files.walk(str(tmp_path)) == []


def test_other_versions_are_told_to_the_driver(ran, tmp_path):
    service = Provision({OPTION: option(Driver(str(tmp_path), "9"))})
    with served(service) as endpoint, pytest.raises(FarspanError, match="and the driver farspan 9"):
        harness.work(typed(endpoint))
    assert ran == {}
    (sign,) = read_signs(files.walk(str(tmp_path))).values()
    assert "install the same on both" in sign.failed


def test_packages_are_not_installed(ran, tmp_path):
    def staged(name: str):
        payload = beam_runner_api_pb2.ArtifactStagingToRolePayload(staged_name=name)
        return beam_runner_api_pb2.ArtifactInformation(role_payload=payload.SerializeToString())

    options = {OPTION: option(Driver(str(tmp_path)))}
    listed = staged("submission_environment_dependencies.txt")
    with served(Provision(options, [listed])) as endpoint:
        harness.work(typed(endpoint))
    service, message = (
        Provision(options, [listed, staged("requirements.txt")]),
        r"installs nothing, and the pipeline brings requirements\.txt; leave out",
    )
    with served(service) as endpoint, pytest.raises(FarspanError, match=message):
        harness.work(typed(endpoint))
    (sign,) = read_signs(files.walk(str(tmp_path))).values()
    assert "requirements.txt" in sign.failed


def test_without_an_engine_it_says_what_it_is_for(monkeypatch):
    monkeypatch.setenv("PYTHONSAFEPATH", "1")  # as the program sets it; it would stay for the tests after this one
    with pytest.raises(SystemExit, match="give --worker_pool; --id and --provision_endpoint are given by an engine"):
        harness.main([])
