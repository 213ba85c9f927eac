"""`farspan pairs --probe`: sound artefacts of the same bytes with any number of workers, and errors before work."""

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from corpora.errors import FarspanError
from corpora.readers import ReadOptions
from corpora.readers.options import PairFields
from corpora.schemas.pairs import open_pairs
from corpora.storage.manifest_file import read_manifest
from corpora.verify.artefact import verify
from objectives.tasks.text_to_text import TextToText
from pipelines.engine.options import Engine
from pipelines.engine.run import run_job
from pipelines.evaluation.evaluate import command as evaluate
from pipelines.evaluation.options import Evaluate, Evaluation
from pipelines.generate import generate
from pipelines.options import Generating
from pipelines.pairs.options import Pairs, Probing, RawPairs
from pipelines.pairs.probes import jobs
from tests.artefacts import all_rows, digests
from tests.corpora.readers.tasks import write_lines
from tests.fine_tuned import paired_recipe, train_quietly
from tests.pipelines.documents.jobs import build as build_documents
from trainer.model.positions import Learned
from trainer.parallel.distributed import World

PROBES = ("ruler:niah_single_2", "ruler:cwe", "babilong:qa2", "ruler:qa_1")


@pytest.fixture(scope="module")
def haystack(tokenizer, tmp_path_factory):
    """Documents of made words, and pairs about some of them."""
    folder = tmp_path_factory.mktemp("haystack")
    rng = np.random.default_rng(0)
    words = ["".join(parts) for parts in rng.choice(["ba", "ke", "lo", "mi", "nu", "pa"], (200, 3))]
    lines = [
        {
            "id": f"question-{number}",
            "document": " ".join(f"{' '.join(rng.choice(words, 8))}.".capitalize() for _ in range(4)),
            "query": f"What is said of {number}?",
            "answers": ["nothing", "not a word"],
            "split": "validation" if number % 4 else "train",
        }
        for number in range(80)
    ]
    write_lines(folder / "raw" / "pairs.jsonl", lines)
    raw, documents = str(folder / "raw"), str(folder / "documents")
    build_documents(f"made={raw}", documents, tokenizer, read=ReadOptions(format="pairs", text_field="text"))
    run_all(RawPairs(input=(f"made={raw}",)), Probing(), Pairs(documents=documents, output=str(folder / "pairs")))
    return documents, str(folder / "pairs")


def run_all(raw, probing, options, workers=1):
    planned: Any = jobs(raw, probing, options)
    for job in planned if not hasattr(planned, "output") else [planned]:
        run_job(job, Engine(workers=workers))


def build(haystack, output, workers=1, split="data", task_bytes=16_000, **options):
    documents, questions = haystack
    options = {"probe": PROBES, "lengths": (1024, 2048), "examples": 5, "questions": questions, **options}
    pairs = Pairs(documents=documents, output=str(output), split=split, task_bytes=task_bytes)
    run_all(RawPairs(), Probing(**options), pairs, workers)


@pytest.fixture(scope="module")
def probes(haystack, tmp_path_factory):
    folder = tmp_path_factory.mktemp("probes") / "probes"
    build(haystack, folder)
    return str(folder)


def test_probes_are_sound_pairs_about_documents_of_their_own(probes, haystack):
    assert verify(probes) == []
    pairs, rows = open_pairs(probes), all_rows(probes, "farspan.pairs")
    documents = {row["document_id"]: row for row in all_rows(f"{probes}.documents")}
    assert len(rows) == len(documents) == len(pairs) == 4 * 2 * 5
    for row in rows:
        attributes = json.loads(row["attributes"])
        size = len(documents[row["pair_id"]]["tokens"]) + len(row["query"]) + 8
        slack = 24 if attributes["probe"] == "ruler:cwe" else 0
        assert attributes["length"] - slack <= size <= attributes["length"]
        assert ("depth" in attributes) == (attributes["probe"] != "ruler:cwe")
    single = [json.loads(row["attributes"])["depth"] for row in rows if "single" in row["pair_id"]]
    assert single == 2 * [0, 10, 20, 30, 40]
    assert read_manifest(probes).config["probe"] == list(PROBES)
    given = [row for row in rows if "qa_1" in row["pair_id"]]
    assert {row["split"] for row in given} == {"train", "validation"}
    assert all(row["references"] == ["nothing", "not a word"] for row in given)
    assert {row["split"] for row in rows if row not in given} == {"test"}


