"""A vector for every document of the split, the same bytes whatever runs the job and however often it is killed."""

import json
import os
import shutil
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from transformers import BertModel

from corpora.errors import FarspanError
from corpora.schemas.documents import HeldOut, tokenize_documents
from corpora.schemas.vectors import vector_rows
from corpora.storage.manifest_file import read_manifest
from corpora.storage.ragged import Ragged
from corpora.storage.sharded_rows import ShardedRows
from corpora.storage.shards import read_shard
from corpora.text.sentences import load_splitter
from corpora.text.word_ngrams import ngram_hashes, sketch
from pipelines.engine.options import Engine
from pipelines.engine.run import run_job
from pipelines.retrieval.embed import condense, plan
from pipelines.retrieval.encoder import load_encoder
from pipelines.retrieval.options import Embed, EncoderOptions
from tests.artefacts import digests, finish_artefact, make_documents, small_tokenizer, write_part
from tests.tiny_encoder import WORDS, make_encoder, mini_lm_folder
from trainer.scorer.encoder import find_encoder


def documents_of(texts, folder, source="test", held_out=0.0):
    """A documents artefact in one shard, with the sentences that the default splitter finds."""
    tokenizer = small_tokenizer()
    ids = [f"{source}:{row}" for row in range(len(texts))]
    batch = tokenize_documents(ids, texts, source, tokenizer, load_splitter("nupunkt"), HeldOut(held_out, 0))
    lengths = Ragged.from_arrow(batch.column("tokens")).lengths
    held = batch.column("held_out").to_numpy(zero_copy_only=False)
    totals = {
        "documents": len(texts),
        "held_out_documents": int(held.sum()),
        "tokens": int(lengths.sum()),
        "held_out_tokens": int(lengths[held].sum()),
        "max_tokens": int(lengths.max(initial=0)),
    }
    return finish_artefact(folder, "farspan.documents", {}, [write_part(folder, 0, 1, batch, totals)])


BLOCK = 16  # the documents' rows per batch


@pytest.fixture(scope="module")
def documents(tmp_path_factory):
    return make_documents(str(tmp_path_factory.mktemp("documents") / "documents"), shards=2)


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    return make_encoder(str(tmp_path_factory.mktemp("encoder") / "tiny"), positions=32)


def job(documents, output, encoder, normalize=False, max_length=512, block=BLOCK, **options):
    choice = EncoderOptions(name=encoder, normalize=normalize, max_length=max_length)
    return plan(Embed(documents=documents, output=str(output), encoder=choice, block=block, **options))


def build(documents, output, encoder, engine=Engine(workers=1), **options):  # noqa: B008 (frozen)
    return run_job(job(documents, output, encoder, **options), engine)


def test_a_job_has_one_worker_a_device(documents, encoder, tmp_path, monkeypatch):
    assert job(documents, tmp_path, encoder).workers is None
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 8)
    assert job(documents, tmp_path, encoder).workers == 8


@pytest.fixture(scope="module")
def reference(documents, encoder, tmp_path_factory):
    folder = str(tmp_path_factory.mktemp("reference") / "vectors")
    build(documents, folder, encoder)
    return folder


def rows(folder, format):
    artefact = ShardedRows(str(folder), format)
    for shard in range(len(artefact.manifest.shards)):
        yield from list(read_shard(artefact.path(shard)))


def test_rows_are_the_split_s_documents_in_order(documents, reference):
    expected = [
        (row["document_id"], number, len(row["tokens"]))
        for number, row in enumerate(row for batch in rows(documents, "farspan.documents") for row in batch.to_pylist())
        if not row["held_out"]
    ]
    found = [
        tuple(row[name] for name in ("document_id", "document_row", "document_tokens"))
        for batch in rows(reference, "farspan.vectors")
        for row in batch.select(["document_id", "document_row", "document_tokens"]).to_pylist()
    ]
    assert found == expected
    manifest = read_manifest(reference)
    assert len(manifest.shards) == 2 * 3  # 40 rows in blocks of 16
    assert manifest.totals["documents"] == len(expected)
    assert manifest.totals["tokens"] == sum(tokens for *_, tokens in expected)
    count = manifest.counts["made"]
    assert (count["read"], count["written"], count["filtered"]) == (len(expected), len(expected), 0)
    assert count["tokens"] == manifest.totals["tokens"]


