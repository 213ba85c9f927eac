"""Exports of three artefacts as the owners of the formats read them: every id and every document boundary."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit

import farspan
from corpora.storage.manifest_file import read_manifest
from pipelines.engine.options import Engine
from pipelines.engine.run import run_job
from pipelines.export.job import plan
from pipelines.masks.job import plan as plan_masks
from pipelines.masks.options import Masking
from pipelines.options import Export
from tests.artefacts import all_rows, make_corpus, make_documents
from tests.environments import environment

pytestmark = pytest.mark.readers

EOS, PAD = 2, 1


@pytest.fixture(scope="module")
def artefacts(tmp_path_factory):
    """Three artefacts: short and long rows, and documents; and a mask set of the first."""
    root = tmp_path_factory.mktemp("artefacts")
    short = make_corpus(str(root / "short"), shards=3, documents=60)
    long = make_corpus(str(root / "long"), shards=2, documents=90, seed=1, sequence_length=512)
    documents = make_documents(str(root / "documents"), shards=3, documents=50, seed=2)
    wide = make_wide(root)
    masks = str(root / "masks")
    run_job(plan_masks(Masking(corpus=short, output=masks, objective="span")), Engine(workers=1))
    return {"short": short, "long": long, "wide": wide, "documents": documents, "masks": masks}


def make_wide(root):
    """A corpus of a tokenizer with more ids than 16 bits hold; the largest are used."""
    special = ["<s>", "<pad>", "</s>", "<unk>"]
    words = [f"w{number}" for number in range(len(special), 70_000)]
    tokenizer = Tokenizer(WordLevel({name: number for number, name in enumerate(special + words)}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = WhitespaceSplit()
    tokenizer.add_special_tokens(special)
    tokenizer.save(str(root / "tokenizer.json"))
    rng = np.random.default_rng(3)
    texts = [" ".join(rng.choice(words[-5000:], rng.integers(1, 119))) for _ in range(90)]
    (root / "wide.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    made = {"tokenizer": root / "tokenizer.json", "output": root / "wide-documents", "workers": 1}
    farspan.documents(input={"made": root / "wide.jsonl"}, **made)
    farspan.corpus_random(documents=made["output"], output=root / "wide", sequence_length=128, shards=2, workers=1)
    return str(root / "wide")


def export(artefact, to, output, **options):
    return run_job(plan(Export(artefact=artefact, to=to, output=str(output), **options)), Engine(workers=1))


def read(reader, folder, **options):
    """Run the owner's reader on ``folder``, in a process with its packages."""
    packages = packages_of(reader)
    script = Path(__file__).parent / "scripts" / f"{reader}_reader.py"
    out = Path(folder).parent / f"{Path(folder).name}.npz"
    run_beside(packages, [str(script), str(folder), json.dumps(options), str(out)], out.parent)
    return dict(np.load(out))


def packages_of(reader):
    packages = environment(reader)
    if packages is None:
        pytest.skip(f"the packages of {reader} are not installed: make test-readers")
    return packages