def test_workers_and_shards_do_not_change_an_example(probes, haystack, tmp_path):
    build(haystack, tmp_path / "probes", workers=2)
    assert digests(tmp_path / "probes") == digests(probes)
    assert digests(tmp_path / "probes.documents") == digests(f"{probes}.documents")
    build(haystack, tmp_path / "few", probe=("babilong:qa2",), lengths=(2048,), questions=None, task_bytes=1 << 20)
    rows = {row["pair_id"]: row for row in all_rows(probes, "farspan.pairs")}
    texts = {row["document_id"]: row for row in all_rows(f"{probes}.documents")}
    for row in all_rows(tmp_path / "few", "farspan.pairs"):
        assert {**row, "document_rows": rows[row["pair_id"]]["document_rows"]} == rows[row["pair_id"]]
    assert all(row == texts[row["document_id"]] for row in all_rows(f"{tmp_path}/few.documents"))


def test_splits_may_be_drawn(haystack, tmp_path):
    build(haystack, tmp_path / "probes", split="draw", probe=("ruler:vt",), questions=None, examples=40)
    counts = read_manifest(str(tmp_path / "probes")).totals
    assert counts["train"] > 40 > counts["validation"] > 0 < counts["test"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (
            {"probe": ("ruler:vtt",)},
            r"no probe is called 'ruler:vtt' \(did you mean 'ruler:vt'\?\); probes: ruler:niah",
        ),
        ({"lengths": ()}, "--probe: needs --lengths"),
        ({"lengths": (512, 512)}, "--lengths 512,512: names one twice"),
        ({"lengths": (1 << 20,)}, "tokens are too few for --lengths 1048576; give more documents"),
        (
            {"probe": ("ruler:cwe",), "lengths": (64,), "questions": None},
            "--lengths 64: 0 tokens of facts leave no room",
        ),
        ({"probe": ("ruler:vt",), "depths": (5,), "questions": None}, "--depths: the facts of ruler:vt stand at drawn"),
        ({"questions": None}, "--probe ruler:qa_1: needs pairs about the documents; give --questions DIR"),
        ({"probe": ("ruler:vt",)}, "--questions: is for ruler:qa_1 and ruler:qa_2"),
        ({"probe": ("ruler:qa_2",)}, "no question about several documents fits into three quarters of 1,024 tokens"),
        ({"probe": ("ruler:qa_1",), "split": "draw"}, "--split draw: the questions of ruler:qa_1 have splits"),
        ({"probe": (), "questions": None}, "--lengths: is for probes; give --probe NAME"),
    ],
)
def test_bad_options_are_refused_before_work(options, words, haystack, tmp_path):
    with pytest.raises(FarspanError, match=words) as caught:
        build(haystack, tmp_path / "probes", **{"examples": 1, **options})
    assert "\n" not in str(caught.value)
    assert not [*tmp_path.iterdir()]


def test_reading_and_making_pairs_exclude_each_other(haystack, tmp_path):
    options = Pairs(documents=haystack[0], output=str(tmp_path / "pairs"))
    with pytest.raises(FarspanError, match="--input: is for pairs that are read; leave it out, or --probe"):
        jobs(RawPairs(input=("raw",), fields=PairFields()), Probing(probe=("ruler:vt",), lengths=(512,)), options)
    with pytest.raises(FarspanError, match="no pairs are named; give --input FILES, or --probe NAME"):
        jobs(RawPairs(), Probing(), options)


@pytest.mark.slow
def test_from_documents_to_a_heat_map(haystack, tmp_path, capsys):
    """Make probes, fine-tune for a few updates with the answer's beginning as prompt, generate, and evaluate."""
    pairs = str(tmp_path / "probes")
    build(
        haystack, pairs, split="draw", probe=("ruler:niah_single_2",), lengths=(128, 192), questions=None, examples=66
    )
    task = {**TextToText.presets["probe"], "source_length": 192, "target_length": 96}
    recipe = paired_recipe(tmp_path / "run", pairs, {**task, "global_attention": "none"}, steps=6)
    sides = (("encoder", 192), ("decoder", 128))
    model = {side: replace(getattr(recipe.model, side), positions=Learned(size)) for side, size in sides}
    data = replace(recipe.data, source_length=192, target_length=96)
    train_quietly(replace(recipe, model=replace(recipe.model, **model), data=data))
    answers: dict[str, Any] = {"output": str(tmp_path / "answers"), "device": "cpu", "generation": {"max_tokens": 12}}
    generate(Generating(model=str(tmp_path / "run"), pairs=pairs, split="test", **answers), World.alone())
    figure = tmp_path / "heat.svg"
    options = Evaluation(metrics=("all",), by=("length", "depth"), resamples=40)
    evaluate(Evaluate(predictions=(answers["output"],), evaluation=options, figure=str(figure)))
    assert "depth by length" in capsys.readouterr().out
    assert all(f">{text}</text>" in figure.read_text() for text in ("length", "depth", "128", "192", "100"))
