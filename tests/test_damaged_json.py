"""Manifests, receipts, records of runs, tokenizers and models changed at random: one line each, and never a traceback.

What is no longer sound is refused by whatever opens it. What stays readable gives every row without a crash.
"""

import json
import random
import shutil
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from corpora.errors import FarspanError
from corpora.packing.options import Packing
from corpora.schemas.corpus import Corpus
from corpora.schemas.pairs import PairSet
from corpora.storage.manifest_file import find_parent, read_manifest
from corpora.storage.sharded_rows import ShardedRows
from corpora.storage.strict_json import seal, unseal
from corpora.tokenizers.load import load_tokenizer
from objectives.api.mask_set import MaskSet
from pipelines.cards.card import summary
from pipelines.corpus import random as random_corpus
from pipelines.corpus.options import RandomCorpus
from pipelines.engine.folder import finalize
from pipelines.engine.options import Engine
from pipelines.engine.run import run_job
from pipelines.inspect.distributions import distributions
from pipelines.inspect.stats import statistics
from pipelines.inspect.verify import verify
from pipelines.masks import job as masks
from pipelines.masks.options import Masking
from pipelines.retrieval import cluster, neighbours
from pipelines.retrieval.options import Clustering, NeighbourSearch
from tests.artefacts import make_corpus, make_documents, make_pairs
from tests.fuzzing import damaged
from tests.neighbours import make_neighbours
from tests.pipelines.engine.test_run import finished, job
from tests.trainer.conversion.models import tiny_model, tokenizer_files
from tests.vectors import make_vectors
from trainer.checkpoint.files import find_fault
from trainer.checkpoint.run_files import read_record
from trainer.checkpoint.selection import Selection
from trainer.checkpoint.trained_model import find_trained
from trainer.conversion.convert import convert
from trainer.conversion.hugging_face import write_hugging_face
from trainer.conversion.model_folder import read_model_folder, write_model_folder
from trainer.options import Conversion

FAST, SLOW = 12, 1000  # changes of each file


def _open_documents(folder: str) -> None:
    verify(folder)
    random_corpus.plan(RandomCorpus(documents=folder, output=f"{folder}.corpus", packing=Packing(sequence_length=64)))
    statistics(folder, [])
    summary(read_manifest(folder))


