"""Flags that are handed on to Beam: its own and its job servers' pass, misspelt ones are named."""

from __future__ import annotations

import subprocess
import sys

import pytest

from corpora.errors import FarspanError
from pipelines.engine.beam.flags import check_flags


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--direct_num_worker=2"], "did you mean '--direct_num_workers'"),
        (["--sequence-lenght", "5"], "did you mean '--sequence-length'"),
        (["--qqqqqq"], "--qqqqqq is a flag of neither farspan nor Beam; see --help"),
        (["stray.jsonl"], "unexpected argument 'stray.jsonl'; quote globs"),
    ],
)
def test_unknown_flags_are_refused(flags, message):
    with pytest.raises(FarspanError, match=message):
        check_flags(flags, ["--sequence-length"])


def test_beams_own_flags_pass():
    check_flags(["--direct_num_workers=2", "--job_name", "x"])


SERVED = [
    "--number_of_execution_retries=3",
    "--execution_retry_delay=1000",
    "--max_bundle_size",
    "100",
    "--execution_mode_for_batch=BATCH_FORCED",
    "--attached_mode",
    "--faster_copy",
    "--bundle_size=5",
]


def test_flags_of_job_servers_pass_with_a_runner_that_has_one():
    check_flags(SERVED, runner="FlinkRunner")
    with pytest.raises(FarspanError, match="--attached_mode is a flag of Beam's job servers; the runner embedded has"):
        check_flags(["--attached_mode"])
    with pytest.raises(FarspanError, match="did you mean '--max_bundle_size'"):
        check_flags(["--max_bundle_sizes=5"], runner="FlinkRunner")


def test_flags_that_a_runner_declares_in_its_own_module_pass():
    runner = "apache_beam.runners.dask.dask_runner.DaskRunner"
    code = (
        "from pipelines.engine.beam.flags import check_flags;"
        f"check_flags(['--dask_client_address=tcp://host:8786', '--dask_npartitions=4'], runner={runner!r})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr  # in a process of its own: an earlier import would declare them


def test_a_command_with_a_runner_takes_the_flags_of_its_job_server(run, tmp_path):
    command = [
        "corpus",
        "random",
        "--documents",
        tmp_path / "none",
        "--output",
        tmp_path / "corpus",
        "--sequence-length",
    ]
    status, _, err = run(*command, "256", "--runner=FlinkRunner", *SERVED)
    assert status == 1
    assert "none" in err  # the documents, not a flag
    status, _, err = run(*command, "256", *SERVED)
    assert "--number_of_execution_retries is a flag of Beam's job servers" in err
