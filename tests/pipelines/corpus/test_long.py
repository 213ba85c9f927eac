"""Mixtures of sources: shares to the token, text to the token, whatever runs the job."""

import itertools
import json
import os
from fractions import Fraction

import numpy as np
import pytest

from corpora.errors import FarspanError
from corpora.storage.manifest_file import read_manifest
from corpora.verify.artefact import verify
from pipelines.cards.card import summary
from pipelines.corpus.long import plan, plan_documents
from pipelines.corpus.options import LongCorpus
from pipelines.engine.options import Engine
from pipelines.engine.run import run_job
from tests.artefacts import all_rows, make_documents, small_tokenizer, write_mixture_file
from tests.pipelines.corpus.parts import rows_of

SHARDS = 3
SOURCES = ("books", "news", "talk")
EPOCHS = {"books": Fraction(5, 2), "news": Fraction(1), "talk": Fraction(1, 3)}


@pytest.fixture(scope="module")
def documents(tmp_path_factory):
    folder = str(tmp_path_factory.mktemp("documents") / "documents")
    return make_documents(folder, shards=4, documents=45, sources=SOURCES, max_tokens=700)


def shares_of(documents):
    """Weights and caps whose mixture is EPOCHS of each source, as lines of a recipe."""
    counts = read_manifest(documents).counts
    kept = {name: counts[name]["tokens"] - counts[name]["held_out_tokens"] for name in SOURCES}
    tokens = {name: float(EPOCHS[name] * kept[name]) for name in SOURCES}
    total = sum(tokens.values())
    return {name: f"weight = {tokens[name] / total!r}\nepochs = 2.5" for name in SOURCES}


def job(recipe, output, **options):
    return plan(LongCorpus(recipe=recipe, output=str(output), shards=SHARDS, **options))


def build(recipe, output, engine=Engine(workers=1), **options):  # noqa: B008 (frozen)
    return run_job(job(recipe, output, **options), engine)


@pytest.fixture(scope="module")
def recipe(documents, tmp_path_factory):
    return write_mixture_file(tmp_path_factory.mktemp("recipe"), documents, **shares_of(documents))


@pytest.fixture(scope="module")
def reference(recipe, tmp_path_factory):
    folder = str(tmp_path_factory.mktemp("reference") / "corpus")
    build(recipe, folder)
    return folder


def texts(documents, held_out=False):
    """Document id -> tokens."""
    return {row["document_id"]: row["tokens"] for row in all_rows(documents) if row["held_out"] == held_out}


def times_read(folder, documents):
    """Document id -> how often each of its tokens lies in the corpus; every part holds the document's own tokens."""
    known = texts(documents)
    times = {}
    for _, row in rows_of(folder):
        for name, offset, tokens in row:
            assert known[name][offset : offset + len(tokens)] == tokens
            times.setdefault(name, np.zeros(len(known[name]), int))[offset : offset + len(tokens)] += 1
    return times


def test_every_token_is_read_once_a_pass_and_the_last_pass_reads_beginnings(documents, reference):
    assert verify(reference) == []
    times = times_read(reference, documents)
    shares = read_manifest(reference).config["mixture"]["sources"]
    for source in SOURCES:
        known = {name: tokens for name, tokens in texts(documents).items() if name.startswith(source)}
        whole = shares[source]["tokens"] // shares[source]["available"]
        partly = 0
        for name, tokens in known.items():
            more = times.get(name, np.zeros(len(tokens), int)) - whole
            assert set(more) <= {0, 1}
            assert (np.diff(more) <= 0).all()
            partly += 0 < more.sum() < len(tokens)
        assert partly <= SHARDS


def test_proportions_are_the_ones_asked_for_within_one_sequence_a_source_and_shard(documents, reference):
    manifest = read_manifest(reference)
    asked = manifest.config["mixture"]["sources"]
    for source in SOURCES:
        share, count = asked[source], manifest.counts[source]
        assert share["tokens"] - SHARDS <= count["tokens"] <= share["tokens"]
        assert share["epochs"] == pytest.approx(float(EPOCHS[source]), rel=1e-3)
        shared = sum(manifest.counts[name]["tokens"] for name in SOURCES)
        assert count["tokens"] / shared == pytest.approx(share["weight"], abs=SHARDS * 256 / shared)
    assert manifest.config["mixture"]["reason"] is None
    assert manifest.totals["tokens"] == sum(count["tokens"] for count in manifest.counts.values())


