"""Principal sentences of sequences of 16,384 tokens on one core, beside the tokenisation of the same text.

Documents of real sentences are tokenised by a byte-level BPE made from them, split into sentences and packed. Masking
decodes every row, splits words, scores, chooses and places spans; the goal is that it takes no longer than tokenising.
"""

from __future__ import annotations

import one_thread  # isort: skip  (before numpy)

from functools import partial
from itertools import islice

import numpy as np
import pyarrow as pa
from report import HEADINGS, Comparison, arguments, comparison_rows, in_turn, machine, publish
from text import real_documents, recombined

from corpora.keyed import make_key
from corpora.packing.concatenate import concatenate
from corpora.packing.options import Packing
from corpora.schemas.sequences import SequenceBatch
from corpora.storage.ragged import Ragged
from corpora.text.sentences import load_splitter, sentence_token_starts
from corpora.text.utf8 import byte_offsets
from corpora.tokenizers.protocol import Tokenizer
from corpora.tokenizers.training import train_byte_level_bpe
from objectives.api.protocol import CorpusFacts, Objective, Tools, equip, load_objective

VOCAB = 32_000
KEY = make_key(0, "benchmark")
SIDES = {
    "ind": (None, {}),
    "ind, unicode words": (None, {"words": "unicode"}),
    "ind over the sequence": (None, {"scope": "sequence"}),
    "seq": (None, {"strategy": "seq"}),
    "continuous": (None, {"strategy": "continuous"}),
    "pegasus": ("pegasus", {}),
    "longt5_code": ("longt5_code", {}),
    "bart_ls": ("bart_ls", {}),
}


def sequences(documents: list[str], tokenizer: Tokenizer, length: int) -> SequenceBatch:
    """The documents, sentence by sentence, in rows of ``length`` positions."""
    splitter = load_splitter()
    ids, places = tokenizer.encode_with_starts(documents)
    cuts = Ragged.from_rows([byte_offsets(text, splitter.boundaries(text)) for text in documents], np.int64)
    names = pa.array([f"made:0:{number}" for number in range(len(documents))])
    return concatenate(names, ids, sentence_token_starts(places, cuts), Packing(sequence_length=length)).sequences


def check(rows: SequenceBatch, tokenizer: Tokenizer, objective: Objective, length: int) -> None:
    """Something is hidden in every row, and all of it comes back."""
    parts = int(rows.document_starts.lengths.max())
    tokens = int(rows.tokens.lengths.max())
    special = objective.validate(CorpusFacts(tokenizer.vocab_size, tokenizer.owned_tokens, length, tokens, parts))
    masks = objective.mask(rows, KEY)
    assert (masks.span_starts.lengths > 0).all()
    text = objective.reconstruct(objective.render(rows, masks, special), masks, special)  # type: ignore[attr-defined]
    assert np.array_equal(text.values, rows.tokens.values)


def main() -> None:
    parser = arguments(__doc__.partition("\n")[0], rounds=7)
    parser.add_argument("--megabytes", type=float, default=4, help="of text")
    parser.add_argument("--length", type=int, default=16_384, help="positions of a sequence")
    options = parser.parse_args()
    environment = machine("numpy", "numba", "tokenizers", "tiktoken")
    one_thread.take_one_core()
    size, documents = 0, []
    for document in recombined(real_documents(), seed=0):
        documents.append(document)
        size += len(document.encode())
        if size >= options.megabytes * 1e6:
            break
    tokenizer = train_byte_level_bpe(islice(recombined(real_documents(), seed=1), 20_000), VOCAB)
    rows = sequences(documents, tokenizer, options.length)
    objectives = {
        name: equip(load_objective("principal_sentences", preset, given), Tools(tokenizer))
        for name, (preset, given) in SIDES.items()
    }
    for objective in objectives.values():
        check(rows, tokenizer, objective, options.length)
    runs = {name: partial(objective.mask, rows, KEY) for name, objective in objectives.items()}
    tokenizing = {
        "decode": lambda: [tokenizer.decode_with_offsets(row) for row in rows.tokens],
        "encode": lambda: tokenizer.encode(documents),
    }
    seconds = in_turn({**runs, **tokenizing}, options.rounds)
    thousand = len(rows.tokens.values) / 1e3
    rates = {name: [thousand / second for second in values] for name, values in seconds.items()}
    comparisons = [
        Comparison(name, f"encode ({tokenizer.engine})", "ktok/s", rates[name], rates["encode"], 1) for name in SIDES
    ]
    comparisons.append(Comparison("decode alone", comparisons[0].peer, "ktok/s", rates["decode"], rates["encode"]))
    parts, sentences = rows.document_starts.lengths.mean(), rows.sentence_starts.lengths.mean()
    publish(
        f"Principal sentences, {len(rows)} sequences of {options.length:,} positions with {parts:.0f} documents and "
        f"{sentences:.0f} sentences each, one thread",
        HEADINGS,
        comparison_rows(comparisons),
        environment,
        options.json,
        {"length": options.length, "rows": len(rows), "thousand_tokens_per_second": rates},
    )


if __name__ == "__main__":
    main()