def _open_corpus(folder: str) -> None:
    verify(folder)
    masks.plan(Masking(corpus=folder, output=f"{folder}.masks", objective="span"))
    statistics(folder, [])
    corpus = Corpus(folder, verify=True)
    corpus.check_files()
    if len(corpus):
        corpus.take(np.unique(np.array([0, len(corpus) // 2, len(corpus) - 1])))


def _open_masks(folder: str) -> None:
    verify(folder)
    masks = MaskSet(folder, verify=True)
    masks.check_files()
    corpus = Corpus(masks.parent_folder)
    masks.check_parent(corpus)
    rows = np.arange(min(len(corpus), 4))
    if len(rows):
        masks.objective.render(corpus.take(rows), masks.masks(corpus.take(rows), rows), masks.special_tokens)


def _open_vectors(folder: str) -> None:
    verify(folder)
    cluster.plan(Clustering(vectors=folder, output=f"{folder}.clusters"))


def _open_clusters(folder: str) -> None:
    verify(folder)
    neighbours.plan(NeighbourSearch(clusters=folder, output=f"{folder}.neighbours"))


def _open_neighbours(folder: str) -> None:
    verify(folder)
    list(ShardedRows(folder, "farspan.neighbours", verify=True).batches())


def _open_pairs(folder: str) -> None:
    verify(folder)
    statistics(folder, list(distributions(folder)))
    summary(read_manifest(folder))
    pairs = PairSet(folder, verify=True)
    if len(pairs):
        pairs.take([0, len(pairs) - 1])


def _open_checkpoint(folder: str) -> None:
    find_fault(Path(folder))
    find_trained(Path(folder)).weights()


def _resume(folder: str) -> None:
    run_job(job(Path(folder), "one"), Engine(workers=1))


def _convert(folder: str) -> None:
    output = Path(f"{folder}.converted")
    try:
        convert(Path(folder), output, Conversion())
        read_model_folder(output)
    finally:
        shutil.rmtree(output, ignore_errors=True)


def _export(folder: str) -> None:
    output = Path(f"{folder}.exported")
    try:
        convert(Path(folder), output, Conversion(to="huggingface"))
    finally:
        shutil.rmtree(output, ignore_errors=True)


# what is damaged -> what reads it, or fails in one line
OPENERS: dict[str, Callable[[str], object]] = {
    "documents/manifest.json": _open_documents,
    "corpus/manifest.json": _open_corpus,
    "masks/manifest.json": _open_masks,
    "vectors/manifest.json": _open_vectors,
    "clusters/manifest.json": _open_clusters,
    "neighbours/manifest.json": _open_neighbours,
    "pairs/manifest.json": _open_pairs,
    "job/_work/job.json": finalize,
    "job/_work/one.json": finalize,
    "resumed/_work/job.json": _resume,
    "resumed/_work/one.json": _resume,
    "run/run.json": lambda folder: read_record(Path(folder)),
    "run/step-00000007/checkpoint.json": _open_checkpoint,
    "model/manifest.json": lambda folder: read_model_folder(Path(folder)),
    "tokenizer/tokenizer.json": load_tokenizer,
    "tokenizer/special_tokens_map.json": load_tokenizer,
    "bart/config.json": _convert,
    "bart/generation_config.json": _convert,
    "bart/tokenizer.json": _export,
    "bart/tokenizer_config.json": _export,
    "led/config.json": _convert,
    "longt5/config.json": _convert,
    "pegasus_x/config.json": _convert,
    "longformer/config.json": _convert,
}


SEALED = [name for name in OPENERS if name.startswith(("job/", "resumed/")) or name.endswith("s/manifest.json")]
SEALED = [*SEALED, "corpus/manifest.json"]


def _sealed(data: bytes) -> bytes:
    """The bytes with a checksum, if they are those of an object that can have one."""
    try:
        return seal(json.loads(data))
    except (TypeError, ValueError, RecursionError):
        return data


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    at = tmp_path_factory.mktemp("sound")
    make_documents(f"{at}/documents", shards=2)
    make_corpus(f"{at}/corpus")
    run_job(masks.plan(Masking(corpus=f"{at}/corpus", output=f"{at}/masks", objective="span")), Engine(workers=1))
    make_vectors(f"{at}/vectors", f"{at}/documents")
    run_job(cluster.plan(Clustering(vectors=f"{at}/vectors", output=f"{at}/clusters")), Engine(workers=1))
    make_neighbours(f"{at}/neighbours", f"{at}/documents")
    make_pairs(f"{at}/pairs", f"{at}/documents", pairs=6)
    finished(at / "job")
    finished(at / "resumed")
    _make_hugging_face(at)
    shutil.copytree(at / "corpus" / "tokenizer", at / "tokenizer")
    _make_run(at)
    return at


def _make_hugging_face(at: Path) -> None:
    """Models of five families, each with a tokenizer."""
    import transformers

    write_hugging_face(replace(tiny_model(), tokenizer=tokenizer_files()), at / "bart")
    ids: dict[str, Any] = {"pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2, "decoder_start_token_id": 2}
    common: dict[str, Any] = {"vocab_size": 24, "d_model": 16, **ids}
    parts = {"layers": 1, "attention_heads": 2, "ffn_dim": 24}
    bart = {**common, **{f"{side}_{part}": size for side in ("encoder", "decoder") for part, size in parts.items()}}
    positions: dict[str, Any] = {"max_encoder_position_embeddings": 32, "max_decoder_position_embeddings": 16}
    models = {
        "led": transformers.LEDForConditionalGeneration(
            transformers.LEDConfig(**bart, **positions, attention_window=8)
        ),
        "longt5": transformers.LongT5ForConditionalGeneration(
            transformers.LongT5Config(
                **common, d_kv=8, num_heads=2, d_ff=24, num_layers=2, num_decoder_layers=1, local_radius=7
            )
        ),
        "pegasus_x": transformers.PegasusXForConditionalGeneration(
            transformers.PegasusXConfig(**bart, max_position_embeddings=32, block_size=8, num_global_tokens=4)
        ),
        "longformer": transformers.LongformerForMaskedLM(
            transformers.LongformerConfig(
                vocab_size=24,
                hidden_size=16,
                num_hidden_layers=2,
                num_attention_heads=2,
                intermediate_size=24,
                max_position_embeddings=34,
                attention_window=8,
                type_vocab_size=1,
                **ids,
            )
        ),
    }
    for name, model in models.items():
        model.save_pretrained(at / name)
        for file, data in tokenizer_files().items():
            (at / name / file).write_bytes(data)


def _make_run(at: Path) -> None:
    from trainer.checkpoint.files import file_facts
    from trainer.checkpoint.run_files import write_sealed

    write_model_folder(tiny_model(), at / "model")
    (at / "run").mkdir()
    write_sealed(at / "run" / "run.json", {"start": 3, "process": 12, "host": "here"})
    step = at / "run" / "step-00000007"
    (step / "model").mkdir(parents=True)
    (step / "optimizer").mkdir()
    shutil.copy(at / "model" / "model.safetensors", step / "model" / "model.safetensors")
    manifest = json.loads((at / "model" / "manifest.json").read_text())
    special = manifest["vocabulary"]["special_tokens"]
    vocabulary = {"tokenizer_fingerprint": "f", "special_tokens": special, "frame": ["<eos>"], "size": 40}
    checkpoint = {
        "format": "farspan.checkpoint",
        "format_version": 1,
        "step": 7,
        "samples": 70,
        "identity": {"model": manifest["config"], "data": {"decoder_start": "<eos>"}},
        "vocabulary": vocabulary,
        "selection": asdict(Selection()),
        "files": {"model/model.safetensors": file_facts(step / "model" / "model.safetensors")},
    }
    write_sealed(step / "checkpoint.json", checkpoint)


@pytest.mark.parametrize("count", [FAST, pytest.param(SLOW, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", OPENERS)
def test_every_change_is_harmless_or_refused_in_one_line(sound, tmp_path, name, count, record_property):
    path = Path(shutil.copytree(sound, tmp_path / "at")) / name
    folder = str(path.parent.parent if path.parent.name == "_work" else path.parent)
    data, write = path.read_bytes(), path.write_bytes
    if name in SEALED:  # the reader of the contents is tested, and not the checksum
        data, write = json.dumps(unseal(data)).encode(), lambda data: path.write_bytes(_sealed(data))
    kept = {file: file.read_bytes() for file in path.parent.iterdir() if file.is_file()}
    told: list[tuple[int, str]] = []
    for seed in range(count):
        write(damaged(data, seed))
        try:
            OPENERS[name](folder)
        except FarspanError as error:
            told.append((seed, str(error)))
        except Exception as error:
            raise AssertionError(f"seed {seed}: {path.read_bytes()[-300:]!r}") from error
        if path.parent.name == "_work":
            for file, content in kept.items():
                file.parent.mkdir(exist_ok=True)
                file.write_bytes(content)
            (path.parent.parent / "manifest.json").unlink(missing_ok=True)
    assert told or name == "run/run.json"  # of which nothing is believed
    assert [one for one in told if len(one[1].splitlines()) > 1] == []
    record_property("refused", len(told))


def _read_parent(folder: str) -> None:
    find_parent(folder)


# file -> what reads all that it says
READERS: dict[str, Callable[[str], object]] = {
    **{name: OPENERS[name] for name in SEALED if "_work" in name},
    **{name: read_manifest for name in SEALED if "_work" not in name},
    "masks/.origins.json": _read_parent,
    "clusters/.origins.json": _read_parent,
    "pairs/.origins.json": _read_parent,
}


@pytest.mark.parametrize("name", READERS)
def test_every_flipped_bit_and_changed_key_is_noticed(sound, tmp_path, name):
    """300 bits and 100 keys of each file that a job writes; none of them changes anything silently."""
    at, rng = Path(shutil.copytree(sound, tmp_path / "at")), random.Random(name)
    path = at / name
    folder = str(path.parent.parent if path.parent.name == "_work" else path.parent)
    data = path.read_bytes()
    READERS[name](str(shutil.copytree(folder, tmp_path / "read")))
    for bit in rng.sample(range(8 * len(data)), 300):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        path.write_bytes(flipped)
        with pytest.raises(FarspanError):
            READERS[name](folder)
    for seed in range(100):
        path.write_bytes(changed := damaged(data, seed))
        if _loads(changed) != json.loads(data):
            with pytest.raises(FarspanError):
                READERS[name](folder)


def _loads(data: bytes) -> Any:
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return None