def test_documents_and_their_uses_are_counted(documents, reference):
    manifest = read_manifest(reference)
    times = times_read(reference, documents)
    for source in SOURCES:
        known = [name for name in texts(documents) if name.startswith(source)]
        count = manifest.counts[source]
        assert count["read"] == len(known) == count["written"] + count["filtered"]
        assert count["written"] == sum(name in times for name in known)
        assert count["uses"] == sum(int(times[name][0]) for name in known if name in times)
    assert manifest.counts["books"]["filtered"] == 0
    assert manifest.counts["talk"]["filtered"] > 0


def test_rows_hold_one_source_and_no_text_twice(reference):
    sources_seen = set()
    for _, row in rows_of(reference):
        names = [name for name, _, _ in row]
        assert len(set(names)) == len(names)
        assert len({name.split(":")[0] for name in names}) == 1
        sources_seen.add(names[0].split(":")[0])
        if len(row) > 1:
            assert all(len(tokens) < 253 for _, _, tokens in row)
    assert sources_seen == set(SOURCES)


def test_rows_stand_in_no_order_of_sources(reference):
    heads = [row[0].document.split(":")[0] for _, row in rows_of(reference)]
    changes = sum(a != b for a, b in itertools.pairwise(heads))
    assert changes > len(heads) / 4


def test_short_documents_across_sources(documents, tmp_path):
    recipe = write_mixture_file(tmp_path, documents, 'short_documents = "across"', **shares_of(documents))
    manifest = build(recipe, tmp_path / "corpus")
    assert verify(str(tmp_path / "corpus")) == []
    mixed = [row for _, row in rows_of(str(tmp_path / "corpus")) if len({name.split(":")[0] for name, _, _ in row}) > 1]
    assert mixed
    within = read_manifest(str(tmp_path / "corpus")).totals["padding"]
    assert manifest.totals["padding"] == within


def test_a_stride_makes_windows_overlap(documents, tmp_path):
    recipe = write_mixture_file(tmp_path, documents, "stride = 100\ntemperature = 1", books="", talk="")
    manifest = build(recipe, tmp_path / "corpus")
    assert verify(str(tmp_path / "corpus")) == []
    assert set(manifest.counts) == {"books", "talk"}
    assert manifest.counts["books"]["uses"] == manifest.counts["books"]["written"] == manifest.counts["books"]["read"]
    times = times_read(str(tmp_path / "corpus"), documents)
    assert set(times) == {name for name in texts(documents) if not name.startswith("news")}
    assert all((seen >= 1).all() for seen in times.values())
    assert all((seen == 1).all() for seen in times.values() if len(seen) <= 253)
    longest = max(times.values(), key=len)
    assert longest[:100].tolist() == [1] * 100
    assert longest[100] == 2
    assert longest.max() == 3  # 253 tokens a window, 100 from window to window


def test_proportions_are_those_of_what_overlapping_windows_write(tmp_path):
    """Of long documents windows write more than twice their tokens, of short ones hardly more than these."""
    small_tokenizer().save(str(tmp_path / "tokenizer"))
    tables = {}
    for name, count, sentences, line in (("long", 30, 60, "weight = 0.7"), ("short", 300, 6, "weight = 0.3")):
        texts = ["the quick brown fox jumps over lazy dogs. " * (1 + number % sentences) for number in range(count)]
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
        tables[name] = f'input = "{tmp_path}/{name}.jsonl"\n{line}'
    head = f'tokenizer = "{tmp_path}/tokenizer"\nstride = 20'
    recipe = write_mixture_file(tmp_path, None, head, sequence_length=64, **tables)
    read = run_job(plan_documents(LongCorpus(recipe=recipe, output=str(tmp_path / "corpus"))), Engine(workers=1)).counts
    manifest = build(recipe, tmp_path / "corpus")
    assert verify(str(tmp_path / "corpus")) == []
    mixture = manifest.config["mixture"]
    assert mixture["reason"] is None
    assert mixture["sources"]["long"]["available"] > 2 * read["long"]["tokens"]
    assert mixture["sources"]["short"]["available"] < 1.2 * read["short"]["tokens"]
    for source, weight in (("long", 0.7), ("short", 0.3)):
        share, written = mixture["sources"][source]["tokens"], manifest.counts[source]["tokens"]
        assert 0 <= share - written <= SHARDS * 61
        assert written == pytest.approx(weight * manifest.totals["tokens"], abs=SHARDS * 61)