def test_vectors_and_sketches_are_those_of_the_texts(documents, encoder, reference):
    model, tokenizer = load_encoder(EncoderOptions(name=encoder)), small_tokenizer()
    texts, starts = [], []
    for batch in rows(documents, "farspan.documents"):
        for row in batch.filter(pa.compute.invert(batch.column("held_out"))).to_pylist():
            text, characters = tokenizer.decode_with_offsets(row["tokens"])
            texts.append(text)
            starts.append(characters[row["sentence_starts"]])
    batches = list(rows(reference, "farspan.vectors"))
    vectors = np.concatenate([vector_rows(batch.column("vector")) for batch in batches])
    shown, longer = condense(
        texts, Ragged.from_rows(starts, np.int64), model.tokenizer, model.max_text_tokens, "principal"
    )
    expected = model.encode_ids(shown)
    np.testing.assert_allclose(vectors, expected, atol=2e-3 * np.abs(expected).max())
    sketches = [sketch for batch in batches for sketch in batch.column("shingles").to_pylist()]
    expected_sketches = sketch(ngram_hashes(texts))
    assert sketches == [expected_sketches[row].tolist() for row in range(len(texts))]
    totals = read_manifest(reference).totals
    assert totals["long_documents"] == longer.sum() > 10
    assert totals["encoder_tokens"] == shown.lengths.sum()


def test_the_manifest_tells_how_the_vectors_were_made(encoder, reference):
    config = dict(read_manifest(reference).config)
    assert config["fingerprint"] == find_encoder(encoder).fingerprint
    del config["fingerprint"]
    assert config == {
        "builder": "embed",
        "name": "tiny",
        "dimension": 32,
        "pooling": "mean",
        "normalize": False,
        "max_length": 32,
        "precision": "float32",
        "threads": 1,
        "long_documents": "principal",
        "split": "train",
        "min_document_tokens": 1,
        "block": BLOCK,
        "compression": None,
    }


def test_numbers_of_equal_effect_are_one_job(documents, encoder, reference):
    for block, length in ((1, 32), (BLOCK - 1, 512), (BLOCK, 33)):
        build(documents, reference, encoder, max_length=length, block=block)  # finished
    with pytest.raises(FarspanError, match=r"config\.block was 16, is 32; config\.max_length was 32, is 31"):
        build(documents, reference, encoder, max_length=31, block=BLOCK + 1)


def test_short_documents_are_left_out_and_counted(documents, encoder, tmp_path):
    manifest = build(documents, tmp_path / "long", encoder, min_document_tokens=60)
    count = manifest.counts["made"]
    assert count["filtered"] > 5
    assert count["read"] == count["written"] + count["filtered"]
    lengths = [n for batch in rows(tmp_path / "long", "farspan.vectors") for n in batch.column(2).to_pylist()]
    assert len(lengths) == count["written"] == manifest.totals["documents"]
    assert min(lengths) >= 60


def test_a_document_may_be_longer_than_what_is_decoded_at_once(documents, encoder, reference, tmp_path, monkeypatch):
    monkeypatch.setattr("pipelines.retrieval.embed._CHUNK_TOKENS", 50)
    build(documents, tmp_path / "chunks", encoder)
    assert digests(tmp_path / "chunks") == digests(reference)


def test_what_the_encoder_sees_of_a_long_document(encoder, tmp_path):
    text = (
        "Some wizard. " + "Night and night and then some night. " * 2 + "The quick brown fox jumps over the dog. " * 6
    )
    documents = documents_of([text, "The fox."], str(tmp_path / "documents"))
    model = load_encoder(EncoderOptions(name=encoder))
    seen = {}
    for policy in ("principal", "first"):
        manifest = build(documents, tmp_path / policy, encoder, long_documents=policy)
        assert manifest.totals["long_documents"] == 1
        (batch,) = rows(tmp_path / policy, "farspan.vectors")
        seen[policy] = vector_rows(batch.column("vector")).astype(np.float32)
    beginning = model.tokenizer.encode([text])[0][: model.max_text_tokens]
    expected = model.encode_ids(Ragged.from_rows([beginning], np.int32))[0]
    np.testing.assert_allclose(seen["first"][0], expected, atol=1e-3)
    foxes = model.encode(["The quick brown fox jumps over the dog. " * 3])[0]
    np.testing.assert_allclose(seen["principal"][0], foxes, atol=1e-3)
    assert np.abs(seen["first"][0] - foxes).max() > 1e-2
    np.testing.assert_array_equal(seen["first"][1], seen["principal"][1])


