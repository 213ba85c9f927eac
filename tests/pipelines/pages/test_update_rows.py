"""farspan view RUN --step N: the rows of the update, each with what the model saw of it."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("starlette", reason="farspan[view] is not installed")

from starlette.testclient import TestClient

from corpora.errors import FarspanError
from pipelines.pages.filters import Filter
from pipelines.pages.page import PageOptions
from pipelines.pages.update import open_update
from pipelines.view.app import build_app
from pipelines.view.opened import open_subjects
from pipelines.view.options import View
from tests.pipelines.pages.invented import make_run
from trainer.data.config import ObjectiveConfig, SourceConfig, TaskConfig

TASK = TaskConfig(options={"separator": "<doc-sep>", "source_length": 2048, "target_length": 64, "targets": "sampled"})


@pytest.fixture(scope="module")
def folder(made, tmp_path_factory) -> str:
    """A run on a stored mask set with two draws, on drawn masks, and on pairs; 40 updates are several epochs."""
    mixture = (
        SourceConfig(name="stored", corpus=made["corpus"], masks=made["spans"]),
        SourceConfig(name="drawn", corpus=made["corpus"], objective=ObjectiveConfig(name="span", preset="t5")),
        SourceConfig(name="tales", pairs=made["pairs"], task=TASK),
    )
    return make_run(str(tmp_path_factory.mktemp("runs") / "run"), mixture, made["corpus"])


def viewed(folder: str, step: int, **options):
    (subject,) = open_subjects(View(artefact=(folder,), step=step, **options))
    return subject


@pytest.mark.parametrize("step", [1, 37])
def test_each_row_is_as_the_model_saw_it(folder, step):
    subject, update = viewed(folder, step), open_update(folder, step)
    assert len(subject) == len(update.rows) == 9
    assert {seen.source for seen in update.rows} == {"stored", "drawn", "tales"}
    for number, seen in enumerate(update.rows):
        page, examples = subject.page(number, PageOptions()), update.examples(seen)
        facts = dict(page.facts[:4])
        folder_name = "pairs" if seen.source == "tales" else "corpus"
        assert (facts["source"], facts["row"]) == (seen.source, f"{seen.row} of {folder_name}")
        assert facts["process"] == f"rank {seen.rank}, micro-batch {seen.micro_batch}"
        source, target = next(column.seen for band in page.bands for column in band if column.seen)
        for block, ids, length in (
            (source, examples.source_ids, examples.source_lengths),
            (target, examples.target_ids, examples.target_lengths),
        ):
            whole = subject.block(number, block.address, 0, 10_000, PageOptions()).ids
            assert whole is not None
            np.testing.assert_array_equal(whole, ids[0, : int(length[0])])
    if step == 37:
        assert {seen.epoch for seen in update.rows} - {0}


def test_rows_of_one_process(folder):
    assert [dict(viewed(folder, 3, rank=1).page(0, PageOptions()).facts)["process"]] == ["rank 1, micro-batch 0"]
    assert len(viewed(folder, 3, rank=0)) + len(viewed(folder, 3, rank=1)) == 9


def test_pages_and_filters_over_http(folder):
    subject = viewed(folder, 5)
    client = TestClient(build_app([subject], "token"), base_url="http://127.0.0.1")
    assert subject.name == "run-step-5"
    page = client.get("/token/")
    assert page.status_code == 200
    assert "update 5, row 0 of 8" in page.text
    pairs = next(row for row in range(9) if dict(subject.page(row, PageOptions()).facts)["source"] == "tales")
    found = client.get(f"/token/run-step-5/seek?start={pairs}&step=1&source=made&format=json").json()
    assert found["address"].startswith(f"/token/run-step-5/{pairs}")
    assert not subject.matches(0, 9, Filter(id="no such document")).any()
    assert subject.batch_of(4) == (4, 5)
    assert "".join(text for _, text in subject.texts(0))


def test_saved_rows_of_an_update(folder, tmp_path, run):
    path = tmp_path / "page.html"
    status, out, errors = run("view", folder, "--step", 2, "--save", path, "--rows", "0,4")
    assert (status, errors) == (0, "")
    assert out == f"{path}: 2 rows of {folder}\n"
    assert path.read_text().count("update 2, row") == 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "is a run; name the update to show: --step N"),
        ({"step": 41}, "--step 41: the run has updates 1 to 40"),
        ({"step": 1, "rank": 2}, "--rank 2: the run had processes 0 to 1"),
        ({"step": 1, "row": 9}, "--row 9: .*run has rows 0 to 8"),
    ],
)
def test_what_the_run_never_had(folder, options, message):
    with pytest.raises(FarspanError, match=message):
        open_subjects(View(artefact=(folder,), **options))


def test_an_artefact_has_no_steps(made):
    with pytest.raises(FarspanError, match=r"is no run of `farspan train`; give one"):
        open_subjects(View(artefact=(made["corpus"],), step=1))