def test_held_out_documents_have_shares_of_their_own(documents, recipe, tmp_path):
    manifest = build(recipe, tmp_path / "corpus", split="held-out")
    assert verify(str(tmp_path / "corpus")) == []
    names = {name for _, row in rows_of(str(tmp_path / "corpus")) for name, _, _ in row}
    assert names <= set(texts(documents, held_out=True))
    available = read_manifest(documents).counts["books"]["held_out_tokens"]
    assert manifest.config["mixture"]["sources"]["books"]["available"] == available


def test_a_budget_beyond_the_caps_is_explained(documents, tmp_path):
    head = "tokens = 10_000_000\ntemperature = inf"
    recipe = write_mixture_file(tmp_path, documents, head, books="", news="epochs = 3")
    manifest = build(recipe, tmp_path / "corpus")
    mixture = manifest.config["mixture"]
    assert mixture["temperature"] == "inf"
    assert mixture["reason"] in summary(manifest)
    assert "documents left out (beyond their source's share)" in summary(manifest)
    assert "of 10,000,000 tokens: 'books' (weight 0.5) has been read 1 times by then, its cap" in mixture["reason"]
    assert mixture["sources"]["books"]["epochs"] == 1
    assert mixture["sources"]["news"]["tokens"] == mixture["sources"]["books"]["tokens"]


def test_best_fit_keeps_the_shares_and_cuts_no_piece_that_fits(documents, reference, tmp_path):
    recipe = write_mixture_file(tmp_path, documents, 'packing = "best-fit"', **shares_of(documents))
    manifest = build(recipe, tmp_path / "best")
    assert verify(str(tmp_path / "best")) == []
    assert manifest.config["packing"] == "best-fit"
    assert manifest.totals["tokens"] == read_manifest(reference).totals["tokens"]
    for _, row in rows_of(str(tmp_path / "best")):
        assert all(offset % 253 == 0 for _, offset, _ in row)
        assert len({name for name, _, _ in row}) == len(row)


def test_short_documents_are_kept_with_their_probability_and_shares_stay_those_of_all_documents(documents, tmp_path):
    limits = {"books": "min_tokens = 350\nkeep_probability = 0.25", "news": "min_tokens = 350", "talk": ""}
    manifest = build(write_mixture_file(tmp_path, documents, **limits), tmp_path / "long")
    assert verify(str(tmp_path / "long")) == []
    counts = read_manifest(documents).counts
    sizes = {name: counts[name]["tokens"] - counts[name]["held_out_tokens"] for name in SOURCES}
    written = sum(manifest.counts[name]["tokens"] for name in SOURCES)
    for name in SOURCES:
        share = manifest.counts[name]["tokens"] / written
        assert share == pytest.approx(sizes[name] / sum(sizes.values()), abs=1e-3)
    lengths = {name: len(tokens) for name, tokens in texts(documents).items()}
    used = {name for _, row in rows_of(str(tmp_path / "long")) for name, _, _ in row}
    assert all(lengths[name] >= 350 for name in used if name.startswith("news"))
    short = {name for name, length in lengths.items() if name.startswith("books") and length < 350}
    assert 0 < len(short & used) < len(short) / 2


def test_no_documents_job_for_documents_that_are_there(recipe, tmp_path):
    assert plan_documents(LongCorpus(recipe=recipe, output=str(tmp_path / "corpus"))) is None


