"""Rows of related documents: whole clusters meet, whole sentences stay, every document is counted."""

import json
from collections import Counter

import pytest

from corpora.errors import FarspanError
from corpora.packing.options import Packing, RelatedRows
from corpora.readers import ReadOptions
from corpora.storage.manifest_file import manifest_sha256, read_manifest
from corpora.storage.sharded_rows import ShardedRows
from corpora.verify.artefact import verify
from pipelines.cards.card import summary
from pipelines.corpus.options import RelatedCorpus
from pipelines.corpus.related import plan
from pipelines.documents.inputs import Input
from pipelines.documents.job import plan as plan_documents
from pipelines.documents.options import Documents
from pipelines.engine.options import Engine
from pipelines.engine.run import run_job
from tests.artefacts import all_rows, make_documents, small_tokenizer
from tests.neighbours import make_neighbours
from tests.pipelines.corpus.parts import rows_of

SHARDS = 3
LENGTH = 256
ROWS = {"max_documents": 8}


@pytest.fixture(scope="module")
def documents(tmp_path_factory):
    """Clusters 0 .. 12 go through all shards; a few documents have none."""
    folder = str(tmp_path_factory.mktemp("documents") / "documents")
    return make_documents(folder, shards=3, documents=30, sources=("left", "right"), clusters=13)


@pytest.fixture(scope="module")
def neighbours(documents, tmp_path_factory):
    return make_neighbours(str(tmp_path_factory.mktemp("neighbours") / "neighbours"), documents)


def job(documents, output, neighbours=None, rows=None, fan_in=64, **options):
    packing = Packing(sequence_length=options.pop("sequence_length", LENGTH))
    rows = RelatedRows(**(rows or {}))
    return plan(
        RelatedCorpus(
            documents=documents,
            output=str(output),
            packing=packing,
            rows=rows,
            neighbours=neighbours,
            shards=SHARDS,
            fan_in=fan_in,
            **options,
        )
    )


def build(*arguments, workers=1, **options):
    return run_job(job(*arguments, **options), Engine(workers=workers))


@pytest.fixture(scope="module")
def reference(documents, tmp_path_factory):
    folder = str(tmp_path_factory.mktemp("reference") / "corpus")
    build(documents, folder, rows=ROWS)
    return folder


@pytest.fixture(scope="module")
def grouped(documents, neighbours, tmp_path_factory):
    folder = str(tmp_path_factory.mktemp("grouped") / "corpus")
    build(documents, folder, neighbours, rows={"max_documents": 4})
    return folder


def known_documents(documents):
    """Document id -> its row, with its number over all shards."""
    return {row["document_id"]: {**row, "number": number} for number, row in enumerate(all_rows(documents))}


@pytest.mark.parametrize("name", ["reference", "grouped"])
def test_parts_are_whole_sentences_from_the_beginning_of_their_documents(documents, name, request):
    folder = request.getfixturevalue(name)
    assert verify(folder) == []
    known = known_documents(documents)
    uses, cut = Counter(), 0
    for _, row in rows_of(folder):
        assert len(row) >= 2
        assert sum(len(part.tokens) + 1 for part in row) + 2 <= LENGTH
        for document, offset, tokens in row:
            whole = known[document]
            assert offset == 0
            assert not whole["held_out"]
            assert tokens == whole["tokens"][: len(tokens)]
            assert len(tokens) in [*whole["sentence_starts"][1:], len(whole["tokens"])]
            cut += len(tokens) < len(whole["tokens"])
            uses[document] += 1
    assert set(uses.values()) == {1}
    assert cut > 0
    manifest = read_manifest(folder)
    for source in ("left", "right"):
        count = manifest.counts[source]
        used = sum(document.startswith(source) for document in uses)
        assert count["read"] == sum(d.startswith(source) and not row["held_out"] for d, row in known.items())
        assert count["written"] == count["uses"] == used
        assert count["read"] == count["written"] + count["filtered"]


