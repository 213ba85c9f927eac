"""Linked corpora: whole text, kept borders, counted documents, the same bytes whatever runs the job; their stages."""

import os
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from corpora.errors import FarspanError
from corpora.linking.options import Linking
from corpora.packing.options import Packing
from corpora.storage import files
from corpora.storage.manifest_file import read_manifest
from corpora.storage.shards import read_shard
from corpora.verify.artefact import verify
from pipelines.corpus.linked import jobs, plan
from pipelines.corpus.options import EarlierStages, LinkedCorpus
from pipelines.engine.options import Engine
from pipelines.engine.run import run_job
from pipelines.retrieval.options import Embedding
from tests.artefacts import all_rows, digests, make_documents
from tests.neighbours import make_neighbours, training_documents
from tests.pipelines.corpus.parts import rows_of
from tests.tiny_encoder import make_encoder
from trainer.dataset import Dataset

PACKING: dict[str, Any] = {"sequence_length": 256}


def job(documents, neighbours, output, policy="nearest", leftovers="concatenate", **linking):
    return plan(
        LinkedCorpus(
            documents=documents,
            neighbours=neighbours,
            output=output,
            packing=Packing(**PACKING),
            linking=Linking(policy=policy, **linking),
            leftovers=leftovers,
            shards=3,
        )
    )


@pytest.fixture(scope="module")
def inputs(tmp_path_factory) -> tuple[str, str]:
    folder = tmp_path_factory.mktemp("inputs")
    documents = make_documents(str(folder / "documents"), shards=3)
    return documents, make_neighbours(str(folder / "neighbours"), documents)


@pytest.fixture(scope="module", params=["nearest", "chain", "path"])
def built(request, inputs, tmp_path_factory):
    folder = str(tmp_path_factory.mktemp(request.param) / "corpus")
    run_job(job(*(*inputs, folder, request.param)), Engine(workers=1))
    return request.param, folder


def test_artefacts_are_sound(inputs, built):
    assert verify(inputs[1]) == []
    assert verify(built[1]) == []


def test_every_document_appears_with_its_own_text_and_never_too_often(inputs, built):
    policy, folder = built
    expected = {row["document_id"]: row["tokens"] for row in training_documents(inputs[0])}
    uses, seen = Counter(), {}
    for _, row in rows_of(folder):
        for name, offset, tokens in row:
            assert tokens == expected[name][offset : offset + len(tokens)]
            uses[name] += offset == 0
            seen.setdefault(name, set()).update(range(offset, offset + len(tokens)))
    assert {name: len(places) for name, places in seen.items()} == {n: len(t) for n, t in expected.items()}
    assert max(uses.values()) == (1 if policy == "path" else 2)
    manifest = read_manifest(folder)
    count = manifest.counts["made"]
    assert count["read"] == count["written"] == manifest.totals["documents"] == len(expected)
    assert count["uses"] == uses.total()
    assert count["tokens"] == manifest.totals["tokens"]
    linked, left = manifest.totals["linked_documents"], manifest.totals["left_over_documents"]
    assert linked + left == len(expected)


def test_rows_keep_to_their_cluster(inputs, built):
    clusters = {}
    for shard in read_manifest(inputs[1]).shards:
        for batch in read_shard(f"{inputs[1]}/shards/{shard.name}"):
            pairs = zip(batch.column("document_id").to_pylist(), batch.column("cluster_id").to_pylist(), strict=True)
            clusters.update(pairs)
    linked = [(cluster, part.document) for cluster, row in rows_of(built[1]) for part in row if cluster >= 0]
    assert linked
    assert all(clusters[name] == cluster for cluster, name in linked)