@pytest.mark.parametrize(
    ("text", "sources", "message"),
    [
        ("strid = 3", {"books": ""}, r"no key 'strid' \(did you mean 'stride'\?\)"),
        ("", {"books": "wieght = 1"}, r"\[sources\.books\] has no key 'wieght' \(did you mean 'weight'\?\)"),
        ("", {}, "sources"),
        ("", {"boks": ""}, r"\[sources\.boks\]: .* has no such source \(did you mean 'books'\?\); it has books, news"),
        ("", {"books": "weight = 0.7", "news": "weight = 0.7"}, r"sum to 1\.4.*books = 0\.5, news = 0\.5"),
        ("", {"books": "weight = 0.7", "news": ""}, "'news' has no weight"),
        ("", {"books": "epochs = -1"}, r"'books': epochs -1\.0"),
        ("tokens = 0", {"books": ""}, "tokens 0: give a positive budget"),
        ('tokens = "all"', {"books": ""}, "tokens is 'all'; a value of type int"),
        ('on_cap = "wait"', {"books": ""}, "on_cap is 'wait'; choose one of 'stop', 'redistribute'"),
        ('short_documents = "apart"', {"books": ""}, "short_documents is 'apart'"),
        ("stride = 254", {"books": ""}, r"stride 254: give 0 \(no overlap\) or up to 253"),
        ("room_per_sequence = 255", {"books": ""}, "sequence_length 256 leaves no room"),
        ("", {"books": 'preprocess = ["polish"]'}, r"\[sources\.books\]: --preprocess polish: unknown"),
        ("", {"books": 'format = "novel"'}, r"\[sources\.books\]: --format novel: unknown"),
        ("", {"books": 'input = "no/such/file"'}, "sources have inputs.*add tokenizer"),
        ('tokenizer = "t"', {"books": 'input = "no/such/file"'}, r"books=no/such/file: matches no file"),
        ('tokenizer = "t"', {"books": 'input = "x"', "news": ""}, r"\[sources\.news\] has no input, others have"),
        ("= 3", {"books": ""}, "not TOML"),
        ('tokenizer = "t"', {"books": ""}, "tokenizer has no effect with documents and no input; drop it"),
        ('sentences = "spacy"', {"books": ""}, "sentences has no effect"),
        ("held_out = 0.1", {"books": ""}, "held_out has no effect"),
        ("", {"books": "min_tokens = 9\nkeep_probability = 1.5"}, "keep_probability"),
        ("", {"books": "keep_probability = 0.5"}, "keep_probability 0.5 has no effect without min_tokens"),
        ("", {"books": "min_tokens = 70_000"}, "none of its .* tokens is in a document of min_tokens 70,000"),
        *(
            ("", {"books": "", "news": line}, rf"\[sources\.news\] {line.split()[0]} has no effect with documents")
            for line in (
                *("min_characters = 5", 'preprocess = ["squeeze-blank"]'),
                *('format = "text"', 'text_field = "body"', 'id_field = "id"'),
            )
        ),
    ],
)
def test_bad_recipes_are_refused_before_work_starts(documents, tmp_path, text, sources, message):
    recipe = write_mixture_file(tmp_path, documents, text, **sources)
    with pytest.raises(FarspanError, match=message) as refused:
        build(recipe, tmp_path / "corpus")
    assert str(refused.value).startswith(recipe)
    assert not os.path.exists(tmp_path / "corpus")


def test_what_else_cannot_work_is_refused(documents, tmp_path):
    with pytest.raises(FarspanError, match=r"mixture\.toml: No such file"):
        build(str(tmp_path / "mixture.toml"), tmp_path / "corpus")
    with pytest.raises(FarspanError, match="neither documents nor inputs"):
        build(write_mixture_file(tmp_path, None, books=""), tmp_path / "corpus")
    kept = make_documents(str(tmp_path / "kept"), shards=1, documents=10, held_out=20, sources=("books", "news"))
    with pytest.raises(FarspanError, match="no held-out document of it"):
        build(write_mixture_file(tmp_path, kept, news=""), tmp_path / "corpus", split="held-out")


def test_bands_of_lengths_of_one_source_have_shares_of_their_own(documents, tmp_path):
    """As ProLong's mixture: long documents of a source more often than its short ones."""
    sources = {
        "books_long": 'source = "books"\nmin_tokens = 350\nweight = 0.5\nepochs = 3',
        "books_short": 'source = "books"\nmax_tokens = 349\nweight = 0.25',
        "news": "weight = 0.25",
    }
    manifest = build(write_mixture_file(tmp_path, documents, **sources), tmp_path / "long")
    assert verify(str(tmp_path / "long")) == []
    lengths = {name: len(tokens) for name, tokens in texts(documents).items()}
    tokens = dict.fromkeys(sources, 0)
    for row in all_rows(str(tmp_path / "long"), "farspan.corpus"):
        for name, size in zip(row["document_ids"], np.diff([*row["document_starts"], len(row["tokens"])]), strict=True):
            table = "news" if name.startswith("news") else f"books_{'long' if lengths[name] >= 350 else 'short'}"
            tokens[table] += int(size)
    for name, share in manifest.config["mixture"]["sources"].items():
        assert tokens[name] == pytest.approx(share["tokens"], abs=SHARDS * 256)
        assert tokens[name] / sum(tokens.values()) == pytest.approx(share["weight"], abs=0.02)
