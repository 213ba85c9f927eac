"""docs/formats.md: its programs, which import nothing of farspan, run on what the jobs make."""

import ast
import json
import re
from pathlib import Path

import numpy as np
import pytest

from corpora.schemas.documents import documents_schema
from corpora.schemas.pairs import pairs_schema
from corpora.schemas.predictions import predictions_schema
from corpora.schemas.sequences import corpus_schema
from corpora.schemas.vectors import clusters_schema, neighbours_schema, vectors_schema
from objectives.api.masks import MIXTURE_SCHEMA
from pipelines.cli import main
from tests.tiny_encoder import make_encoder

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "formats.md").read_text("utf-8")
PROGRAMS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


@pytest.fixture(scope="module")
def artefacts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One artefact of each kind and a run of two updates, of made-up text, by the commands."""
    folder = tmp_path_factory.mktemp("artefacts")
    words = np.array("river stone lantern window quiet orchard copper violet winter harbour".split())
    rng = np.random.default_rng(0)
    texts = [" ".join(rng.choice(words, rng.integers(5, 120))) + ". Näher, näher!" for _ in range(60)]
    (folder / "text.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    asked = [
        {"document": text, "query": f"What about {number}?", "answer": "Nothing."} for number, text in enumerate(texts)
    ]
    (folder / "train.jsonl").write_text("".join(json.dumps(record) + "\n" for record in asked))
    commands = [
        "tokenizer train --vocab-size 300 --input {0}/text.jsonl --output {0}/tokenizer",
        "documents --input {0}/text.jsonl --tokenizer {0}/tokenizer --held-out 0.2 --seed 3 --output {0}/documents",
        "corpus random --documents {0}/documents --sequence-length 128 --shards 2 --seed 5 --output {0}/corpus",
        "mask span --preset bart_ls --corpus {0}/corpus --output {0}/masks",
        "documents --input mine={0}/train.jsonl --format pairs --tokenizer {0}/tokenizer --output {0}/asked",
        "pairs --documents {0}/asked --input mine={0}/train.jsonl --output {0}/pairs",
        "corpus linked --documents {0}/documents --encoder {0}/encoder --sequence-length 128 --output {0}/linked",
        "corpus related --documents {0}/documents --neighbours {0}/linked.stages/neighbours --sequence-length 128"
        " --output {0}/related",
        "corpus long {0}/mixture.toml --output {0}/long",
        "train tiny --set data.corpus={0}/corpus --set data.masks={0}/masks --set run.directory={0}/run"
        " --set run.steps=2 --set schedule.warmup_steps=1 --set run.device=cpu --set data.source_length=256"
        " --set data.target_length=64 --set data.source_multiple=64 --set model.encoder.attention.size=64",
        "generate {0}/run --pairs {0}/pairs --split train --task led --set global_attention=none --set source_length=64"
        " --generation max_tokens=4 --output {0}/predictions",
    ]
    mixture = f"""
tokenizer = "{folder}/tokenizer"
sequence_length = 128
documents = "{folder}/long-documents"

[sources.all]
weight = 1.0
input = "{folder}/text.jsonl"
"""
    (folder / "mixture.toml").write_text(mixture)
    make_encoder(str(folder / "encoder"))
    for command in commands:
        main(command.format(folder).split())
    return folder


@pytest.mark.parametrize(
    "name", ["documents", "corpus", "linked", "related", "long", "masks", "pairs", "predictions", "run"]
)
def test_one_job_of_each_kind_ends_with_a_sound_artefact(
    artefacts: Path, name: str, capsys: pytest.CaptureFixture[str]
):
    main(["verify", str(artefacts / name)])
    assert "sound" in capsys.readouterr().out


def test_a_tiny_run_ends_with_its_last_update(artefacts: Path):
    lines = [json.loads(line) for line in (artefacts / "run" / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == [1, 2]
    assert np.isfinite([line["loss"] for line in lines]).all()


def test_the_pages_programs_run(artefacts: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    monkeypatch.chdir(artefacts)
    assert len(PROGRAMS) == 6
    names: dict = {}
    for program in PROGRAMS:
        exec(program, names)
    assert "text" in capsys.readouterr().out
    totals = json.loads((artefacts / "documents" / "manifest.json").read_text())["totals"]
    assert 0 < totals["held_out_documents"] < totals["documents"] <= len(names["order"]) + totals["held_out_documents"]


@pytest.mark.parametrize(
    ("format", "schema"),
    [
        ("`farspan.documents`", documents_schema(300, titles=True)),
        ("`farspan.corpus`", corpus_schema(300)),
        ("`farspan.vectors`, `farspan.clusters`", vectors_schema(8)),
        ("`farspan.vectors`, `farspan.clusters`", clusters_schema(8)),
        ("`farspan.neighbours`", neighbours_schema()),
        ("`farspan.masks`", MIXTURE_SCHEMA),
        ("`farspan.pairs`", pairs_schema(300)),
        ("`farspan.predictions`", predictions_schema(300)),
    ],
)
def test_the_page_names_every_column_with_its_type(format: str, schema):
    section = PAGE.split(f"### {format}\n")[1].split("\n##")[0].replace("\\<", "<").replace("\\>", ">")
    rows = [line.strip("|").split("|") for line in section.splitlines() if line.startswith("| `")]
    written = {name.strip(" `"): row[1].strip() for row in rows for name in row[0].split(",") if "|" not in name}
    said = {name: kind for name, kind in written.items() if name in schema.names}
    assert set(said) == set(schema.names)
    for field in schema:
        kind = str(field.type).replace("item: ", "").replace("fixed_size_binary[16]", "fixed_size_binary(16)")
        kind = (
            kind.replace("large_list<uint16>", "large_list of ids")
            .replace("<float>", "<float32>")
            .replace("[8]", "[d]")
        )
        assert said[field.name] == kind + ("" if field.nullable else ", not null")


def constants(node: ast.expr) -> set[str]:
    """The strings that an expression, or either side of a conditional one, may be."""
    if isinstance(node, ast.IfExp):
        return constants(node.body) | constants(node.orelse)
    return {node.value} if isinstance(node, ast.Constant) and isinstance(node.value, str) else set()


def test_the_page_names_every_reason_to_reject_a_record():
    section = PAGE.split("## `rejects/`")[1].split("\n## ")[0]
    place = {"BadRecord": 0, "reject": 1, "Reject": 2}  # of the reason among the arguments
    found = set()
    for path in (path for room in ("corpora", "pipelines") for path in (ROOT / room).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Call):
                at = place.get(getattr(node.func, "attr", getattr(node.func, "id", "")), len(node.args))
                found |= constants(node.args[at]) if at < len(node.args) else set()
    assert len(found) > 35
    assert {reason for reason in found if f"`{reason}`" not in section} == set()


def test_the_page_explains_every_key_of_a_manifest(artefacts: Path):
    section = PAGE.split("## `manifest.json`")[1].split("\n## ")[0]
    stages = [f"linked.stages/{name}" for name in ("vectors", "clusters", "neighbours")]
    for folder in ("documents", "corpus", "masks", "linked", "asked", "pairs", *stages):
        manifest = json.loads((artefacts / folder / "manifest.json").read_text())
        config = {**manifest["config"], **manifest["config"].get("sentences", {})}
        for read in config.get("read", {}).values():
            config = {**config, **read}
        counted = [name for count in manifest["counts"].values() for name in count]
        parts = (manifest, manifest["tokenizer"], manifest["parent"] or {}, manifest["totals"], counted, config)
        for name in (name for part in (*parts, manifest["shards"][0]) for name in part):
            assert f"`{name}`" in section, name