def run_beside(packages, arguments, folder):
    """Run Python with further packages in a folder, and return what it prints."""
    surroundings = {**os.environ, "PYTHONPATH": str(packages), "HOME": str(folder), "CUDA_VISIBLE_DEVICES": ""}
    command = [sys.executable, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, env=surroundings, cwd=folder, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def rows_of(folder, width=None):
    """Rows as lists of ids, and where documents begin in each, worked out token by token."""
    rows = []
    if read_manifest(folder).format == "farspan.documents":
        return [([*row["tokens"], EOS], [0]) for row in all_rows(folder) if not row["held_out"]]
    for row in all_rows(folder, "farspan.corpus"):
        ids, starts, edges = [], [], [*row["document_starts"], len(row["tokens"])]
        for number, start in enumerate(row["document_starts"]):
            starts.append(len(ids))
            text = row["tokens"][start : edges[number + 1]]
            ends = row["document_offsets"][number] + len(text) == row["document_lengths"][number]
            ids += [*text, EOS] if ends or number + 2 < len(edges) else text
        if width is not None and len(ids) < width:
            starts += [len(ids)] if ids[-1] == EOS else []
            ids += [PAD] * (width - len(ids))
        rows.append((ids, starts))
    return rows


def flat(rows):
    return np.array([token for ids, _ in rows for token in ids])


def beginnings(rows):
    """First positions of documents in the ids of all rows."""
    first, places = 0, []
    for ids, starts in rows:
        places += [first + start for start in starts]
        first += len(ids)
    return np.array(places)


@pytest.mark.parametrize("name", ["short", "long", "wide", "documents"])
@pytest.mark.parametrize("dtype", [None, "int32"])
def test_megatron(artefacts, tmp_path, name, dtype):
    config = export(artefacts[name], "megatron", tmp_path / "out", dtype=dtype).config
    rows = rows_of(artefacts[name], config["length"])
    found = read("megatron", tmp_path / "out", eos=EOS, pad=PAD, length=config["length"], vocab_size=70_000)
    np.testing.assert_array_equal(found["tokens"], flat(rows))
    assert found["lengths"].tolist() == [len(ids) for ids, _ in rows]
    assert found["same"].all()
    if name != "documents":
        assert len(found["loaded"]) == len(rows) - config["files"]  # each file's last row lacks its extra token
        starts = {tuple(0 if token == PAD else token for token in ids): starts for ids, starts in rows}
        for row, positions in zip(found["loaded"], found["positions"], strict=True):
            # the row is one of ours, in which the reader puts 0 for padding; positions restart after each <eos>
            assert np.flatnonzero(positions == 0).tolist() == starts.pop(tuple(row.tolist()))


@pytest.mark.parametrize("name", ["short", "long", "wide", "documents"])
@pytest.mark.parametrize("dtype", [None, "uint32"])
def test_mds(artefacts, tmp_path, name, dtype):
    export(artefacts[name], "mds", tmp_path / "out", dtype=dtype)
    rows = rows_of(artefacts[name])
    found = read("mds", tmp_path / "out")
    np.testing.assert_array_equal(found["tokens"], flat(rows))
    assert found["lengths"].tolist() == [len(ids) for ids, _ in rows]
    expected = [pair for ids, starts in rows for pair in zip(starts, [*starts[1:], len(ids)], strict=True)]
    assert found["indices"].tolist() == [list(pair) for pair in expected]
    assert found["counts"].tolist() == [len(starts) for _, starts in rows]
    assert set(found["domains"].tolist()) == {"made"}
    assert found["same"]


@pytest.mark.parametrize("name", ["short", "wide"])
def test_the_column_of_llm_foundry(artefacts, tmp_path, name):
    config = export(artefacts[name], "llm-foundry", tmp_path / "out").config
    rows = rows_of(artefacts[name], config["length"])
    np.testing.assert_array_equal(read("mds", tmp_path / "out")["tokens"], [ids for ids, _ in rows])


def test_mds_of_streams(artefacts, tmp_path):
    export(artefacts["masks"], "mds", tmp_path / "out")
    found = read("mds", tmp_path / "out")
    assert found["same"]
    targets = sum(row["target_length"] for row in all_rows(artefacts["masks"], "farspan.masks"))
    assert found["mask"].sum() == targets


@pytest.mark.parametrize(
    ("name", "dtype"), [*product(["short", "long", "documents"], ["uint16", "uint32"]), ("wide", None)]
)
def test_olmo(artefacts, tmp_path, name, dtype):
    config = export(artefacts[name], "olmo", tmp_path / "out", dtype=dtype).config
    dtype = config["dtype"]
    rows = rows_of(artefacts[name], config["length"])
    found = read("olmo", tmp_path / "out", eos=EOS, pad=PAD, length=config["length"], vocab_size=70_000, dtype=dtype)
    np.testing.assert_array_equal(found["tokens"], flat(rows))
    begins = beginnings(rows)
    assert found["listed"][:, 0].tolist() == begins.tolist()
    assert found["listed"][:, 1].tolist() == [*begins[1:], len(flat(rows))]
    if name == "documents":
        np.testing.assert_array_equal(found["local"], found["listed"])
    else:
        np.testing.assert_array_equal(found["mask"], flat(rows) != PAD)
        expected = [np.diff([*starts, len(ids)]) for ids, starts in rows]
        np.testing.assert_array_equal(found["doc_lens"], np.concatenate(expected))


def test_olmo_of_streams(artefacts, tmp_path):
    manifest = export(artefacts["masks"], "olmo", tmp_path / "out")
    length = manifest.config["length"]
    found = read(
        "olmo", tmp_path / "out", eos=EOS, pad=PAD, length=length, vocab_size=800, dtype=manifest.config["dtype"]
    )
    tokens, mask = (found[name].reshape(-1, length) for name in ("tokens", "mask"))
    for row, tokens_of_row, mask_of_row in zip(
        all_rows(artefacts["masks"], "farspan.masks"), tokens, mask, strict=True
    ):
        spans = sum(size for size in row["span_lengths"])
        hidden = tokens_of_row[mask_of_row]
        assert len(hidden) <= row["target_length"]
        assert hidden[-1] == EOS
        assert spans <= len(hidden)


@pytest.mark.parametrize(("name", "dtype"), [*product(["short", "long"], ["uint16", "uint32"]), ("wide", None)])
def test_datatrove(artefacts, tmp_path, name, dtype):
    config = export(artefacts[name], "datatrove", tmp_path / "out", dtype=dtype).config
    dtype = config["dtype"]
    rows = rows_of(artefacts[name], config["length"] + 1)
    found = read("datatrove", tmp_path / "out", eos=EOS, length=config["length"], dtype=dtype)
    np.testing.assert_array_equal(found["tokens"].ravel(), flat(rows))
    for positions in (found["by_index"], found["by_end"]):
        np.testing.assert_array_equal(np.flatnonzero(positions.ravel() == 0), beginnings(rows))


def test_datatrove_of_documents(artefacts, tmp_path):
    export(artefacts["documents"], "datatrove", tmp_path / "out", files=1)
    rows = rows_of(artefacts["documents"])
    found = read("datatrove", tmp_path / "out", eos=EOS, length=15, dtype="uint16")
    tokens = flat(rows)
    np.testing.assert_array_equal(found["tokens"].ravel(), tokens[: len(tokens) // 16 * 16])


@pytest.mark.parametrize(("name", "dtype"), [*product(["short", "long"], ["uint16", "int32"]), ("wide", None)])
def test_litdata(artefacts, tmp_path, name, dtype):
    config = export(artefacts[name], "litdata", tmp_path / "out", dtype=dtype).config
    rows = rows_of(artefacts[name], config["length"] + 1)
    found = read("litdata", tmp_path / "out", length=config["length"])
    np.testing.assert_array_equal(found["tokens"].ravel(), flat(rows))


def test_litdata_of_documents(artefacts, tmp_path):
    export(artefacts["documents"], "litdata", tmp_path / "out", files=1)
    found = read("litdata", tmp_path / "out", length=15)
    tokens = flat(rows_of(artefacts["documents"]))
    np.testing.assert_array_equal(found["tokens"].ravel(), tokens[: len(tokens) // 16 * 16])


@pytest.mark.parametrize(("reader", "page", "lost"), [("megatron", "megatron", 1), ("olmo", "olmo_core", 0)])
def test_the_python_of_the_guide_runs(artefacts, tmp_path, reader, page, lost):
    packages = packages_of(reader)
    text = (Path(__file__).parents[2] / "docs" / "howto" / f"{page}.md").read_text("utf-8")
    os.symlink(artefacts["short"], tmp_path / "corpus")
    printed = run_beside(packages, ["-c", "".join(re.findall(r"```python\n(.*?)```", text, re.DOTALL))], tmp_path)
    first, second = printed.strip().splitlines()[-2:]
    rows = read_manifest(artefacts["short"]).totals["sequences"]
    assert first.endswith(f", eos {EOS}, pad {PAD}, {rows} rows")
    assert second == f"{rows - lost} torch.Size([{first.split()[2].rstrip(',')}])"