def test_a_row_holds_documents_of_its_cluster_and_a_cluster_is_complete(documents, reference):
    known = known_documents(documents)
    expected = Counter(row["cluster"] for row in known.values() if not row["held_out"])
    found = Counter()
    for cluster, row in rows_of(reference):
        assert {known[part.document]["cluster"] for part in row} == {cluster}
        found[cluster] += len(row)
    lost = sum(expected.values()) - expected[None] - sum(found.values())
    assert 0 <= lost < 10  # first sentences that do not fit, and what they leave alone
    manifest = read_manifest(reference)
    assert manifest.totals["clusters_used"] == len(found)
    assert manifest.totals["clusters_used"] + manifest.totals["clusters_left_out"] == len(expected) - 1


def test_rows_of_neighbours_are_a_seed_and_documents_of_its_list(documents, neighbours, grouped):
    known = known_documents(documents)
    lists = ShardedRows(neighbours, "farspan.neighbours")
    near, rows = {}, []
    for shard in range(len(lists.manifest.shards)):
        batches = range(lists.shard(shard)[1].num_record_batches)
        here = [row for batch in batches for row in lists.batch(shard, batch).to_pylist()]
        near |= {row["document_row"]: {here[other]["document_row"] for other in row["neighbours"]} for row in here}
    for seed, row in rows_of(grouped):
        rows.append(len(row))
        assert {known[part.document]["number"] for part in row} <= {seed} | near[seed]
    assert max(rows) == 4
    manifest = read_manifest(grouped)
    assert manifest.totals["grouped_documents"] >= manifest.totals["documents"]
    assert manifest.totals["clusters_used"] <= manifest.totals["groups"]
    assert manifest.config["neighbours"] == {"manifest_sha256": manifest_sha256(neighbours)}


def test_similarity_bounds_keep_neighbours_out(documents, neighbours, tmp_path):
    few = build(documents, tmp_path / "few", neighbours, min_similarity=0.5)
    some = build(documents, tmp_path / "some", neighbours)
    assert 0 < few.totals["grouped_documents"] < some.totals["grouped_documents"]
    none = build(documents, tmp_path / "none", neighbours, max_jaccard=0.05)  # all lists say 0.1
    assert none.totals["grouped_documents"] == none.totals["sequences"] == 0
    assert verify(str(tmp_path / "none")) == []
    assert sum(count["filtered"] for count in none.counts.values()) == sum(c["read"] for c in none.counts.values())


def test_the_given_order_is_that_of_the_documents_and_a_shuffle_is_another(documents, reference, tmp_path):
    build(documents, tmp_path / "given", rows={**ROWS, "order": "given"})
    known = known_documents(documents)

    def sorted_rows(folder):
        numbers = [[known[part.document]["number"] for part in row] for _, row in rows_of(folder)]
        return sum(row == sorted(row) for row in numbers), len(numbers)

    assert len(set(sorted_rows(tmp_path / "given"))) == 1
    ordered, rows = sorted_rows(reference)
    assert ordered < rows


def test_clusters_too_small_are_left_out_and_counted(documents, tmp_path):
    manifest = build(documents, tmp_path / "corpus", rows={"min_documents": 50, "max_documents": 60})
    assert verify(str(tmp_path / "corpus")) == []
    assert manifest.totals["sequences"] == 0
    clusters = {row["cluster"] for row in known_documents(documents).values() if not row["held_out"]}
    assert manifest.totals["clusters_left_out"] == len(clusters - {None})
    assert sum(count["filtered"] for count in manifest.counts.values()) == sum(
        count["read"] for count in manifest.counts.values()
    )
    alone = build(documents, tmp_path / "alone", rows={"min_documents": 1, "max_documents": 1})
    assert verify(str(tmp_path / "alone")) == []
    assert alone.totals["max_documents"] == 1


def test_clusters_of_a_file_of_lists_become_rows(tmp_path):
    small_tokenizer().save(str(tmp_path / "tokenizer"))
    lists = [[f"seven wizards observe {word} lights. The fox jumps." for word in "abcd"[:size]] for size in (3, 1, 4)]
    (tmp_path / "related.jsonl").write_text("".join(json.dumps({"documents": texts}) + "\n" for texts in lists))
    inputs = (Input.parse(f"related={tmp_path}/related.jsonl", ReadOptions(text_field="documents")),)
    run_job(
        plan_documents(
            Documents(inputs=inputs, output=str(tmp_path / "documents"), tokenizer=str(tmp_path / "tokenizer"))
        ),
        Engine(workers=1),
    )
    manifest = build(str(tmp_path / "documents"), tmp_path / "corpus", rows={"order": "given", "max_documents": 4})
    assert verify(str(tmp_path / "corpus")) == []
    assert sorted(len(row) for _, row in rows_of(tmp_path / "corpus")) == [3, 4]
    assert manifest.counts["related"]["read"] == 8
    assert manifest.counts["related"]["filtered"] == 1
    assert "1 of 8 documents left out (in no cluster, in a small one" in summary(manifest)