def test_an_encoder_that_changes_under_the_job(documents, encoder, tmp_path):
    mine = shutil.copytree(encoder, str(tmp_path / "mine"))
    started = job(documents, tmp_path / "vectors", mine)
    make_encoder(mine, positions=32, seed=1)
    with pytest.raises(FarspanError, match="its files are not those that the job was started with"):
        run_job(started, Engine(workers=1))


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (
            float("nan"),
            r"document 'made:0:1': encoder bad gave a vector with nan, which is not finite; use --precision",
        ),
        (1e6, r"document 'made:0:1': encoder bad gave a vector with \S+, which is beyond float16.*--normalize"),
    ],
)
def test_vectors_that_are_no_numbers_or_too_large(documents, encoder, tmp_path, value, message):
    bad = shutil.copytree(encoder, str(tmp_path / "bad"))
    model: Any = BertModel.from_pretrained(bad)
    model.encoder.layer[-1].output.LayerNorm.bias.data.fill_(value)
    model.save_pretrained(bad)
    with pytest.raises(FarspanError, match=message):
        build(documents, tmp_path / "vectors", bad)
    if value == 1e6:
        build(documents, tmp_path / "unit", bad, normalize=True)
        for batch in rows(tmp_path / "unit", "farspan.vectors"):
            lengths = np.linalg.norm(vector_rows(batch.column("vector")).astype(np.float64), axis=1)
            np.testing.assert_allclose(lengths, 1, atol=2e-3)


def test_texts_without_any_word_have_vectors(encoder, tmp_path):
    texts = ["日本語。" * 40, "   ", "\ufffd", "!!!"]
    manifest = build(documents_of(texts, str(tmp_path / "documents")), tmp_path / "vectors", encoder)
    assert manifest.totals["documents"] == 4
    (batch,) = rows(tmp_path / "vectors", "farspan.vectors")
    assert np.isfinite(vector_rows(batch.column("vector"))).all()


def test_what_cannot_work_is_refused_before_work_starts(documents, encoder, tmp_path):
    output = str(tmp_path / "vectors")

    def refused(message, documents=documents, encoder=encoder, **options):
        with pytest.raises(FarspanError, match=message):
            job(documents, output, encoder, **options)
        assert not os.path.exists(output)

    refused("no farspan artefact", documents=str(tmp_path))
    refused("holds no document", documents=documents_of([], str(tmp_path / "none")))
    refused("no train documents", documents=documents_of(WORDS, str(tmp_path / "all held out"), held_out=0.999999))
    refused("no held-out documents", documents=documents_of(WORDS, str(tmp_path / "all train")), split="held-out")
    refused("the longest document of .* has 1", min_document_tokens=10_000)
    refused("--max-length 2: the 2 special tokens of encoder tiny .* give at least 3", max_length=2)
    refused("no such folder", encoder=str(tmp_path / "nothing"))
    refused("has no config.json", encoder=documents)


def test_a_corpus_tokenizer_that_cannot_decode(documents, encoder, tmp_path):
    broken = shutil.copytree(documents, str(tmp_path / "broken"))
    path = os.path.join(broken, "tokenizer", "tokenizer.json")
    with open(path) as file:
        settings = json.load(file)
    with open(path, "w") as file:
        json.dump(settings | {"decoder": {"type": "BPEDecoder", "suffix": "</w>"}}, file)
    with pytest.raises(FarspanError, match="decoder 'BPEDecoder' is not supported"):
        job(broken, tmp_path / "vectors", encoder)


def test_the_real_encoder_brings_like_documents_together(tmp_path):
    topics = {
        "music": ["Bach wrote many fugues for the organ.", "The composer's fugues are played on the organ in church."],
        "space": ["The probe orbits Saturn and its rings.", "Saturn's rings were photographed by a space probe."],
        "food": ["Bread is baked from flour and yeast.", "The baker kneads flour, water and yeast into bread."],
    }
    documents = documents_of([text for pair in topics.values() for text in pair], str(tmp_path / "documents"))
    build(documents, tmp_path / "vectors", mini_lm_folder(), normalize=True)
    (batch,) = rows(tmp_path / "vectors", "farspan.vectors")
    vectors = vector_rows(batch.column("vector")).astype(np.float32)
    similar = vectors @ vectors.T - 2 * np.eye(6)
    assert similar.argmax(axis=1).tolist() == [1, 0, 3, 2, 5, 4]