@pytest.mark.parametrize("built", ["nearest"], indirect=True)
def test_a_decoder_of_transformers_learns_from_linked_rows(built):
    """After training, too, a token of one document moves the logits of no other."""
    dataset = Dataset(built[1], layout="stream")
    torch.manual_seed(0)
    sizes: dict[str, Any] = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2}
    sizes |= {"num_attention_heads": 4, "attn_implementation": "sdpa"}
    size = dataset.vocab_size
    model = LlamaForCausalLM(LlamaConfig(vocab_size=size, **sizes))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    batch = dataset.collate([dataset[row] for row in range(4)])
    inputs = {name: value for name, value in batch.items() if not name.startswith(("cu_", "max_"))}
    losses = []
    for _ in range(30):
        loss = model(**inputs).loss
        losses.append(float(loss.detach()))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert losses[0] == pytest.approx(np.log(size), rel=0.05)
    assert losses[-1] < losses[0] - 1
    first, second = batch["cu_seq_lens_q"].tolist()[1:3]
    other = inputs["input_ids"].clone()
    other[0, first] = (other[0, first] + 7) % size
    with torch.no_grad():
        moved = (model(**inputs).logits != model(**{**inputs, "input_ids": other}).logits).any(-1)[0]
    assert moved[first:second].any()
    assert not moved[:first].any()
    assert not moved[second:].any()


def test_leftovers_may_stay_out_and_are_counted(inputs, tmp_path):
    manifest = run_job(job(*(*inputs, str(tmp_path / "c"), "nearest", "leave-out"), min_fill=1.0), Engine(workers=1))
    count = manifest.counts["made"]
    assert count["filtered"] == manifest.totals["left_over_documents"] > 0
    assert count["written"] + count["filtered"] == count["read"]
    assert verify(str(tmp_path / "c")) == []


def test_near_duplicates_are_kept_apart_and_written_down(inputs, tmp_path):
    documents, _ = inputs
    near = make_neighbours(str(tmp_path / "near"), documents, jaccard=0.9)
    manifest = run_job(job(documents, near, str(tmp_path / "c"), "nearest", max_jaccard=0.8), Engine(workers=1))
    assert manifest.totals["linked_documents"] < manifest.totals["documents"]
    recorded = [
        row
        for path in files.walk(str(tmp_path / "c" / "near-duplicates"))
        for batch in read_shard(path)
        for row in batch.to_pylist()
    ]
    assert len(recorded) == manifest.totals["near_duplicate_pairs"] > 0
    said = [row for row in recorded if row["jaccard"] is not None]
    assert all(abs(row["jaccard"] - 0.9) < 0.01 and row["similarity"] <= 1.001 for row in said)
    assert 0 < len(said) < len(recorded)  # others are near-duplicates of near-duplicates
    together = [{part.document for part in row} for cluster, row in rows_of(tmp_path / "c") if cluster >= 0]
    for row in recorded:
        assert not any({row["document_id"], row["near_duplicate"]} <= names for names in together)


def test_what_repeats_a_used_document_is_left_out_and_counted(inputs, tmp_path):
    """All neighbours are near-duplicates: each cluster is one family, of which one document is left over."""
    near = make_neighbours(str(tmp_path / "near"), inputs[0], jaccard=0.9)
    manifest = run_job(job(inputs[0], near, str(tmp_path / "c")), Engine(workers=1))
    totals, count = manifest.totals, manifest.counts["made"]
    clusters = {row["cluster_id"] for row in all_rows(near, "farspan.neighbours")}
    assert totals["linked_documents"] == totals["links"] == 0
    assert totals["left_over_documents"] == len(clusters)
    assert totals["repeated_documents"] == count["filtered"] == count["read"] - len(clusters)
    assert verify(str(tmp_path / "c")) == []


def test_options_without_effect_make_no_other_corpus(inputs, tmp_path):
    made = [str(tmp_path / name) for name in ("two", "five")]
    for folder, uses in zip(made, (2, 5), strict=True):
        run_job(job(*(*inputs, folder, "path"), max_uses=uses, min_fill=uses / 10), Engine(workers=1))
    first, second = (read_manifest(folder) for folder in made)
    assert first.config == second.config
    assert first.config["max_uses"] == 1
    assert digests(made[0]) == digests(made[1])


def test_neighbours_of_other_documents_are_refused(inputs, tmp_path):
    others = make_documents(str(tmp_path / "others"), shards=3, seed=1)
    with pytest.raises(FarspanError, match="other documents"):
        job(others, inputs[1], str(tmp_path / "corpus"))
    # the same when the way to the documents is lost: the rows themselves tell
    moved = shutil.copytree(inputs[1], tmp_path / "moved" / "far" / "away" / "neighbours")
    other = make_documents(str(tmp_path / "fewer"), shards=3, documents=37)
    with pytest.raises(FarspanError, match=r"--documents"):
        run_job(job(other, str(moved), str(tmp_path / "c2")), Engine(workers=1))