def test_documents_without_clusters_are_refused(tmp_path):
    plain = make_documents(str(tmp_path / "plain"), shards=1, documents=10)
    with pytest.raises(FarspanError, match="none of its train documents names a cluster; give --neighbours, or make"):
        job(plain, tmp_path / "corpus")
    # rows 0 and 7 are held out and in no cluster
    mixed = make_documents(str(tmp_path / "mixed"), shards=1, documents=10, held_out=7, clusters=3)
    job(mixed, tmp_path / "corpus")
    with pytest.raises(FarspanError, match="none of its held-out documents names a cluster"):
        job(mixed, tmp_path / "corpus", split="held-out")
    assert not (tmp_path / "corpus").exists()


def test_the_split_of_neighbours_is_theirs(documents, neighbours, tmp_path):
    with pytest.raises(FarspanError, match="--split held-out: the neighbours are of train documents; leave it out"):
        job(documents, tmp_path / "corpus", neighbours, split="held-out")
    given, left_out = (
        job(documents, tmp_path / "corpus", neighbours, split=split).head.config["split"] for split in ("train", None)
    )
    assert given == left_out == "train"
    assert job(documents, tmp_path / "corpus", split="held-out").head.config["split"] == "held-out"


@pytest.mark.parametrize("least", [1, 4])
def test_a_least_number_of_documents_is_met_by_every_group(documents, neighbours, tmp_path, least):
    manifest = build(documents, tmp_path / "corpus", neighbours, rows={"min_documents": least, "max_documents": 4})
    assert verify(str(tmp_path / "corpus")) == []
    totals = manifest.totals
    alone = sum(not row["held_out"] for row in known_documents(documents).values())
    if least == 1:
        assert totals["grouped_documents"] == alone
        assert totals["groups"] > totals["grouped_documents"] / 4
    else:
        assert totals["grouped_documents"] == 4 * totals["groups"] > 0
        assert totals["clusters_left_out"] < totals["groups"]  # only where first sentences do not fit


def test_what_cannot_work_is_refused_before_work_starts(run, documents, neighbours, tmp_path):
    output = tmp_path / "corpus"
    with pytest.raises(FarspanError, match="--max-documents 200: a row of 256 positions has no room"):
        job(documents, output, rows={"max_documents": 200})
    words = ("--documents", documents, "--sequence-length", LENGTH, "--shards", -1, "--output", output)
    assert "--shards -1" in run("corpus", "related", *words)[2]
    with pytest.raises(FarspanError, match=r"is 'farspan\.documents' where 'farspan\.neighbours' is needed"):
        job(documents, output, documents)
    with pytest.raises(FarspanError, match=r"is 'farspan\.neighbours' where 'farspan\.documents' is needed"):
        job(neighbours, output)
    other = make_documents(str(tmp_path / "other"), shards=1, seed=1)
    with pytest.raises(FarspanError, match="are those of other documents"):
        job(other, output, neighbours)
    kept = make_documents(str(tmp_path / "kept"), shards=1, documents=1, held_out=1)
    with pytest.raises(FarspanError, match="no train documents"):
        job(kept, output)
    with pytest.raises(FarspanError, match="--min-similarity nan"):
        job(documents, output, neighbours, min_similarity=float("nan"))
    with pytest.raises(FarspanError, match=r"--min-similarity 0\.5: applies to neighbours only; give --neighbours"):
        job(documents, output, min_similarity=0.5)
    with pytest.raises(FarspanError, match=r"--max-jaccard 0\.5: applies to neighbours only; give --neighbours"):
        job(documents, output, max_jaccard=0.5)
    assert not output.exists()
