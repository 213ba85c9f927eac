"""The Dockerfile against the package: versions, extras, and its installation as far as it goes without an engine."""

from __future__ import annotations

import configparser
import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "Dockerfile").read_text("utf-8")
ARGUMENTS = dict(re.findall(r"^ARG (\w+)=(.*)$", TEXT, re.MULTILINE))


@pytest.fixture(scope="module")
def setup() -> configparser.ConfigParser:
    parser = configparser.ConfigParser()
    parser.read(ROOT / "setup.cfg")
    return parser


def lines(command: str) -> list[str]:
    """The instructions of a kind, with their continued lines joined and their arguments filled in."""
    joined = TEXT.replace("\\\n", " ")
    found = re.findall(rf"^{command} (.*)$", joined, re.MULTILINE)
    return [re.sub(r"\$\{(\w+)\}", lambda name: ARGUMENTS[name[1]], line) for line in found]


def test_the_image_has_the_version_of_beam_and_a_python_that_the_package_runs_on(setup):
    assert lines("FROM") == [f"apache/beam_python{ARGUMENTS['PYTHON']}_sdk:{ARGUMENTS['BEAM']}"]
    assert SpecifierSet(setup["options"]["python_requires"]).contains(ARGUMENTS["PYTHON"])
    (beam,) = (
        Requirement(line)
        for line in setup["options.extras_require"]["pipelines"].split("\n")
        if line.startswith("apache-beam")
    )
    assert beam.specifier.contains(ARGUMENTS["BEAM"])
    assert version("apache-beam") == ARGUMENTS["BEAM"]  # what the tests run with


def test_its_extras_and_its_pytorch_are_the_packages(setup):
    assert set(ARGUMENTS["EXTRAS"].split(",")) <= set(setup["options.extras_require"])
    (torch,) = re.findall(r"'(torch [^']*)'", TEXT)
    (wanted,) = re.findall(r"^TORCH_RANGE = (.*)$", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)
    assert Requirement(torch) == Requirement(wanted)


@pytest.mark.slow
def test_what_it_installs_goes_together():
    """pip's own check of the last RUN line, in this environment, which has all of it, so that nothing is fetched."""
    (installs,) = lines("RUN")
    words = re.findall(r'"(apache-beam==[^"]*)" "/src/farspan(\[[^"]*\])"', installs)
    ((beam, extras),) = words
    command = [sys.executable, "-m", "pip", "install", "--dry-run", "--no-index", "--no-build-isolation", beam]
    done = subprocess.run([*command, f"{ROOT}{extras}"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert [line for line in done.stdout.splitlines() if line.startswith("Would install")] in (
        [],
        [f"Would install farspan-{version('farspan')}"],
    )