def options(folder: Path, **given) -> LinkedCorpus:
    documents = make_documents(str(folder / "documents"))
    return LinkedCorpus(
        documents=documents, output=str(folder / "corpus"), packing=Packing(sequence_length=256), **given
    )


def test_given_neighbours_leave_one_job_and_their_absence_begins_with_vectors(tmp_path):
    with pytest.raises(FarspanError, match="nowhere"):
        next(jobs(options(tmp_path, neighbours=str(tmp_path / "nowhere"))))
    few = EarlierStages(embedding=Embedding(min_document_tokens=10**6))
    with pytest.raises(FarspanError, match="--min-document-tokens 1000000: the longest document"):
        next(jobs(options(tmp_path, earlier=few)))


def test_stages_lie_beside_the_corpus_unless_they_have_a_folder(tmp_path):
    assert options(tmp_path).neighbours_folder == f"{tmp_path}/corpus.stages/neighbours"
    assert options(tmp_path, earlier=EarlierStages(stages="s")).neighbours_folder == "s/neighbours"


def test_an_option_of_a_stage_that_does_not_run_is_refused(tmp_path):
    stages = EarlierStages(embedding=Embedding(block=1024))
    with pytest.raises(FarspanError, match="--block: has no effect with --neighbours; give one of the two"):
        options(tmp_path, neighbours="n", earlier=stages)
    assert options(tmp_path, neighbours="n", earlier=EarlierStages()).neighbours_folder == "n"


@pytest.mark.parametrize(
    ("further", "message"),
    [
        (("--centroids", 2, "--min-document-tokens", 100), "--centroids 2: k-means has 12 vectors to learn from"),
        (("--centroids", 2, "--memory", 0.03), "--memory 31 MiB: 100 neighbours of each document in a cluster of 48"),
        (
            ("--min-document-tokens", 119, "--split", "held-out"),
            "--min-document-tokens 119: no document of split held-out",
        ),
        (("--k", 0), "--k 0: give a number of at least 1"),
        (("--probes", 0), "--probes 0"),
        (("--memory", 0), "--memory 0: give a positive number of GiB"),
        (("--iterations", 0), "--iterations 0"),
        (("--max-documents", 0), "--max-documents 0"),
        (("--centroids", 400), "--centroids 400: k-means has 96 vectors to learn from"),
        (("--shards", -1), "--shards -1"),
        (("--max-uses", 0), "--max-uses 0"),
        (("--block", 0), "--block 0"),
        (("--max-length", 1), "--max-length 1: the 2 special tokens of encoder tiny leave no room"),
    ],
)
def test_what_late_stages_would_refuse_is_known_before_the_first(run, capsys, tmp_path, further, message):
    """Some of it follows from the number of documents that get a vector."""
    documents = make_documents(str(tmp_path / "documents"))
    encoder = make_encoder(str(tmp_path / "tiny"))
    capsys.readouterr()  # what transformers says about saving
    command = ["corpus", "linked", "--documents", documents, "--encoder", encoder, "--sequence-length", "256"]
    status, _, err = run(*command, "--output", tmp_path / "corpus", *further)
    assert (status, len(err.splitlines())) == (1, 1)
    assert err.startswith(f"farspan: {message}")
    assert sorted(os.listdir(tmp_path)) == ["documents", "tiny"]


def test_an_output_that_holds_something_else_is_seen_before_the_first_stage(run, tmp_path):
    documents = make_documents(str(tmp_path / "documents"))
    (tmp_path / "corpus").mkdir()
    (tmp_path / "corpus" / "mine.txt").write_text("mine")
    command = ["corpus", "linked", "--documents", documents, "--encoder", "nowhere", "--sequence-length", "256"]
    status, _, err = run(*command, "--output", tmp_path / "corpus")
    assert status == 1
    assert "corpus: not empty and no farspan artefact" in err
